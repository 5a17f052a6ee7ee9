"""Write a configuration whose host "bare" is a container of this Windows' own base image.

bare_host.py FILE    the base image is pulled unless it is there, and named by its digest
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: Build of Windows -> the base image whose kernel is the same.
_BASES = {20348: "ltsc2022", 26100: "ltsc2025"}
_REPOSITORY = "mcr.microsoft.com/windows/servercore"


def digest(image: str) -> str:
    """The image by digest, ``REPOSITORY@sha256:...``; empty if the engine does not have it."""
    words = ["docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", image]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def main(words: list[str]) -> int:
    """0 if the file was written."""
    if sys.platform != "win32":
        print("bare_host.py: only for Windows")
        return 2
    build = sys.getwindowsversion().build
    if build not in _BASES:
        known = ", ".join(str(one) for one in _BASES)
        print(f"bare_host.py: no base image for build {build} of Windows, only for {known}")
        return 2
    image = f"{_REPOSITORY}:{_BASES[build]}"
    found = digest(image)
    if not found:
        subprocess.run(["docker", "pull", image], check=True)
        found = digest(image)
    host = {"kind": "container", "image": found, "via": "exec", "memory": "4g", "start_minutes": 10}
    text = json.dumps({"default": {"host": "bare"}, "hosts": {"bare": host}}, indent=2)
    Path(words[0]).write_text(f"{text}\n", "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
