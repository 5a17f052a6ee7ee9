"""Few examples a property by default, for fast tests; ``HYPOTHESIS_PROFILE=thorough`` for more.

No deadline either way: a busy machine is no defect.
"""

import gc
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import under_wine
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings

from pipelines.core import model
from pipelines.record import seal

settings.register_profile("fast", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

ROOT = Path(__file__).parents[1]

collect_ignore = [f"unit/{name}" for name in under_wine.POSIX]

#: Every test is in exactly one: its marker's, or else its directory's; unit tests are fast.
TIERS = {
    *("fast", "slow", "sandbox", "powershell", "faults", "provisioners"),
    *("docker", "browser", "gpu", "bench"),
}


def pytest_configure(config: pytest.Config) -> None:
    if under_wine.is_here():
        config.pluginmanager.register(under_wine.Skips())


def pytest_itemcollected(item: pytest.Item) -> None:
    tiers = TIERS & {mark.name for mark in item.iter_markers()}
    if not tiers:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        tiers = TIERS & {"fast" if folder == "unit" else folder}
    if len(tiers) != 1:
        raise pytest.UsageError(f"{item.nodeid}: expected one tier, found {sorted(tiers)}")
    item.add_marker(*tiers)


@cache
def _newest() -> date:
    from pipelines.plan.matrix.compat import load_compat
    from pipelines.plan.matrix.torches import load_torches

    return max(row.date for row in (*load_compat().rules, *load_torches().values()))


@pytest.fixture(scope="module", autouse=True)
def _nothing_old_is_collected() -> None:
    """pefile collects garbage for every file: not among ten thousand tests as well."""
    gc.freeze()


def _unsynced(*args: Any, connect: Any = sqlite3.connect, **keys: Any) -> sqlite3.Connection:
    database: sqlite3.Connection = connect(*args, **keys)
    database.execute("PRAGMA synchronous=OFF")
    return database


@pytest.fixture(autouse=True, scope="session")
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No row of the data files is old on that day: their age is for people to look at.

    Records are sealed with a key of the tests: nothing is made in the user's home. No file has to
    outlive a loss of power: a third of a record's time is waiting for the disk.
    """
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key = Ed25519PrivateKey.generate().private_bytes(serialization.Encoding.PEM, *form)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "current_date", _newest)
        patch.setattr(sqlite3, "connect", _unsynced)
        patch.setattr(os, "fsync", lambda _: None)
        patch.setenv(seal.VARIABLE, key.decode())
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


def pytest_runtest_teardown() -> None:
    """The verbosity of one test (``-v``) does not reach the next one."""
    logging.getLogger("pipelines").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def built_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline's own wheel, built from a copy: setuptools leaves its work in the tree."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pipelines", "docs"):
        shutil.copytree(ROOT / name, tree / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    (tree / "tests").mkdir()
    shutil.copy(__file__, tree / "tests/__init__.py")  # which must not come along
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "made"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = (tree / "made").iterdir()
    return wheel


@pytest.fixture
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither our configuration, nor our cache, nor a console that another test made quiet."""
    from pipelines.core.console import console

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("WCW_CONFIG", raising=False)
    monkeypatch.setattr(console, "quiet", False)


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ``out`` of a configuration."""
    config = tmp_path / "pipeline.yaml"
    config.write_text(f"hosts: {{sandbox: {{kind: sandbox}}}}\nout: {tmp_path / 'out'}\n")
    monkeypatch.setenv("WCW_CONFIG", str(config))
    return tmp_path / "out"
