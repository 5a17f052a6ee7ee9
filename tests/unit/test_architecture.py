"""What may import what, checked on the source."""

from __future__ import annotations

import ast
import functools
import graphlib
import pkgutil
import subprocess
from pathlib import Path

import pytest

from pipelines.core import errors
from pipelines.hosts.base import Host
from pipelines.hosts.kinds import KINDS
from pipelines.stages import hooks
from pipelines.stages.line import LINE

ROOT = Path(__file__).parents[2]
#: Packages, each of which may import those before it in this list.
ORDER = (
    *("core", "session", "record", "toolchain", "wheels", "diagnosis", "reports", "recipe"),
    *("hosts", "plan.config", "plan.prebuilt", "plan.provisioning", "plan.matrix", "doctor"),
    *("stages", "audit", "publish", "fleet", "scaffold", "cli", "__main__", "tasks"),
)
#: What features alone use.
OF_FEATURES = {
    *("pipelines.recipe.reproducible", "pipelines.plan.matrix.shares"),
    "pipelines.diagnosis.report",
}
#: On top of the stages, or joined by hooks.
FEATURES = {"plan.prebuilt", "audit", "publish", "fleet", "scaffold", "cli"}
#: Of no other's: shipped to hosts by value, and data.
APART = ("remote", "smoke", "examples", "recipes")


def modules() -> list[Path]:
    return [*sorted((ROOT / "pipelines").rglob("*.py")), ROOT / "tasks.py"]


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {dotted(path) for path in modules()}


@functools.cache
def imports(path: Path) -> set[str]:
    """Every module of ours that is imported anywhere in it, also within functions."""
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            for alias in node.names:
                full = f"{source}.{alias.name}"
                found.add(full if full in KNOWN else source)
    return {name for name in found if name.split(".")[0] == "pipelines"} - {"pipelines"}


def place(name: str) -> str:
    """``pipelines.hosts.base`` is of ``hosts``; of ``plan``, each package counts."""
    parts = name.split(".")[1:] or [name]
    return ".".join(parts[: 1 + (parts[0] == "plan")])


def below(folder: str) -> list[Path]:
    found = [path for path in modules() if dotted(path).startswith(f"pipelines.{folder}")]
    assert found
    return found


def test_what_is_shipped_stands_alone() -> None:
    for path in below("remote"):
        assert all(name.startswith("pipelines.remote") for name in imports(path)), path
        tree = ast.walk(ast.parse(path.read_text("utf-8")))
        absolute = [n for n in tree if isinstance(n, ast.ImportFrom) and not n.level]
        assert not [n for n in absolute if (n.module or "").startswith("pipelines")], path
    for path in below("smoke"):
        assert not imports(path), path


def test_errors_import_nothing() -> None:
    tree = ast.parse((ROOT / "pipelines/core/errors.py").read_text("utf-8"))
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(n) for n in found] == ["from __future__ import annotations"]


@functools.cache
def arrows() -> dict[tuple[str, str], list[str]]:
    """(package, other package) -> the imports from one into the other."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in modules():
        own = place(dotted(path))
        for name in imports(path):
            if place(name) != own and place(name) != "pipelines":
                found.setdefault((own, place(name)), []).append(f"{dotted(path)} -> {name}")
    return found


def test_imports_go_one_way() -> None:
    """Also from within functions."""
    known = [*APART, *ORDER]
    assert {place(name) for name in KNOWN} - {"pipelines", "plan"} == {*known}
    upwards = [
        line
        for (own, other), lines in arrows().items()
        if known.index(other) > known.index(own)
        for line in lines
    ]
    assert not upwards


def test_the_packages_are_few() -> None:
    """A picture that a reader can hold: packages, imports of one by another, and levels."""
    graph: dict[str, set[str]] = {}
    for own, other in arrows():
        above, below = own.partition(".")[0], other.partition(".")[0]
        if above not in (below, "tasks"):
            graph.setdefault(above, set()).add(below)
    levels: dict[str, int] = {}
    for name in graphlib.TopologicalSorter(graph).static_order():
        levels[name] = 1 + max((levels[below] for below in graph.get(name, ())), default=0)
    assert len(levels) < 25
    assert sum(map(len, graph.values())) < 100
    assert levels["cli"] <= 8


def test_few_names_are_those_of_several_modules() -> None:
    """Such as ``run``, ``close`` and what a protocol has: at most a third of all definitions."""
    modules_of: dict[str, list[Path]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                modules_of.setdefault(node.name, []).append(path)
    shared = [len(paths) for paths in modules_of.values() if len({*paths}) > 1]
    assert sum(shared) < sum(map(len, modules_of.values())) / 3


def test_no_file_imports_one_that_imports_it() -> None:
    """Also from within functions, and for types alone."""
    files = {dotted(path): path for path in modules()}
    graph = {name: imports(path) & files.keys() - {name} for name, path in files.items()}
    graphlib.TopologicalSorter(graph).prepare()


def test_the_stages_import_no_feature() -> None:
    """Features are in the table of hooks, and imported for the plans that ask for them."""
    joined = {name.partition(":")[0] for rows in hooks.FEATURES.values() for name, _ in rows}
    assert joined < KNOWN
    core = {"pipelines.stages.dryrun", "pipelines.stages.matrix"}
    core |= {f"pipelines.stages.{stage.name}" for stage in LINE}
    left = [*core]
    while left:
        found = imports(ROOT / f"{left.pop().replace('.', '/')}.py")
        assert not found & (joined | OF_FEATURES)
        assert not {place(name) for name in found} & FEATURES
        fresh = {name for name in found if place(name) == "stages"} - core
        left += fresh
        core |= fresh


def test_adapters_do_not_know_each_other() -> None:
    kinds = {path.parent.name for path in (ROOT / "pipelines/hosts").glob("*/config.py")}
    assert kinds == {"sandbox", "winrm", "local", "container", "vm"}
    for path in below("hosts."):
        own = dotted(path).split(".")[2]
        others = {name.split(".")[2] for name in imports(path) if place(name) == "hosts"}
        if own in kinds:
            assert not (others & kinds) - {own}, path
        elif own != "kinds":  # the table
            assert not others & kinds, path


def test_each_kind_names_its_adapter() -> None:
    for kind, config in KINDS.items():
        adapter = pkgutil.resolve_name(config.adapter)
        assert Host in adapter.__mro__, kind
        assert adapter.__module__ == config.__module__.replace(".config", ".host"), kind


def test_nobody_outside_of_hosts_asks_for_a_kind() -> None:
    common = {"base", "bounds", "live", "engine", "images", "gpus"}
    for path in modules():
        if place(dotted(path)) in ("hosts", "plan.config"):
            continue
        found = {name for name in imports(path) if place(name) == "hosts"}
        assert {name.split(".")[2] for name in found if name != "pipelines.hosts"} <= common, path


def test_exit_codes_differ() -> None:
    classes = [errors.PipelineError]
    for kind in classes:
        classes += kind.__subclasses__()
    ours = [kind for kind in classes if kind.__module__ == errors.__name__]
    codes = [kind.exit_code for kind in ours]
    assert len(ours) > 10
    assert len(set(codes)) == len(codes)
    assert len({kind.title for kind in ours}) == len(ours)
    assert not {0, errors.INTERRUPTED} & set(codes)


def test_no_index_is_wired_in() -> None:
    """Files are named by release; which index serves them is the user's set-up."""
    hosts = [".".join(("files", "pythonhosted")), ".".join(("pypi", "org/simple"))]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        text = path.read_text("utf-8", "replace") if path.is_file() else ""
        assert not [host for host in hosts if host in text], name
