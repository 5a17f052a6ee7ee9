"""The SBOM of a wheel, completed when the wheel is packed (PEP 770).

Its components are known before the build; its name and version come from the build. The host
combines the two, and so does the check that compares them with the wheel later.
"""

from __future__ import annotations

import json
import re
import uuid
from email.parser import HeaderParser
from urllib.parse import quote

#: Its name below ``sboms`` of the .dist-info directory.
FILE = "windows-cuda-wheels.cdx.json"


def completed(bill: str, metadata: bytes) -> bytes:
    """The SBOM of the wheel with this METADATA: equal inputs give equal bytes.

    ``bill`` is CycloneDX without a serial number and without the wheel's name. Raises
    ``ValueError`` if METADATA does not have that.
    """
    headers = HeaderParser().parsestr(metadata.decode("utf-8", "replace"))
    name, version = headers.get("Name", "").strip(), headers.get("Version", "").strip()
    if not name or not version:
        raise ValueError("METADATA has no Name or no Version, which the SBOM needs")
    made = json.loads(bill)
    wheel = made["metadata"]["component"]
    # https://github.com/package-url/purl-spec/blob/main/types-doc/pypi-definition.md
    project = re.sub(r"[-_.]+", "-", name).lower()
    purl = f"pkg:pypi/{quote(project, safe='')}@{quote(version, safe='')}"
    wheel |= {"name": name, "version": version, "purl": purl}
    made.pop("serialNumber", None)
    made["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, _sbom_json(made)).urn
    return _sbom_json(made).encode("ascii")


def _sbom_json(made: object) -> str:
    return json.dumps(made, indent=1, sort_keys=True) + "\n"
