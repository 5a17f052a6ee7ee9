"""Verdicts on compilers and tools, by the rules of ``compat.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.version import Version

from pipelines.doctor.model import Facts, Level, Order, Verdict
from pipelines.doctor.thresholds import Thresholds
from pipelines.plan.compat import Compat, Rule, broken, capability, known

AREA = "tool chain"
_PROVISION = "invoke provision"


def toolchain(facts: Facts, order: Order, limits: Thresholds, compat: Compat) -> Iterator[Verdict]:
    """Toolset, CUDA, what does not go together, ninja, git, sccache."""
    tools = facts.at("tools")
    cuda = tools.text("nvcc", "version") if known(tools.text("nvcc", "version")) else None
    toolsets = _toolsets(tools)
    common = {"cuda": cuda or order.cuda, "torch": order.torch or ""}
    if host := facts.text("facts", "python"):
        common["python"] = host
    best, verdict = _choose(tools, toolsets, common, order, compat)
    yield verdict
    yield _nvcc(tools, order, cuda)
    yield from _rules(compat, {**common, "msvc": best or ""}, order)
    yield from _programs(tools, order, limits)


def _toolsets(tools: Facts) -> list[str]:
    """MSVC toolsets of the host, the newest first."""
    found = {
        text
        for row in tools.rows("visual_studio") or []
        for toolset in row.rows("toolsets") or []
        if (text := toolset.text()) and known(text)
    }
    return sorted(found, key=Version, reverse=True)


def _choose(
    tools: Facts, toolsets: list[str], common: Mapping[str, str], order: Order, compat: Compat
) -> tuple[str | None, Verdict]:
    """The newest toolset that goes with CUDA, and the verdict on what there is."""
    name = "MSVC toolset"
    if not order.msvc:
        return None, Verdict(AREA, name, "unknown", "the sandbox compiles with a stand-in for MSVC")
    if tools.rows("visual_studio") is None:
        return None, Verdict(AREA, name, "unknown", tools.at("visual_studio").why)
    if not toolsets:
        wanted = "Build Tools with VC.Tools.x86.x64"
        return None, Verdict(AREA, name, "error", "none found", wanted, _PROVISION)
    fitting = [t for t in toolsets if not _stops(compat, {**common, "msvc": t})]
    if fitting:
        others = [t for t in toolsets if t != fitting[0]]
        found = fitting[0] + (f" (also {', '.join(others[:4])})" if others else "")
        return fitting[0], Verdict(AREA, name, "ok", found)
    first = _stops(compat, {**common, "msvc": toolsets[0]})[0]
    wanted = f"one that goes with CUDA {common['cuda']}"
    found = ", ".join(toolsets[:5])
    return toolsets[0], Verdict(AREA, name, "error", found, wanted, first.cure)


def _stops(compat: Compat, facts: Mapping[str, str]) -> list[Rule]:
    rules = (rule for rule in compat.rules if "msvc" in rule.when)
    return [rule for rule in broken(rules, facts) if rule.verdict == "error"]


def _nvcc(tools: Facts, order: Order, cuda: str | None) -> Verdict:
    name, wanted = "CUDA compiler", f"CUDA {order.cuda}"
    if cuda is None:
        why = "no version" if isinstance(tools.at("nvcc").tree, dict) else tools.at("nvcc").why
        if tools.at("nvcc").absent:
            return Verdict(AREA, name, "warning", "not there yet", wanted, _PROVISION)
        return Verdict(AREA, name, "unknown", why, wanted)
    if cuda.split(".")[:2] == order.cuda.split(".")[:2]:
        return Verdict(AREA, name, "ok", f"nvcc {cuda}")
    return Verdict(AREA, name, "warning", f"nvcc {cuda}", wanted, _PROVISION)


def _rules(compat: Compat, facts: Mapping[str, str], order: Order) -> Iterator[Verdict]:
    """What does not go together; rules on an architecture once, with those that break them."""
    rules = [rule for rule in compat.rules if "driver" not in rule.when]
    archs: dict[str, list[str]] = {}
    for arch in order.archs:
        for rule in broken(rules, {**facts, "arch": capability(arch)}):
            archs.setdefault(rule.id, []).append(arch)
    if not order.archs:
        archs = {rule.id: [] for rule in broken(rules, facts)}
    by_id = {rule.id: rule for rule in rules}
    for name, which in archs.items():
        rule = by_id[name]
        about = f"sm_{', sm_'.join(which)}: " if "arch" in rule.when else ""
        found = f"{about}{rule.says} {rule.source}"
        yield Verdict(AREA, rule.id, rule.verdict, found, cure=rule.cure)
    # A recipe without torch is asked nothing about it; everything else has to be known.
    asked = ("msvc", "cuda", "python", *(["torch"] if order.torch else []))
    unknown = [fact for fact in asked if not known(facts.get(fact))]
    name = "what goes with what"
    if unknown:
        found = f"not known: {', '.join(unknown)}; rules about it were not asked"
        yield Verdict(AREA, name, "unknown", found)
    elif not archs:
        yield Verdict(AREA, name, "ok", f"none of {len(rules)} rules is broken")


def _programs(tools: Facts, order: Order, limits: Thresholds) -> Iterator[Verdict]:
    """What makes builds work or fast; only ninja is needed, and only by what uses torch's build."""
    for name in ("ninja", "git", "sccache"):
        told = tools.at(name)
        version = told.text("version")
        number = known(version)
        needed = name == "ninja" and order.msvc
        wanted = f"{limits.ninja} or newer" if needed else ""
        if told.absent:
            level: Level = "warning" if needed else "unknown"
            yield Verdict(AREA, name, level, "not there", wanted, _PROVISION if needed else "")
        elif version is None or number is None:
            yield Verdict(AREA, name, "unknown", version or told.why, wanted)
        elif needed and number < Version(limits.ninja):
            found = f"{version}: it does not know long paths"
            yield Verdict(AREA, name, "warning", found, wanted, _PROVISION)
        else:
            yield Verdict(AREA, name, "ok", version)
