"""The bill of materials of a wheel, completed where the wheel is packed (PEP 770).

What it is made of is known before it is built; what it is called, its own build says. The host
puts the two together, and so does whoever looks afterwards whether that is what lies in it.
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
    """The bill of the wheel that has this METADATA: equal ones give equal bytes.

    ``bill`` is CycloneDX without a serial number, and without what it calls the wheel. Raises
    ``ValueError`` where METADATA does not say that.
    """
    told = HeaderParser().parsestr(metadata.decode("utf-8", "replace"))
    name, version = told.get("Name", "").strip(), told.get("Version", "").strip()
    if not name or not version:
        raise ValueError("METADATA has no Name, or no Version: whose bill of materials is it?")
    made = json.loads(bill)
    wheel = made["metadata"]["component"]
    # https://github.com/package-url/purl-spec/blob/main/types-doc/pypi-definition.md
    project = re.sub(r"[-_.]+", "-", name).lower()
    purl = f"pkg:pypi/{quote(project, safe='')}@{quote(version, safe='')}"
    wheel |= {"name": name, "version": version, "purl": purl}
    made.pop("serialNumber", None)
    made["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, _text(made)).urn
    return _text(made).encode("ascii")


def _text(made: object) -> str:
    return json.dumps(made, indent=1, sort_keys=True) + "\n"
