"""The smoke case of Pythons without the global lock: who switches it on, and what was promised."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from foreign_wheels import foreign
from smoke_runs import EXPECT, Outcome, run, shipped

pytestmark = pytest.mark.slow


CASE = "test_import_leaves_the_global_lock_off"
PROMISE = "Programming Language :: Python :: Free Threading :: 3 - Stable"
NAMES = ("WCW_FREE_THREADED_PYTHON", "python3.15t", "python3.14t", "python3.13t")
#: A real one: of that variable, or on the path.
REAL = os.environ.get(NAMES[0]) or next(filter(None, map(shutil.which, NAMES[1:])), "")

SUITE = """TORCH = False
MODULES = ('demo_api', 'demo')
def facts(*, gpu): return {}
def lost(): return False
"""
#: Stands for a Python without the global lock, in the process that imports the package.
MADE_UP = """import sys, sysconfig
asked = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else asked(name)
sys._is_gil_enabled = lambda: START
"""
SWITCHES = b"import sys\nsys._is_gil_enabled = lambda: True\n"

#: As much of torch as is asked.
TORCH = b"""__version__ = '2.14.0'
class version: cuda = hip = None
def compiled_with_cxx11_abi(): return True
"""

#: A module of C that says, or does not say, that it does without the global lock.
MODULE = r"""
#include <Python.h>
static PyModuleDef_Slot slots[] = { SAYS {0, NULL}};
static PyModuleDef made = {PyModuleDef_HEAD_INIT, "NAME", 0, 0, 0, slots, 0, 0, 0};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModuleDef_Init(&made); }
"""
SAYS = "{Py_mod_gil, Py_MOD_GIL_NOT_USED},"


def ran(
    folder: Path, start: str, files: dict[str, bytes], classifier: str = "", suite: str = SUITE
) -> Outcome:
    """The shipped part of every suite in the Python that is made up."""
    every = {"demo.py": b"", "demo_api.py": b"", **files}
    made = foreign(
        folder, "demo", files=every, python=">=3", classifiers=[*filter(None, [classifier])]
    )
    text = suite + (MADE_UP.replace("START", start) if start else "")
    return run(folder, shipped() | {"smoke_suite.py": text}, made, EXPECT)


@pytest.mark.parametrize(
    ("start", "package", "classifier", "outcome", "said"),
    [
        ("False", b"", PROMISE, "passed", ""),
        ("False", b"", "", "passed", ""),
        ("False", SWITCHES, PROMISE, "failed", "the import of demo switched the global lock on"),
        ("False", SWITCHES, "", "skipped", "nothing in METADATA promises otherwise"),
        ("True", b"", PROMISE, "skipped", "on before anything was imported"),
        ("False", b"1 / 0", PROMISE, "skipped", "not tried: ZeroDivisionError"),
    ],
    ids=["off", "off-unpromised", "promised", "unpromised", "on-before", "does-not-import"],
)
def test_what_an_import_does_is_held_against_what_the_wheel_promises(  # noqa: PLR0917
    tmp_path: Path, start: str, package: bytes, classifier: str, outcome: str, said: str
) -> None:
    case = ran(tmp_path, start, {"demo.py": package}, classifier).case(CASE)
    assert (case.outcome, said in case.message) == (outcome, True), case.message
    if outcome == "failed":
        assert PROMISE in case.message


def test_torch_is_not_the_wheel_s_fault(tmp_path: Path) -> None:
    """It is imported first, and what it switches on stays on."""
    suite = SUITE.replace("TORCH = False", "TORCH = True")
    case = ran(tmp_path, "False", {"torch.py": TORCH + SWITCHES}, PROMISE, suite).case(CASE)
    assert (case.outcome, "torch switched the global lock on" in case.message) == ("skipped", True)


def test_a_python_that_always_has_it_says_so(tmp_path: Path) -> None:
    case = ran(tmp_path, "", {}).case(CASE)
    assert (case.outcome, case.message) == ("skipped", "this Python always has the global lock")


@pytest.mark.skipif(not REAL, reason=f"no Python without the global lock: {', '.join(NAMES)}")
@pytest.mark.parametrize(
    ("says", "gil", "lock"),
    [(SAYS, "1", "off"), (SAYS, "", "off"), ("", "", "demo"), ("", "0", "demo")],
)
def test_in_a_real_one_a_module_that_does_not_declare_itself_is_named(
    tmp_path: Path, says: str, gil: str, lock: str
) -> None:
    """Whatever PYTHON_GIL of the host's environment says."""
    ask = "import sysconfig as s; print(s.get_path('include'), s.get_config_var('EXT_SUFFIX'))"
    include, suffix = subprocess.check_output([REAL, "-c", ask], text=True).split()
    source = tmp_path / "demo.c"
    source.write_text(MODULE.replace("NAME", "demo").replace("SAYS", says), "utf-8")
    command = ["cc", "-shared", "-fPIC", f"-I{include}", "-DPy_GIL_DISABLED=1"]
    subprocess.check_call([*command, "-o", tmp_path / f"demo{suffix}", source])
    (tmp_path / "demo_api.py").write_text("")
    for name, text in (shipped() | {"smoke_suite.py": SUITE}).items():
        (tmp_path / name).write_text(text, "utf-8")
    environment = {**os.environ, **({"PYTHON_GIL": gil} if gil else {})}
    gather = "import json, smoke_facts as s; a, d = s._run('smoke_probe.py', 'no-gpu', seconds=60)"
    told = f"{gather}; print('A' + json.dumps([x for x in a if 'lock' in x]))"
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {told}"
    said = subprocess.check_output([REAL, "-c", code], text=True, env=environment, cwd=tmp_path)
    answers = [line[1:] for line in said.splitlines() if line.startswith("A")]
    assert json.loads(answers[-1])[-1]["lock"] == lock, said
