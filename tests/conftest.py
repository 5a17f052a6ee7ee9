"""Few examples a property by default, for fast tests; ``HYPOTHESIS_PROFILE=thorough`` for more.

No deadline either way: a busy machine is no defect.
"""

import ctypes
import gc
import logging
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings

from pipelines.core import model
from pipelines.record import seal

settings.register_profile("fast", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

ROOT = Path(__file__).parents[1]

#: What Windows cannot import: the sandbox and its service are POSIX alone, and so are Unix sockets.
_POSIX = (
    *("container_output", "containers", "engine_reach", "engine_ssh", "gpu_bridge", "gpu_host"),
    *("gpu_selftest", "hashed", "host_certificates", "image_inputs", "libcxx", "lock", "msvc"),
    *("powershell", "sandbox_life", "sandbox_service", "security", "setup_docker"),
    *("windows_container", "wine", "winrs_end_to_end", "wsman_server"),
)
collect_ignore = [f"unit/test_{name}.py" for name in _POSIX] if os.name == "nt" else []

#: Every test is in exactly one: its marker's, or else its directory's; unit tests are fast.
TIERS = {
    *("fast", "slow", "sandbox", "powershell", "faults", "provisioners"),
    *("docker", "browser", "gpu", "bench"),
}


def _under_wine() -> bool:
    return os.name == "nt" and hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")


@cache
def not_under_wine() -> dict[str, str]:
    """What under_wine.yaml lists -> why it is skipped there."""
    listed = yaml.safe_load((ROOT / "tests/under_wine.yaml").read_text("utf-8"))
    return {name: reason for reason, names in listed.items() for name in names}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Some modules hang or crash on import: they are not collected, but counted below."""
    return (collection_path.name in not_under_wine() or None) if _under_wine() else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Under Wine, how many tests and modules are skipped for each reason."""
    if not _under_wine():
        return
    why = [str(one.longrepr[2]) for one in terminalreporter.stats.get("skipped", [])]
    why += [f"{text} (module)" for name, text in not_under_wine().items() if "::" not in name]
    why += ["POSIX alone: cannot be imported (module)"] * len(collect_ignore)
    terminalreporter.section("skipped, by reason")
    for text, number in Counter(why).most_common():
        terminalreporter.line(f"{number:5} {text}")


def pytest_itemcollected(item: pytest.Item) -> None:
    tiers = TIERS & {mark.name for mark in item.iter_markers()}
    if not tiers:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        tiers = TIERS & {"fast" if folder == "unit" else folder}
    if len(tiers) != 1:
        raise pytest.UsageError(f"{item.nodeid}: expected one tier, found {sorted(tiers)}")
    item.add_marker(*tiers)
    name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
    if _under_wine() and name in not_under_wine():
        item.add_marker(pytest.mark.skip(reason=not_under_wine()[name]))


@cache
def _newest() -> date:
    from pipelines.matrix.compat import load_compat
    from pipelines.matrix.torches import load_torches

    return max(row.date for row in (*load_compat().rules, *load_torches().values()))


@pytest.fixture(scope="module", autouse=True)
def _nothing_old_is_collected() -> None:
    """pefile collects garbage for every file: not among ten thousand tests as well."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _a_day_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """On which no row of the data files is old: their age is for people to look at."""
    monkeypatch.setattr(model, "today", _newest)


@pytest.fixture(autouse=True, scope="session")
def _seal_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Records are sealed with a key of the tests: nothing is made in the user's home."""
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key = Ed25519PrivateKey.generate().private_bytes(serialization.Encoding.PEM, *form)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(seal.VARIABLE, key.decode())
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True)
def _as_quiet_as_before() -> Iterator[None]:
    """What one test has asked to be told in detail, with ``-v``, the next one does not."""
    logger = logging.getLogger("pipelines")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture(scope="session")
def built_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline's own wheel, built from a copy: setuptools leaves its work in the tree."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "pipelines", tree / "pipelines")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    (tree / "tests").mkdir()
    shutil.copy(__file__, tree / "tests/__init__.py")  # which must not come along
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "made"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = (tree / "made").iterdir()
    return wheel
