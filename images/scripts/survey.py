"""``survey.py [--out FILE] NAME=DIRECTORY...``: what is inside, as JSON: files by hash, packages.

It runs when an image has been built.
Standard library only, on Linux and Windows.
"""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ["dpkg-query", "-W", "-f", "${binary:Package} ${Version}\n"]


def content(path):
    """Size and sha256 of a file; of a link, where it points to."""
    if path.is_symlink():
        return [0, f"-> {path.readlink()}"]
    if not path.is_file():  # a socket, a pipe, a device
        return [0, "special"]
    with path.open("rb") as stream:
        return [path.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest()]


def files(root):
    """Every file and link below a directory, by its path from there; links are not followed."""
    found = {}
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            found |= {f"{path.name}/{below}": what for below, what in files(path).items()}
        else:
            found[path.name] = content(path)
    return found


def packages():
    """What an installer or a mirror has decided: Debian's packages, or the releases of Windows."""
    if sys.platform == "win32":
        compilers = Path("C:/VS/VC/Tools/MSVC")
        found = {f"msvc {path.name}": path.name for path in compilers.iterdir()}
        return {"windows": platform.version(), **found}
    if not shutil.which(PACKAGES[0]):
        return {}
    listed = subprocess.run(PACKAGES, capture_output=True, text=True, check=True).stdout
    return dict(sorted(line.split(" ", 1) for line in listed.splitlines()))


def main(words):
    """The whole survey; of a directory that is not there, that it has no files."""
    out = Path(words[1]) if words[:1] == ["--out"] else None
    roots = {
        name: Path(path) for name, path in (word.split("=", 1) for word in words[2 * bool(out) :])
    }
    missing = [str(path) for path in roots.values() if not path.is_dir()]
    if out and missing:
        sys.exit("survey: there is no " + ", ".join(missing))
    found = {
        "roots": {
            name: {"path": str(path), "files": files(path) if path.is_dir() else {}}
            for name, path in roots.items()
        },
        "packages": packages(),
    }
    text = json.dumps(found, indent=0, sort_keys=True)
    if out:
        out.write_text(text, "utf-8")
    else:
        print(text)


main(sys.argv[1:])
