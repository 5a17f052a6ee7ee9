"""``make_prefix.py PYTHON DIRECTORY``: the sandbox's sealed prefix, made while the image is.

Everything it needs is in the cache that was copied there: nothing is fetched.
"""

import sys
from pathlib import Path

from pipelines.hosts.sandbox.image import make_image
from pipelines.toolchain.lock import Cache, load_lock

python, target = sys.argv[1], Path(sys.argv[2])
made = make_image(Cache(load_lock(), offline=True), python, lambda text: print(text, flush=True))
target.parent.mkdir(parents=True)
made.rename(target)
