"""What all suites share: the facts, asked for once; the fixtures; the report's properties.

A suite is sent to a host and run there against the installed wheel. It needs pytest,
pytest-xdist, the standard library, the files of ``common``, ``fatbin.py``, ``awake.py``, a
``smoke_suite.py`` (see :mod:`smoke_probe`), and ``SMOKE_EXPECT``: the path of a JSON file with
``distribution`` (empty: no wheel), ``version``, ``archs``, ``ptx`` and ``platform`` (``null``:
any); ``cuda``, ``torch``, ``verify`` (the recipe's), ``cpu_torch`` (that torch is a build without
CUDA), ``files`` (more files with device code) and ``gpu`` (:class:`smoke_facts.Asked`) may be
there, and ``given`` of a wheel that others have built.

Nothing here or at a test module's head imports torch or the package: a crash at their import
is for :mod:`smoke_probe` to find, and must not end pytest.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

import pytest
import smoke_facts
import smoke_isolation
import smoke_suite
from _pytest.junitxml import xml_key
from smoke_batches import Record
from smoke_facts import Expected, Facts
from smoke_gpu import Device
from smoke_isolation import FACTS

# Before anything loads the driver, and for every process from here: modules are loaded when used.
os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")

_SUITE = "suite:"  # a property of a case with this prefix is one of the whole suite
_ON_GPU = "on_gpu"  # a property of a case that was given a GPU


def _expected() -> Expected:
    path = os.environ.get("SMOKE_EXPECT")
    document: Expected = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return document


def pytest_configure(config: pytest.Config) -> None:
    """In a worker: take the facts from pytest's own process."""
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        config.stash[FACTS] = json.loads(workerinput["smoke_facts"])
        config.pluginmanager.register(smoke_isolation.Guard(workerinput, smoke_suite.lost))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Its fixtures did not skip it: a case that has a GPU now runs on it.

    One whose ``gpu`` is a fixture or parameter of its own was given none.
    """
    known = getattr(item, "_fixtureinfo", None)
    gpus = known.name2fixturedefs.get("gpu") if known is not None else None
    code = getattr(gpus[-1].func, "__code__", None) if gpus else None
    if code is not None and code.co_filename == __file__:
        item.user_properties.append((_ON_GPU, "yes"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """In pytest's own process: gather the facts, and warn before anything runs."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    facts = smoke_facts.gather(_expected())
    config.stash[FACTS] = facts
    config.pluginmanager.register(_Report(config, facts))
    config.pluginmanager.register(smoke_isolation.Watch(facts))
    lines = [f"{name}: {value}" for name, value in facts["report"].items()]
    lines += [f"FAILURE ({name}): {text}" for name, text in facts["failures"].items()]
    print("\n".join(lines), flush=True)


class _Report:
    """Writes properties of the suite; the fixture for that does not work under pytest-xdist."""

    def __init__(self, config: pytest.Config, facts: Facts) -> None:
        self._config = config
        self._properties: dict[str, str] = dict(facts["report"])
        self._on_gpu = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Move what is the suite's from the case to the suite; count what has run on a GPU."""
        properties = {name: str(value) for name, value in report.user_properties}
        for name, value in properties.items():
            own = name.removeprefix(_SUITE)
            if own != name and not smoke_facts.OURS.match(own):
                self._properties[own] = value
        if _ON_GPU in properties and report.when == "call" and report.passed:
            self._on_gpu += 1
            self._properties["gpu_cases"] = str(self._on_gpu)
        kept = [p for p in report.user_properties if not p[0].startswith((_SUITE, _ON_GPU))]
        report.user_properties[:] = kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        xml = self._config.stash.get(xml_key, None)
        for name, value in self._properties.items() if xml else ():
            xml.add_global_property(name, value)


@pytest.fixture(scope="session")
def facts(pytestconfig: pytest.Config) -> Facts:
    """What :func:`smoke_facts.gather` found."""
    return pytestconfig.stash[FACTS]


@pytest.fixture
def record_suite(record_property: Record) -> Record:
    """Record a property of the whole suite: ``record_suite(name, value)``."""
    return lambda name, value: record_property(f"{_SUITE}{name}", str(value))


@pytest.fixture(scope="session")
def gpu(facts: Facts) -> Device:
    """The first GPU. Skips, and says why, where the wheel cannot run on it."""
    if facts["blocked"]:
        pytest.skip(facts["blocked"])
    if not facts["gpu"]["devices"]:
        pytest.fail("no GPU and no reason why", pytrace=False)
    return facts["gpu"]["devices"][0]


@pytest.fixture(scope="session")
def cuda(gpu: Device) -> Device:
    """The GPU, for what reaches it through torch. Skips where torch has no CUDA."""
    import torch

    if not torch.version.cuda:
        pytest.skip(f"torch {torch.__version__} has no CUDA: its operators cannot run on the GPU")
    return gpu


@pytest.fixture(scope="session")
def expected() -> Expected:
    """What the pipeline says this wheel is."""
    if not (document := _expected()):
        pytest.fail("SMOKE_EXPECT must name the JSON file that says what to expect", pytrace=False)
    return document


@pytest.fixture(scope="session")
def installed(expected: Expected) -> importlib.metadata.Distribution:
    """The installed distribution."""
    if not expected.get("distribution"):
        pytest.skip("what is tested here is not a wheel")
    return importlib.metadata.distribution(expected["distribution"])
