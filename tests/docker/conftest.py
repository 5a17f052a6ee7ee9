"""A container engine, and the image of the sandbox on it: made once, for all that need them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.core.errors import HostError, SetupError
from pipelines.hosts import images
from pipelines.hosts.base import Silent
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.images import Image
from pipelines.toolchain.lock import Cache, load_lock

ROOT = Path(__file__).parents[2]
_SKIP = 77
DEBIAN = "windows-cuda-wheels-tests/debian:bookworm"


def _made_ready() -> Path:
    """Start an engine and make a Debian, if need be; skips where there can be none."""
    done = subprocess.run(
        [ROOT / "scripts/setup-docker"], capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode == _SKIP:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Docker's own of this machine."""
    try:
        made = Engine()
    except (SetupError, HostError):
        _made_ready()
        made = Engine()
    yield made
    made.close()


@pytest.fixture(scope="session")
def cache() -> Cache:
    """The user's own: what is pinned is fetched once."""
    return Cache(load_lock())


@pytest.fixture(scope="session")
def sandbox_image(engine: Engine, cache: Cache) -> Image:
    """Today's image of the sandbox, with Python 3.11."""
    found = images.find(engine, "sandbox", "3.11", cache)
    if found is None:
        tree = _made_ready()
        found = images.ensure(engine, "sandbox", "3.11", cache, Silent(), tree=tree)
    return found


@pytest.fixture(scope="session")
def debian(engine: Engine) -> str:
    """A bare Debian, by its tag: imported from the tree that scripts/setup-docker makes."""
    if engine.image(DEBIAN) is None:
        engine.import_tree(_made_ready(), DEBIAN)
    return DEBIAN
