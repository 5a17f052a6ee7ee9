"""Runs a smoke suite against a wheel: in its own virtual environment, from an empty directory.

``system`` is for existing environments: torch and the test tools are the given Python's, the wheel
alone is installed into a virtual environment on top of it, and the given one is not changed. Such
an environment may be a virtual one itself; ``--system-site-packages`` would only see its base, so
the new one gets its directories through a ``.pth`` file.
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
#: User variables that would select other tests or other packages.
_OF_PYTEST = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
_OF_PYTHON = ("PYTHONPATH", "PYTHONHOME")
_OF_UV = "UV_"  # each of its options has one; --no-config only covers files
#: Only libraries of the virtual environment may be found, no toolkit. Unset rather than empty:
#: https://github.com/abetlen/llama-cpp-python/blob/main/llama_cpp/_ctypes_extensions.py
_OF_CUDA = ("CUDA_PATH", "CUDA_HOME")  # and CUDA_PATH_V13_0
#: The suite ends before its time limit: a report with a reason instead of none.
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
    """Directories below site-packages, with ``/``, that contain libraries too."""


class Spec(_Optional):
    """What to run, and on what."""

    directory: str
    """Recreated."""
    installer: str
    """uv.exe; empty: pip of ``python``."""
    python: str
    wheel: str
    """The wheel to test; empty: the suite needs none."""
    packages: list[str]
    """Files of the wheels that are installed as well; no other is looked for."""
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
    """The step that failed: ``venv``, ``install`` or ``pytest``."""
    junit: str | None
    """The report's path, if there is one."""
    resets: list[str]
    """Resets of the display driver while pytest ran and failed, even if it was rerun."""


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
        # The user's environment may have plug-ins that change pytest's behaviour.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    libraries = [_venv_site_packages(root / "venv") / place for place in spec.get("libraries", [])]
    if libraries:
        environment |= _library_path_variables(libraries)
    steps, again = [*_smoke_test_steps(spec, root, suite, junit)], False
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
                    yield f"the display driver was reset, running pytest again: {resets}\n".encode()
                    continue
                report = str(junit) if junit.is_file() else None
                yield {**item, "step": step, "junit": report, "resets": resets}
                return
        if step == "venv" and spec.get("system"):
            _see(spec["python"], root / "venv")
        if step == "venv" and libraries and _WINDOWS:
            _let_load(root / "venv", libraries)


def _smoke_test_steps(
    spec: Spec, root: pathlib.Path, suite: pathlib.Path, junit: pathlib.Path
) -> Generator[tuple[str, list[str]], None, None]:
    """The steps in order. pytest's interpreter is in the new environment."""
    system = spec.get("system", False)
    venv = root / "venv"
    python = str(venv / ("Scripts/python.exe" if _WINDOWS else "bin/python"))
    uv = [spec["installer"], *_UV]
    if system or not spec["installer"]:
        # The given one's pip is visible in the new one; an environment created by uv has none.
        bare = ["--without-pip"] if system and _has_pip(spec["python"]) else []
        yield "venv", [spec["python"], "-m", "venv", *bare, str(venv)]
    else:
        yield "venv", [*uv, "venv", "--python", spec["python"], str(venv)]
    requirements = [spec["wheel"]] if spec["wheel"] else []
    options = ["--no-index"]
    if system:
        options += ["--no-deps"]
    else:
        requirements += spec["packages"]
    if requirements and spec["installer"]:
        yield "install", [*uv, "pip", "install", "--python", python, *options, *requirements]
    elif requirements:
        # The user's pip, run by the new Python: it sees and would remove the user's own version.
        pip = ["-m", "pip", "--isolated", "--disable-pip-version-check", "--no-color", "install"]
        quiet = ["--quiet", "--no-cache-dir", "--ignore-installed", "--no-warn-script-location"]
        yield "install", [python, *pip, *quiet, *options, *requirements]
    yield (
        "pytest",
        [
            *(python, "-m", "pytest", str(suite), "--rootdir", str(suite)),
            # One worker: a test that crashes the interpreter only ends that worker, and another is
            # started.
            *("-p", "xdist.plugin", "-n", "1", "--max-worker-restart", "64"),
            *("-p", "no:cacheprovider", "-q", "--color=no", "--tb=short"),
            f"--junitxml={junit}",
        ],
    )


def _venv_site_packages(venv: pathlib.Path) -> pathlib.Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return venv / "Lib" / "site-packages" if _WINDOWS else venv / "lib" / version / "site-packages"


def _library_path_variables(libraries: list[pathlib.Path]) -> dict[str, str]:
    """Variables that let the loader find libraries in these directories."""
    name = "PATH" if _WINDOWS else "LD_LIBRARY_PATH"
    return {name: os.pathsep.join([*map(str, libraries), *filter(None, [os.environ.get(name)])])}


def _let_load(venv: pathlib.Path, libraries: list[pathlib.Path]) -> None:
    """The same for ctypes and for modules, for which Python on Windows ignores PATH.

    https://docs.python.org/3/library/os.html#os.add_dll_directory
    """
    places = [str(path) for path in libraries]
    line = f"import os; [os.add_dll_directory(p) for p in {places!a} if os.path.isdir(p)]\n"
    (_venv_site_packages(venv) / "_libraries.pth").write_text(line, "utf-8")


def _has_pip(python: str) -> bool:
    with contextlib.suppress(OSError):  # the step that starts it reports the error
        return process.capture([python, "-c", "import pip"], timeout=120)[0] == 0
    return True


def _see(python: str, venv: pathlib.Path) -> None:
    """Make the packages of ``python`` visible in the virtual environment, after its own."""
    code, text = process.capture([python, "-c", _QUERY], timeout=120)
    if code:
        raise RuntimeError(f"{python} does not report where its packages are: {text.strip()}")
    places = json.loads(text.strip().splitlines()[-1])
    (site,) = [venv / "Lib" / "site-packages"] if _WINDOWS else venv.glob("lib/*/site-packages")
    # addsitedir, not a plain path: it processes the .pth files there too (editable installs).
    lines = [f"import site; site.addsitedir({place!a})\n" for place in places]
    (site / "_given_environment.pth").write_text("".join(lines), "utf-8")
