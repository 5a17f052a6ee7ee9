"""The wheel as installed: its metadata and its files. No GPU is needed."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from smoke_facts import Expected


def test_metadata_has_the_expected_name_and_version(
    installed: Distribution, expected: Expected
) -> None:
    """METADATA names the distribution and version that the pipeline meant to build."""
    name = installed.metadata["Name"]
    assert name.replace("_", "-").lower() == expected["distribution"].replace("_", "-").lower()
    assert installed.version == expected["version"]


def test_metadata_says_which_python_it_needs(installed: Distribution, expected: Expected) -> None:
    """Requires-Python is there, so pip cannot install the wheel into a Python too old for it."""
    tags = re.findall(r"^Tag: (\S+)", installed.read_text("WHEEL") or "", re.MULTILINE)
    one = bool(tags) and all(re.match(r"cp3\d+-cp3\d+", tag) for tag in tags)
    if (one or expected.get("given")) and not installed.metadata["Requires-Python"]:
        pytest.skip("the wheel does not say it; its tags do, or others made it")
    assert installed.metadata["Requires-Python"], "METADATA has no Requires-Python"


def test_files_have_the_hashes_of_record(installed: Distribution) -> None:
    """Every file that RECORD lists with a hash is there and has that hash."""
    hashed = [file for file in installed.files or [] if file.hash]
    assert hashed, "RECORD lists no hashes"
    for file in hashed:
        found = hashlib.new(file.hash.mode)
        with Path(str(installed.locate_file(file))).open("rb") as stream:
            while piece := stream.read(1 << 20):
                found.update(piece)
        digest = base64.urlsafe_b64encode(found.digest()).rstrip(b"=").decode()
        assert digest == file.hash.value, str(file)
