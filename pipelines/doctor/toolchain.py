"""Findings on compilers and tools, by the rules of ``compat.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from packaging.version import Version

from pipelines.core.architectures.archs import compute_capability
from pipelines.core.finding import Finding, Level
from pipelines.core.versions import free_threaded, parse_release, python_release
from pipelines.doctor.model import Facts, Purpose, Setting, make_finding
from pipelines.plan.matrix.compat import Compat, Rule, applicable_rules
from pipelines.plan.provisioning.thresholds import Thresholds
from pipelines.remote.resources import distributions

AREA = "tool chain"
#: Where Build Tools come from, on the host itself.
SERVERS = ("aka.ms", "download.visualstudio.microsoft.com")
_OFFLINE = (
    "give it a way there (behind a proxy of SYSTEM all may be well), or install Build Tools from "
    "a layout into C:\\VS: docs/hosts/windows-host.md"
)
_PROVISION = "invoke provision"
_BUILD_TOOLS = (
    "winget install Microsoft.VisualStudio.2022.BuildTools --override "
    '"--wait --passive --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
)
_SHOWN = {"cuda": "CUDA", "python": "Python", "msvc": "MSVC"}


def judge(facts: Facts, purpose: Purpose, limits: Thresholds, compat: Compat) -> Iterator[Finding]:
    """Toolset, CUDA, what does not go together, ninja, git, sccache."""
    tools, python = facts.at("tools"), purpose.target.python
    nvcc = tools.text("nvcc", "version")
    same = parse_release(nvcc) and str(nvcc).split(".")[:2] == purpose.target.cuda.split(".")[:2]
    common = {
        # Another release is not the one that will build: provisioning brings the one ordered.
        "cuda": str(nvcc) if same else purpose.target.cuda,
        "torch": purpose.target.torch,
        "python": facts.text("facts", "python") or "",
        "windows": facts.text("facts", "windows", "version") or "",
        "freethreaded": python_release(python) if free_threaded(python) else "",
    }
    best, verdict = _choose(tools, _installed_msvc_toolsets(tools), common, purpose, compat)
    yield verdict
    if unreached := [text for row in tools.rows("unreached") or [] if (text := row.text())]:
        found = f"no connection to {', '.join(unreached)}"
        yield make_finding(
            AREA, "Build Tools", "warning", found, "2 to 3 GB of Microsoft's", _OFFLINE
        )
    yield _check_cuda_compiler(tools, purpose, nvcc)
    yield from _check_compat_rules(compat, {**common, "msvc": best or ""}, purpose, stopped=verdict)
    yield from _check_build_programs(tools, purpose, limits)
    yield from _check_unpacked_tools(facts.at("unpacked"))
    for setting in purpose.of("commands"):
        yield _commands(facts, setting)
    for setting in purpose.of("distributions"):
        yield _check_python_packages(facts, setting)


def _installed_msvc_toolsets(tools: Facts) -> list[str]:
    """MSVC toolsets of the host, the newest first."""
    found = {
        text
        for row in tools.rows("visual_studio") or []
        for toolset in row.rows("toolsets") or []
        if (text := toolset.text()) and parse_release(text)
    }
    return sorted(found, key=Version, reverse=True)


def _choose(
    tools: Facts, toolsets: list[str], common: Mapping[str, str], purpose: Purpose, compat: Compat
) -> tuple[str | None, Finding]:
    """The newest toolset that goes with CUDA, and the verdict on what there is."""
    name = "MSVC toolset"
    if not purpose.msvc:
        return None, make_finding(AREA, name, "ok", "a stub for MSVC: no rule applies to it")
    if tools.rows("visual_studio") is None:
        why = tools.at("visual_studio").why
        return purpose.toolset, make_finding(AREA, name, "unknown", why)
    if not toolsets:
        wanted = f"Build Tools with {purpose.toolset}" if purpose.toolset else "Build Tools"
        if purpose.existing:
            return None, make_finding(AREA, name, "error", "none", wanted, command=_BUILD_TOOLS)
        found = "not there yet"
        return purpose.toolset, make_finding(AREA, name, "warning", found, wanted, _PROVISION)
    fitting = [t for t in toolsets if not _stops(compat, {**common, "msvc": t})]
    if fitting:
        others = [t for t in toolsets if t != fitting[0]]
        found = fitting[0] + (f" (also {', '.join(others[:4])})" if others else "")
        return fitting[0], make_finding(AREA, name, "ok", found)
    first = _stops(compat, {**common, "msvc": toolsets[0]})[0]
    found = f"{', '.join(toolsets[:5])}: {first.says.removesuffix('.')}"
    wanted = f"one that goes with CUDA {common['cuda']}"
    verdict = make_finding(AREA, name, "error", found, wanted, first.hint, source=first.source)
    return toolsets[0], verdict


def _stops(compat: Compat, facts: Mapping[str, str]) -> list[Rule]:
    rules = (rule for rule in compat.rules if "msvc" in rule.when)
    return [rule for rule in applicable_rules(rules, facts) if rule.level == "error"]


def _check_cuda_compiler(tools: Facts, purpose: Purpose, version: str | None) -> Finding:
    name, wanted = "CUDA compiler", f"CUDA {purpose.target.cuda}"
    answer = tools.at("nvcc")
    hint = "" if purpose.refused else _PROVISION  # which is refused as well
    if answer.absent:
        return make_finding(AREA, name, "warning", "not there yet", wanted, hint)
    if version is None or not parse_release(version):
        why = "it reports no version" if isinstance(answer.tree, dict) else answer.why
        return make_finding(AREA, name, "unknown", why, wanted)
    if version.split(".")[:2] == purpose.target.cuda.split(".")[:2]:
        return make_finding(AREA, name, "ok", f"nvcc {version}")
    return make_finding(AREA, name, "warning", f"nvcc {version}", wanted, hint)


def _check_compat_rules(
    compat: Compat, facts: Mapping[str, str], purpose: Purpose, *, stopped: Finding
) -> Iterator[Finding]:
    """What does not go together; rules on an architecture once, with those that break them."""
    rules = [rule for rule in compat.rules if "driver" not in rule.when]
    wanted = purpose.target.archs.sass
    hit: dict[str, list[str]] = {rule.id: [] for rule in applicable_rules(rules, facts)}
    for arch in wanted:
        for rule in applicable_rules(rules, {**facts, "arch": compute_capability(arch)}):
            if "arch" in rule.when:
                hit.setdefault(rule.id, []).append(arch)
    for rule in rules:
        if rule.id not in hit:
            continue
        if stopped.level == "error" and rule.level == "error" and "msvc" in rule.when:
            continue  # the toolset's own verdict says so
        about = f"sm_{', sm_'.join(hit[rule.id])}: " if hit[rule.id] else ""
        found = f"{about}{rule.says.removesuffix('.')}"
        yield rule.finding(actual=found, subject=AREA)
    # A recipe without torch, or a host without MSVC, is asked nothing about it.
    asked = [
        "cuda",
        "python",
        *(["msvc"] if purpose.msvc else []),
        *(["torch"] if purpose.target.torch else []),
    ]
    unknown = [fact for fact in asked if not parse_release(facts.get(fact))]
    if unknown:
        found = f"not known: {', '.join(unknown)}; rules about it were not asked"
        yield make_finding(AREA, "what goes with what", "unknown", found)
    elif not hit:
        about = ", ".join(f"{_SHOWN.get(fact, fact)} {facts[fact]}" for fact in asked)
        yield make_finding(AREA, "what goes with what", "ok", f"{about}: no rule against it")


def _check_build_programs(tools: Facts, purpose: Purpose, limits: Thresholds) -> Iterator[Finding]:
    """What makes builds work or fast; not every host is given them."""
    given = purpose.msvc and not purpose.existing
    for name in ("ninja", "git", "sccache"):
        answer = tools.at(name)
        version = answer.text("version")
        number = parse_release(version)
        wanted = f"{limits.ninja} or newer" if name == "ninja" else ""
        level: Level = "warning"
        if answer.absent and given:
            yield make_finding(AREA, name, level, "not there yet", wanted, _PROVISION)
        elif answer.absent:
            continue
        elif version is None or number is None:
            why = "it reports no version" if isinstance(answer.tree, dict) else answer.why
            yield make_finding(AREA, name, "unknown", version or why, wanted)
        elif wanted and number < Version(limits.ninja):
            found = f"{version}: it does not know long paths"
            yield make_finding(AREA, name, level, found, wanted, _PROVISION)
        else:
            yield make_finding(AREA, name, "ok", version)


def _check_unpacked_tools(answer: Facts) -> Iterator[Finding]:
    """Whether the files of the tools are as provisioning has unpacked them."""
    name, wanted = "unpacked tools", "every file as it was unpacked"
    rows = answer.rows()
    if rows is None:
        if answer.failed:
            yield make_finding(AREA, name, "unknown", answer.why, wanted)
        return
    # Where nothing is unpacked yet, the verdict on the program itself says so.
    there = [row for row in rows if row.at("values").tree or row.text("error")]
    wrong = [verdict for row in there if (verdict := _drifted(row, name, wanted))]
    yield from wrong
    if there and not wrong:
        yield make_finding(AREA, name, "ok", f"{len(there)} directories, {wanted}")


def _drifted(row: Facts, name: str, wanted: str) -> Finding | None:
    found, ok = f"{row.text('id')}: {row.text('found') or row.why}", row.flag("ok")
    if ok is None or row.text("error"):
        return make_finding(AREA, name, "unknown", found, wanted)
    if not ok:
        return make_finding(AREA, name, "warning", found, wanted, _PROVISION)
    if row.text("doubt"):
        found += f" ({_PROVISION} --repair does)"
        return make_finding(AREA, name, "unknown", found, wanted)
    return None


def _check_python_packages(facts: Facts, setting: Setting) -> Finding:
    """The packages of an environment that is used as it is, as provisioning judges them."""
    name, wanted = "Python packages", setting.wanted
    answer = facts.checked(setting)
    values = answer.at("values")
    if answer.flag("ok") is None or not isinstance(values.tree, Mapping):
        return make_finding(AREA, name, "unknown", answer.why, wanted)
    known_names = ["Python", *setting.spec["names"], "torch's CUDA"]
    have = {n: version for n in known_names if (version := values.text(n))}
    if odd := [n for n, version in have.items() if parse_release(version) is None]:
        return make_finding(AREA, name, "unknown", f"it reports no version of {odd[0]}", wanted)
    wrong, hint = distributions.judge(cast("distributions.Spec", setting.spec), have)
    if wrong:
        return make_finding(AREA, name, "error", wrong, wanted, hint)
    if not answer.flag("ok"):  # it sees something there that its words do not show
        return make_finding(AREA, name, "unknown", answer.text("found") or answer.why, wanted)
    return make_finding(
        AREA, name, "ok", ", ".join(f"{n} {version}" for n, version in have.items())
    )


def _commands(facts: Facts, setting: Setting) -> Finding:
    """What the recipe's build starts: without it no build is tried."""
    name, names = "programs of the build", setting.spec["names"]
    wanted = ", ".join(names)
    answer = facts.checked(setting)
    there = {n: path for n in names if (path := answer.text("values", n))}
    if answer.flag("ok") is None:
        return make_finding(AREA, name, "unknown", answer.why, wanted)
    missing = ", ".join(n for n in names if n not in there)
    if not missing:
        return make_finding(AREA, name, "ok", "; ".join(there.values()))
    if setting.provisioned:
        return make_finding(AREA, name, "warning", f"not there yet: {missing}", wanted, _PROVISION)
    hint = f"install {missing} on that machine, where PATH has it"
    return make_finding(AREA, name, "error", f"not there: {missing}", wanted, hint)
