"""``make_prefix.py PYTHON DIRECTORY``: the sandbox's sealed prefix, made while the image is.

With libc++, which a sandbox that is no image gets when it is needed. Everything this takes is in
the cache that was copied there: nothing is fetched.
"""

import sys
from pathlib import Path

from pipelines.hosts.sandbox import libcxx
from pipelines.hosts.sandbox.image import make_image
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache, load_lock

python, target = sys.argv[1], Path(sys.argv[2])
cache = Cache(load_lock(), offline=True)


def say(text: str) -> None:
    """Into the log of the build, at once."""
    print(text, flush=True)


made = make_image(cache, python, say)
libcxx.install_libcxx(libcxx.ensure_libcxx(cache, python, say), Prefix(made))
target.parent.mkdir(parents=True)
made.rename(target)
