"""Runs for tests of reports, written through the real record: good, failed, killed, hostile."""

from __future__ import annotations

import json
import os
import random
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from records import rewrite

from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.evidence import Evidence
from pipelines.core.finding import Finding, Level
from pipelines.core.target import AXES, Target
from pipelines.diagnosis import diagnose_file
from pipelines.record.diagnosis import DiagnosisResult, HealedResult
from pipelines.record.manifest import SCHEMA
from pipelines.record.results import (
    AuditedFile,
    AuditResult,
    BuildResult,
    CollectResult,
    ErrorResult,
    FileResult,
    HostFacts,
    ProvisionResult,
    ResourceResult,
    RunFacts,
    SmokeResult,
    StageRecord,
    StageResult,
    State,
    Timeline,
    UsedTool,
)
from pipelines.record.run import Run
from pipelines.record.seal import load_or_create_sealer
from pipelines.reports.junit import write_junit_file
from pipelines.reports.model import Case, Suite

EPOCH = 1_760_000_000.0
DIMS = (32, 64, 96, 128, 192, 256)
#: Other implementations, and how much longer they take.
RIVALS = {"math": 22.1, "mem_efficient": 1.71, "flash": 0.98}
#: What a host may say to get into a page, a terminal, a table or the runner.
HOSTILE = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "\x1b[31mred\x1b]0;title\x07\x00\x08",
    "\u202egnp.exe",
    "| a | b |\n|-|-|\n```\n::error::no\n##[error]no",
    "half \ud800 of a pair \ufffe",
    "javascript:alert(1)",
    "[x](javascript:alert(1)) @everyone #1",
    "a" * 5000,
)


#: As a stage may keep it: the record holds no half of a pair.
SAID = tuple(text.replace("\ud800", "\ufffd") for text in HOSTILE)
WHEEL = "flash_attn.whl"


def facts(**changes: Any) -> RunFacts:
    """Axes of the target and fields of the facts, by their names."""
    axes: dict[str, Any] = {
        "host": "lab",
        "recipe": "flash-attn",
        "version": "2.8.3",
        "python": "3.12",
        "torch": "2.8",
        "cuda": "12.8",
        "archs": "80;86;89;90",
    }
    axes |= {name: changes.pop(name) for name in AXES if name in changes}
    axes["archs"] = parse_arch_list(axes["archs"])
    told: dict[str, Any] = {"evidence": Evidence.SIMULATED, "publishable": True}
    return RunFacts(target=Target(**axes), **(told | changes))


def timeline(units: int = 73, jobs: int = 6, seed: int = 1, slower: float = 1.0) -> Timeline:
    """``jobs`` compilers that take the next unit when they are done; samples every 5 s."""
    dice = random.Random(seed)
    free = [0.0] * jobs
    rows = []
    for n in range(units):
        lane = free.index(min(free))
        kind = ("fwd", "bwd", "fwd_split")[n % 3]
        took = round(dice.uniform(20, 70) * (2.2 if kind == "bwd" else 1), 2)
        name = f"flash_{kind}_hdim{DIMS[n % 6]}_{('fp16', 'bf16')[n % 2]}_causal_sm80.{n}.obj"
        begin, end = round(free[lane], 2), round(free[lane] + took, 2)
        rows.append((name, begin * slower, end * slower))
        free[lane] += took + 0.2
    end = max(free)
    samples = [
        (t, round(dice.uniform(0.8, 1.0) if t < end * 0.9 else 0.3, 3), dice.uniform(9e9, 24e9))
        for t in [5.0 * n for n in range(int(end / 5) + 1)]
    ]
    return Timeline(units=tuple(rows), samples=tuple(samples), cpus=8, memory=34_359_738_368)


def error(message: str, kind: str = "BuildError", hint: str = "") -> ErrorResult:
    return ErrorResult(kind=kind, title=kind, message=message, hint=hint)


def stage(  # noqa: PLR0917 - as the table has its columns
    run: Run,
    name: str,
    state: State = "passed",
    seconds: float | None = 5.0,
    result: StageResult | None = None,
    failed: ErrorResult | None = None,
) -> None:
    run.put_stage(
        StageRecord(
            name=name,
            state=state,
            started=EPOCH + 60 * len(run.stages()),
            seconds=seconds,
            error=failed,
            result=result,
        )
    )


def row(  # noqa: PLR0917 - as the table has its columns
    run: Run,
    name: Any,
    state: Any = "passed",
    started: Any = 1.0,
    seconds: Any = None,
    error: Any = None,
    result: Any = None,
) -> None:
    """A row as another program, or another version, may have left it."""
    columns = (name, state, started, seconds, error, result)
    rewrite(
        run,
        "INSERT OR REPLACE INTO stages VALUES (?, ?, ?, ?, ?, ?)",
        columns,
        load_or_create_sealer(),
    )


def built(**changes: Any) -> BuildResult:
    told: dict[str, Any] = {
        "job": "0123456789ab",
        "directory": r"C:\b\0123456789ab",
        "jobs": 6,
        "timeline": timeline(),
        "environment": {"MAX_JOBS": "6", "TORCH_CUDA_ARCH_LIST": "8.0;9.0"},
        "tail": ("done",),
    }
    return BuildResult(**(told | changes))


def resource(name: str, **changes: Any) -> ResourceResult:
    told: dict[str, Any] = {"kind": "variable", "wanted": "1", "found": "0", "why": "w", "ok": True}
    return ResourceResult(id=name, **(told | {"changed": True, "seconds": 1.0} | changes))


def used(version: str) -> UsedTool:
    return UsedTool(version=version, sha256="cd" * 32)


def check(title: str, level: Level, actual: str, expected: str = "", **more: Any) -> Finding:
    """A finding of the audit, whose id is its title in lower case."""
    id_ = title.lower().replace(" ", "-")
    told = {"id": id_, "title": title, "level": level, "actual": actual, "expected": expected}
    return Finding.model_validate(told | more)


def audited(*checks: Finding, file: str = WHEEL, sha256: str = "ab" * 32) -> AuditResult:
    return AuditResult(files=(AuditedFile(file=file, sha256=sha256, checks=checks),))


def audit(
    run: Run, archs: str = "80 86 89 90", *, ok: bool = True, state: State = "passed"
) -> None:
    checks = (
        check("tags", "ok", "win_amd64", "win_amd64"),
        check("SASS", "ok" if ok else "error", archs, "80 86 89 90", values=tuple(archs.split())),
    )
    home = [file_row(run, path) for path in run.path.glob("wheels/*.whl")]
    about = {"file": Path(home[0].path).name, "sha256": home[0].sha256} if home else {}
    stage(run, "audit", state, 0.4, audited(*checks, **about))


def smoke_cases(slower: float = 1.0) -> list[Case]:
    """Numerics, speed and memory of every head dimension."""
    cases = []
    for dim in DIMS:
        cases.append(
            Case(
                f"test_forward[{dim}]",
                "test_numerics",
                0.4,
                properties={"error_of_tolerance": "0.31"},
            )
        )
    for dim in DIMS[1:4:2]:
        for backend, factor in RIVALS.items():
            shape, ms = f"forward.hdim{dim}", 0.11 * dim / 32 * slower
            speed = {
                "shape": shape,
                "milliseconds": f"{ms:.4f}",
                "tflops": f"{12.3 / ms:.1f}",
                f"milliseconds_{backend}": f"{ms * factor:.4f}",
                f"speed.{shape}.over_{backend}": f"{factor:.2f}",
            }
            if backend == "flash":
                speed[f"memory.hdim{dim}.peak_mib"] = f"{dim * 3.5}"
            name = f"test_speed[{dim}-forward-{backend}]"
            cases.append(Case(name, "test_speed", 1.2, properties=speed))
    cases.append(Case("test_ptx", "test_archs", 0.0, "skipped", "sm_90 runs a cubin of its own"))
    return cases


def smoke(run: Run, cases: list[Case], state: State = "passed", **has: str) -> None:
    """The suite's report as pytest writes one, and the stage that read it."""
    properties = {"gpu0_name": "NVIDIA L4", "gpu0_driver": "580.1", "cuda_driver": "13.0"}
    properties |= {
        f"has.{kind}.hdim{dim}": "yes" for kind in ("forward", "backward") for dim in DIMS
    }
    properties |= {f"has.{name}": said for name, said in has.items()}
    write_junit_file(run.path / "smoke.xml", [Suite("pytest", tuple(cases), properties)])
    outcomes: dict[str, int] = {}
    for case in cases:
        outcomes[case.outcome] = outcomes.get(case.outcome, 0) + 1
    result = SmokeResult(
        wheel=WHEEL, sha256="ab" * 32, outcomes=outcomes, tail=("..F",), exit=0, step="pytest"
    )
    failed = error("1 of 13 smoke cases failed", "SmokeError", "See junit.xml")
    stage(run, "test", state, 31.0, result, failed if state == "failed" else None)


def wheel(run: Run, size: int = 4000) -> None:
    folder = run.path / "wheels"
    folder.mkdir(exist_ok=True)
    cell = run.facts().target.python.replace(".", "")
    path = folder / f"flash_attn-2.8.3-cp{cell}-win_amd64.whl"
    path.write_bytes(bytes(size))
    stage(run, "collect", "passed", 0.2, CollectResult(files=(file_row(run, path),)))


def provisioned(run: Run) -> None:
    stage(run, "provision", "passed", 41.0, ProvisionResult(resources=(resource("TEMP"),)))


def file_row(run: Run, path: Path) -> FileResult:
    return FileResult(
        path=path.relative_to(run.path).as_posix(),
        size=path.stat().st_size,
        sha256=sha256(path.read_bytes()).hexdigest(),
    )


def manifest(run: Run) -> None:
    rows = [file_row(run, path).model_dump() for path in sorted(run.path.glob("wheels/*.whl"))]
    told = {"schema": SCHEMA, "written": "2035-01-01T00:00:00+00:00", "files": rows}
    (run.path / "manifest.json").write_text(json.dumps(told))


def good(out: Path, *, slower: float = 1.0, size: int = 4000, seed: int = 1, **changes: Any) -> Run:
    run = Run.create(out, facts(**changes))
    run.note(
        host=HostFacts(cpus=8, windows="10.0.20348"),
        tools={"nvidia-cuda-nvcc": used("12.8.93")},
        job="0123456789ab",
        source_sha256="ab" * 32,
    )
    provisioned(run)
    (run.path / "build.log").write_text("".join(f"[{n}/73] unit {n}\n" for n in range(1, 74)))
    told = built(timeline=timeline(seed=seed, slower=slower))
    stage(run, "build", "passed", 900.0 * slower, told)
    wheel(run, size)
    audit(run)
    smoke(run, smoke_cases(slower), alibi="yes", softcap="absent")
    return run


def failed_build(out: Path, **changes: Any) -> Run:
    """A build whose log says why, with the diagnosis as the build stage leaves it."""
    run = Run.create(out, facts(**changes))
    provisioned(run)
    log = [f"[{n}/73] nvcc -c flash_{n}.cu" for n in range(1, 60)]
    log.append("cudafe++ died with status 0xC0000005 (ACCESS_VIOLATION)")
    log += ["ninja: build stopped: subcommand failed.", "error: command failed"] * 3
    (run.path / "build.log").write_text("\n".join(log) + "\n")
    found = diagnose_file(run.path / "build.log")
    assert found is not None
    kept = DiagnosisResult(
        id=found.signature.id,
        is_cause=found.is_cause,
        cause=found.signature.cause,
        hint=found.signature.hint,
        links=found.signature.evidence,
        line=found.cause.line,
    )
    result = built(
        tail=tuple(log[-60:]),
        timeline=timeline(20),
        diagnosis=kept,
        healed=(HealedResult(what="3 jobs", why="out of memory (oom-edg)", line=60),),
    )
    said = f"the build exited with code 1: {kept.summary}"
    stage(run, "build", "failed", 260.0, result, error(said, hint="invoke build goes on"))
    return run


def failed_smoke(out: Path, **changes: Any) -> Run:
    run = good(out, **changes)
    trace = "test_gpu.py:59: in test_forward\n    assert close\nE   AssertionError: 0.5 > 0.01"
    bad = Case("test_backward[64]", "test_numerics", 0.1, "failed", "AssertionError: 0.5", trace)
    smoke(run, [*smoke_cases(), bad], "failed", alibi="no")
    return run


def killed(out: Path, **changes: Any) -> Run:
    """A controller that was killed in its build."""
    run = Run.create(out, facts(**changes))
    provisioned(run)
    stage(run, "build", "running", None)
    return run


def hostile(out: Path) -> Run:
    """Every text that a host, or a record from elsewhere, can say is meant to do harm."""
    said, every = " ".join(SAID), dict.fromkeys(SAID, " ".join(SAID))
    run = Run.create(out, facts())
    run.note(
        host={"platform": " ".join(HOSTILE), "machine": said, "python": said, "windows": said},
        tools={name: used(said) for name, said in every.items()},
        job=said,
        origin=said,
        source_sha256=said,
        created=said,
    )
    bad = error(said, said, said)
    row = resource(said, wanted=said, found=said, ok=False, values=every, reboot=said)
    stage(run, "provision", result=ProvisionResult(resources=(row,), tail=SAID))
    (run.path / "build.log").write_bytes(
        " ".join(HOSTILE).encode("utf-8", "surrogatepass") + b"\n" + b"x" * 200_000
    )
    units = tuple((text, 0.0, 5.0) for text in SAID)
    result = built(
        job=said,
        directory=said,
        environment=every,
        tail=SAID,
        lost=(said,),
        healed=(HealedResult(what=said, why=said, line=1),),
        timeline=Timeline(units=units, samples=((0, 1, 2),)),
        cache=every,
        diagnosis=DiagnosisResult(
            id=said, is_cause=True, cause=HOSTILE[0], hint=said, links=SAID, line=1
        ),
    )
    stage(run, "build", "failed", 5.0, result, bad)
    found = check(said, "error", said, said, hint=said, values=SAID)
    stage(run, "audit", result=audited(found, file=said))
    cases = "".join(
        f"<testcase classname={_attribute(text)} name={_attribute(text)} time='1'>"
        f"<properties><property name={_attribute('has.' + text)} value={_attribute(text)}/>"
        f"<property name={_attribute('speed.' + text + '.x_ms')} value='1.5'/></properties>"
        f"<failure message={_attribute(text)}>{_attribute(text)[1:-1]}</failure></testcase>"
        for text in HOSTILE
    )
    document = f"<testsuites><testsuite name={_attribute(said)}>{cases}</testsuite></testsuites>"
    (run.path / "smoke.xml").write_text(document, "utf-8")
    told = SmokeResult(wheel=said, sha256=said, outcomes={said: len(HOSTILE)}, tail=SAID)
    stage(run, "test", "failed", 5.0, told, bad)
    markup = "<b>" if os.name == "posix" else "&lt;"
    (run.path / f"a {markup} file.txt").write_text("x")
    return run


def _attribute(text: str) -> str:
    kept = "".join(c for c in text if c == "\n" or (c >= " " and not "\ud800" <= c <= "\udfff"))
    return quoteattr(kept.replace("\ufffe", ""))


def matrix(out: Path, count: int = 100) -> list[Run]:
    """Cells of a matrix: most are good, every 15th fails to build, some fail in other ways."""
    made = []
    cells = [
        (python, torch, cuda, archs)
        for torch in ("2.6", "2.7", "2.8", "2.9", "2.10")
        for cuda in ("12.6", "12.8")
        for archs in ("80", "80;86;89;90", "90+PTX")
        for python in ("3.10", "3.11", "3.12", "3.13")
    ]
    for n, (python, torch, cuda, archs) in enumerate(cells[:count]):
        cell: dict[str, Any] = {"python": python, "torch": torch, "cuda": cuda, "archs": archs}
        if n % 15 == 7:
            run = failed_build(out, **cell)
        elif n % 31 == 9:
            run = failed_smoke(out, seed=n, **cell)
        elif n % 41 == 11:
            run = killed(out, **cell)
        else:
            run = good(out, seed=n, **cell)
        manifest(run)
        run.close()
        made.append(run)
    return made
