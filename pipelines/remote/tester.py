"""Runs a smoke suite against a wheel: in a virtual environment of its own, from an empty directory.

``system`` is for environments that are used as they are: torch and the test tools are the given
Python's, the wheel alone goes into a virtual environment over it, and the given one is not
touched. Such an environment may be a virtual one itself, of which ``--system-site-packages``
would see only the base: so the new one is told its directories by a ``.pth`` file.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Generator, Mapping
from typing import TypedDict

from . import events, files, process, protected_dirs

_UV = ("--quiet", "--offline", "--no-cache", "--no-config", "--color", "never")
_WINDOWS = os.name == "nt"
#: Variables of whoever started this that would choose other tests, or other packages.
_OF_PYTEST = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
_OF_PYTHON = ("PYTHONPATH", "PYTHONHOME")
_OF_UV = "UV_"  # each of its options has one; --no-config is for files alone
#: Only what the virtual environment holds may be found, no toolkit. Not there rather than empty:
#: https://github.com/abetlen/llama-cpp-python/blob/main/llama_cpp/_ctypes_extensions.py
_OF_CUDA = ("CUDA_PATH", "CUDA_HOME")  # and CUDA_PATH_V13_0
#: The suite ends itself before its time is up: a report with a reason instead of none.
_RESERVE = 60.0
_QUERY = """
import json, site, sys
places = list(site.getsitepackages())
if site.ENABLE_USER_SITE:
    places.append(site.getusersitepackages())
print(json.dumps(places))
"""


class _Optional(TypedDict, total=False):
    system: bool
    """``packages`` are not installed: ``python`` has them, with pytest and pytest-xdist."""
    libraries: list[str]
    """Directories below site-packages, with ``/``, in which libraries are found as well."""


class Spec(_Optional):
    """What is to be run, on what."""

    directory: str
    """Made anew."""
    installer: str
    """uv.exe; empty: pip of ``python``."""
    python: str
    wheels: str
    """The directory of the pinned wheels."""
    wheel: str
    """The one to test; empty: the suite needs none."""
    packages: list[str]
    """What else to install."""
    suite: dict[str, str]
    """File name, perhaps below directories with ``/`` -> text."""
    expect: Mapping[str, object]
    """What the suite reads from ``SMOKE_EXPECT``."""
    environment: dict[str, str]
    timeout: float
    """Of each step, in seconds."""


class Outcome(process.Ended):
    """How the last step ended."""

    step: str
    """Which that was: ``venv``, ``install`` or ``pytest``."""
    junit: str | None
    """The report's path, if there is one."""
    resets: list[str]
    """Of the display driver, while pytest ran and failed, also when it was run once more."""


def run_suite(spec: Spec) -> Generator[bytes | Outcome, None, None]:
    """Yield log bytes, then the outcome."""
    root = pathlib.Path(spec["directory"])
    files.remove_tree(str(root))
    suite, empty = root / "suite", root / "empty"
    protected_dirs.make(root)
    for folder in (suite, empty):
        folder.mkdir()
    for name, text in spec["suite"].items():
        (suite / name).parent.mkdir(parents=True, exist_ok=True)
        (suite / name).write_text(text, "utf-8")
    (root / "expect.json").write_text(json.dumps(spec["expect"]), "utf-8")
    junit = root / "junit.xml"
    deaf = _OF_PYTEST if spec.get("system") else (*_OF_PYTEST, *_OF_PYTHON)
    own = {name: value for name, value in os.environ.items() if name.upper() not in deaf}
    environment = {
        **{n: v for n, v in own.items() if not n.upper().startswith((_OF_UV, *_OF_CUDA))},
        "SMOKE_SECONDS": str(max(spec["timeout"] - _RESERVE, spec["timeout"] / 2)),
        **spec["environment"],
        "SMOKE_EXPECT": str(root / "expect.json"),
        # The user's environment may have plug-ins that change what pytest does.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    libraries = [_site(root / "venv") / place for place in spec.get("libraries", [])]
    if libraries:
        environment |= _found(libraries)
    steps, again = [*_steps(spec, root, suite, junit)], False
    for step, command in [*steps, steps[-1]]:
        began = time.time()
        for item in process.stream(
            command, env=environment, cwd=str(empty), timeout=spec["timeout"]
        ):
            if not isinstance(item, dict):
                yield item
            elif step == "pytest" or item["exit"] or item["timed_out"]:
                failed = step == "pytest" and item["exit"]
                resets = events.driver_resets(time.time() - began) if failed else []
                if resets and not again:
                    again = True
                    junit.unlink(missing_ok=True)
                    yield f"the driver was reset, pytest runs again: {resets}\n".encode()
                    continue
                report = str(junit) if junit.is_file() else None
                yield {**item, "step": step, "junit": report, "resets": resets}
                return
        if step == "venv" and spec.get("system"):
            _see(spec["python"], root / "venv")
        if step == "venv" and libraries and _WINDOWS:
            _let_load(root / "venv", libraries)


def _steps(
    spec: Spec, root: pathlib.Path, suite: pathlib.Path, junit: pathlib.Path
) -> Generator[tuple[str, list[str]], None, None]:
    """The steps in order. The program that pytest is run by is in the new environment."""
    system = spec.get("system", False)
    venv = root / "venv"
    python = str(venv / ("Scripts/python.exe" if _WINDOWS else "bin/python"))
    uv = [spec["installer"], *_UV]
    if system or not spec["installer"]:
        # The given one's pip is seen in the new one; an environment that uv made has none.
        bare = ["--without-pip"] if system and _has_pip(spec["python"]) else []
        yield "venv", [spec["python"], "-m", "venv", *bare, str(venv)]
    else:
        yield "venv", [*uv, "venv", "--python", spec["python"], str(venv)]
    wanted = [spec["wheel"]] if spec["wheel"] else []
    options = ["--no-index"]
    if system:
        options += ["--no-deps"]
    else:
        options += ["--find-links", spec["wheels"]]
        wanted += spec["packages"]
    if wanted and spec["installer"]:
        yield "install", [*uv, "pip", "install", "--python", python, *options, *wanted]
    elif wanted:
        # The user's pip, run by the new Python: it sees and would remove the user's own version.
        pip = ["-m", "pip", "--isolated", "--disable-pip-version-check", "--no-color", "install"]
        quiet = ["--quiet", "--no-cache-dir", "--ignore-installed", "--no-warn-script-location"]
        yield "install", [python, *pip, *quiet, *options, *wanted]
    yield (
        "pytest",
        [
            *(python, "-m", "pytest", str(suite), "--rootdir", str(suite)),
            # One worker: a case that ends the interpreter ends it alone, and another is started.
            *("-p", "xdist.plugin", "-n", "1", "--max-worker-restart", "64"),
            *("-p", "no:cacheprovider", "-q", "-ra", "--color=no", "--tb=short"),
            f"--junitxml={junit}",
        ],
    )


def _site(venv: pathlib.Path) -> pathlib.Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return venv / "Lib" / "site-packages" if _WINDOWS else venv / "lib" / version / "site-packages"


def _found(libraries: list[pathlib.Path]) -> dict[str, str]:
    """What lets the loader find libraries in these directories."""
    name = "PATH" if _WINDOWS else "LD_LIBRARY_PATH"
    return {name: os.pathsep.join([*map(str, libraries), *filter(None, [os.environ.get(name)])])}


def _let_load(venv: pathlib.Path, libraries: list[pathlib.Path]) -> None:
    """The same for ctypes and for modules, for which Python on Windows does not look at PATH.

    https://docs.python.org/3/library/os.html#os.add_dll_directory
    """
    places = [str(path) for path in libraries]
    line = f"import os; [os.add_dll_directory(p) for p in {places!a} if os.path.isdir(p)]\n"
    (_site(venv) / "_libraries_beside.pth").write_text(line, "utf-8")


def _has_pip(python: str) -> bool:
    with contextlib.suppress(OSError):  # the step that starts it says what is wrong
        return process.capture([python, "-c", "import pip"], timeout=120)[0] == 0
    return True


def _see(python: str, venv: pathlib.Path) -> None:
    """Let the virtual environment see what ``python`` sees, its own packages first."""
    code, text = process.capture([python, "-c", _QUERY], timeout=120)
    if code:
        raise RuntimeError(f"{python} does not tell where its packages are: {text.strip()}")
    places = json.loads(text.strip().splitlines()[-1])
    (site,) = [venv / "Lib" / "site-packages"] if _WINDOWS else venv.glob("lib/*/site-packages")
    # addsitedir, not a plain path: the .pth files in there count as well (editable installs).
    lines = [f"import site; site.addsitedir({place!a})\n" for place in places]
    (site / "_given_environment.pth").write_text("".join(lines), "utf-8")
