"""``survey.py [--out FILE] NAME=DIRECTORY...``: what is inside, as JSON: files by hash, packages.

It runs when an image has been built, and again in a container that is compared with its image.
Standard library only, on Linux and Windows.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys

PACKAGES = ["dpkg-query", "-W", "-f", "${binary:Package} ${Version}\n"]


def content(path):
    """Size and sha256 of a file; of a link, where it points to."""
    if os.path.islink(path):
        return [0, "-> " + os.readlink(path)]
    if not os.path.isfile(path):  # a socket, a pipe, a device
        return [0, "special"]
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return [size, digest.hexdigest()]


def files(root):
    """Every file and link below ``root``, by its path from there."""
    found = {}
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in (*names, *links):
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root).replace(os.sep, "/")] = content(path)
    return dict(sorted(found.items()))


def packages():
    """What Debian's package manager has installed; nothing where there is none."""
    if not shutil.which(PACKAGES[0]):
        return {}
    listed = subprocess.run(PACKAGES, capture_output=True, text=True, check=True).stdout
    return dict(sorted(line.split(" ", 1) for line in listed.splitlines()))


def main(words):
    """The whole survey."""
    out = words[1] if words[:1] == ["--out"] else ""
    roots = dict(word.split("=", 1) for word in words[2 if out else 0 :])
    missing = [path for path in roots.values() if not os.path.isdir(path)]
    if out and missing:
        sys.exit("survey: there is no " + ", ".join(missing))
    found = {
        "roots": {name: {"path": path, "files": files(path)} for name, path in roots.items()},
        "packages": packages(),
    }
    text = json.dumps(found, indent=0, sort_keys=True)
    if out:
        with open(out, "w", encoding="utf-8") as stream:
            stream.write(text)
    else:
        print(text)


main(sys.argv[1:])
