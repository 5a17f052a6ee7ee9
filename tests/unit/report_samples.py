"""Runs for tests of reports, written through the real record: good, failed, killed, hostile."""

from __future__ import annotations

import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from pipelines.reports.junit import write
from pipelines.reports.model import Case, Suite
from pipelines.run import Run, StageRecord

EPOCH = 1_760_000_000.0
DIMS = (32, 64, 96, 128, 192, 256)
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


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "host": "lab",
        "recipe": "flash-attn",
        "version": "2.8.3",
        "python": "3.12",
        "torch": "2.8",
        "cuda": "12.8",
        "archs": "80;86;89;90",
        "jobs": None,
        "evidence": "F",
        "publishable": True,
        **changes,
    }


def timeline(units: int = 73, jobs: int = 6, seed: int = 1, **changes: Any) -> dict[str, Any]:
    """``jobs`` compilers that take the next unit when they are done; samples every 5 s."""
    dice = random.Random(seed)
    free = [0.0] * jobs
    rows = []
    for n in range(units):
        lane = free.index(min(free))
        kind = ("fwd", "bwd", "fwd_split")[n % 3]
        took = round(dice.uniform(20, 70) * (2.2 if kind == "bwd" else 1), 2)
        name = f"flash_{kind}_hdim{DIMS[n % 6]}_{('fp16', 'bf16')[n % 2]}_causal_sm80.{n}.obj"
        rows.append([name, round(free[lane], 2), round(free[lane] + took, 2)])
        free[lane] += took + 0.2
    end = max(free)
    samples = [
        [t, round(dice.uniform(0.8, 1.0) if t < end * 0.9 else 0.3, 3), dice.uniform(9e9, 24e9)]
        for t in [5.0 * n for n in range(int(end / 5) + 1)]
    ]
    return {"units": rows, "samples": samples, "cpus": 8, "memory": 34_359_738_368, **changes}


def stage(
    run: Run, name: str, state: Any = "passed", seconds: float | None = 5.0, **d: Any
) -> None:
    run.put_stage(StageRecord(name, state, EPOCH + 60 * len(run.stages()), seconds, d))


def audit(run: Run, archs: str = "80 86 89 90", *, ok: bool = True, state: Any = "passed") -> None:
    rows = [
        {"name": "tags", "ok": True, "found": "win_amd64", "wanted": "win_amd64", "detail": ""},
        {"name": "SASS", "ok": ok, "found": archs, "wanted": "80 86 89 90", "detail": ""},
    ]
    wheels = [{"wheel": "flash_attn.whl", "version": "2.8.3", "checks": rows}]
    stage(run, "audit", state, 0.4, wheels=wheels)


def smoke_cases(slower: float = 1.0) -> list[Case]:
    """Numerics, speed and memory of every head dimension."""
    cases = []
    for dim in DIMS:
        shape = f"hdim{dim}-s1024"
        cases.append(
            Case(
                f"test_forward[{dim}]",
                "test_numerics",
                0.4,
                properties={"error_of_tolerance": "0.31"},
            )
        )
        ms = 0.11 * dim / 32 * slower
        speed = {
            f"speed.{shape}.flash_attn_ms": f"{ms:.4f}",
            f"speed.{shape}.sdpa_math_ms": f"{ms * 4.1:.4f}",
            f"speed.{shape}.sdpa_flash_ms": f"{ms * 1.05:.4f}",
            f"ratio.{shape}.against_math": "4.1",
            f"ratio.{shape}.against_flash": "1.05",
            f"memory.{shape}.peak_mib": f"{dim * 3.5}",
        }
        cases.append(Case(f"test_speed[{dim}]", "test_speed", 1.2, properties=speed))
    cases.append(Case("test_ptx", "test_archs", 0.0, "skipped", "sm_90 runs a cubin of its own"))
    return cases


def smoke(run: Run, cases: list[Case], state: Any = "passed", **has: str) -> None:
    """The suite's report as pytest writes one, and the stage that read it."""
    properties = {"gpu0_name": "NVIDIA L4", "gpu0_driver": "580.1", "cuda_driver": "13.0"}
    properties |= {
        f"has.{kind}.hdim{dim}": "yes" for kind in ("forward", "backward") for dim in DIMS
    }
    properties |= {f"has.{name}": said for name, said in has.items()}
    write(run.path / "smoke.xml", [Suite("pytest", tuple(cases), properties)])
    outcomes: dict[str, int] = {}
    for case in cases:
        outcomes[case.outcome] = outcomes.get(case.outcome, 0) + 1
    detail = {"outcomes": outcomes, "tail": ["..F"], "exit": 0}
    if state == "failed":
        detail |= {
            "error": "1 of 13 smoke cases failed",
            "advice": "See junit.xml",
            "kind": "smoke test",
        }
    stage(run, "test", state, 31.0, **detail)


def wheel(run: Run, size: int = 4000) -> None:
    folder = run.path / "wheels"
    folder.mkdir(exist_ok=True)
    name = f"flash_attn-2.8.3-cp{str(run.facts()['python']).replace('.', '')}-win_amd64.whl"
    (folder / name).write_bytes(bytes(size))
    stage(run, "collect", seconds=0.2, files=[f"wheels/{name}"])


def provisioned(run: Run) -> None:
    row = {"id": "TEMP", "wanted": "1", "found": "0", "why": "w", "changed": True, "ok": True}
    stage(run, "provision", seconds=41.0, resources=[row | {"seconds": 1.0}])


def manifest(run: Run) -> None:
    rows = [
        {
            "path": path.relative_to(run.path).as_posix(),
            "size": path.stat().st_size,
            "sha256": sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(run.path.glob("wheels/*.whl"))
    ]
    told = {"schema": 1, "written": "2035-01-01T00:00:00+00:00", "files": rows}
    (run.path / "manifest.json").write_text(json.dumps(told))


def good(out: Path, *, slower: float = 1.0, size: int = 4000, seed: int = 1, **changes: Any) -> Run:
    run = Run.create(out, f"flash-attn-{changes.pop('label', 'cell')}", facts(**changes))
    run.note(host_facts={"cpus": 8, "windows": "10.0.20348"}, tools={"nvidia-cuda-nvcc": "12.8.93"})
    run.note(job="0123456789ab", source_sha256="ab" * 32)
    provisioned(run)
    (run.path / "build.log").write_text("".join(f"[{n}/73] unit {n}\n" for n in range(1, 74)))
    told = timeline(seed=seed)
    for row in told["units"]:
        row[1:] = [row[1] * slower, row[2] * slower]
    environment = {"MAX_JOBS": "6", "TORCH_CUDA_ARCH_LIST": "8.0;9.0"}
    stage(
        run,
        "build",
        seconds=900.0 * slower,
        jobs=6,
        timeline=told,
        environment=environment,
        tail=["done"],
        healed=[],
        lost=[],
    )
    wheel(run, size)
    audit(run)
    smoke(run, smoke_cases(slower), alibi="yes", softcap="absent")
    return run


def failed_build(out: Path, **changes: Any) -> Run:
    """A build whose log says why, with the diagnosis as the build stage leaves it."""
    run = Run.create(out, f"flash-attn-{changes.pop('label', 'cell')}", facts(**changes))
    provisioned(run)
    log = [f"[{n}/73] nvcc -c flash_{n}.cu" for n in range(1, 60)]
    log.append("cudafe++ died with status 0xC0000005 (ACCESS_VIOLATION)")
    log += ["ninja: build stopped: subcommand failed.", "error: command failed"] * 3
    (run.path / "build.log").write_text("\n".join(log) + "\n")
    from pipelines.diagnosis import diagnose_file
    from pipelines.diagnosis.report import summary

    found = diagnose_file(run.path / "build.log")
    assert found is not None
    stage(
        run,
        "build",
        "failed",
        260.0,
        jobs=6,
        tail=log[-60:],
        timeline=timeline(20),
        error=f"the build left with exit code 1: {summary(found)}",
        advice="invoke build goes on",
        kind="build",
        diagnosis=summary(found),
        healed=["healed 1 of 1: 3 jobs - line 60"],
    )
    return run


def failed_smoke(out: Path, **changes: Any) -> Run:
    run = good(out, **changes)
    trace = "test_gpu.py:59: in test_forward\n    assert close\nE   AssertionError: 0.5 > 0.01"
    bad = Case("test_backward[64]", "test_numerics", 0.1, "failed", "AssertionError: 0.5", trace)
    smoke(run, [*smoke_cases(), bad], "failed", alibi="no")
    return run


def killed(out: Path, **changes: Any) -> Run:
    """A controller that was killed in its build."""
    run = Run.create(out, f"flash-attn-{changes.pop('label', 'cell')}", facts(**changes))
    provisioned(run)
    stage(run, "build", "running", None)
    return run


def hostile(out: Path) -> Run:
    """Every text that a host, or a record from elsewhere, can say is meant to do harm."""
    said = " ".join(HOSTILE)
    run = Run.create(out, "hostile", dict.fromkeys(facts(), said))
    run.note(
        host_facts={text: text for text in HOSTILE}, tools=dict.fromkeys(HOSTILE, said), job=said
    )
    row = {"id": said, "wanted": said, "found": said, "changed": True, "ok": False, "seconds": 1.0}
    stage(run, "provision", resources=[row])
    units = [[text, 0.0, 5.0] for text in HOSTILE]
    (run.path / "build.log").write_bytes(
        said.encode("utf-8", "surrogatepass") + b"\n" + b"x" * 200_000
    )
    stage(
        run,
        "build",
        "failed",
        jobs=said,
        environment=dict.fromkeys(HOSTILE, said),
        tail=[*HOSTILE],
        error=said,
        advice=said,
        kind=said,
        diagnosis="line 1: " + HOSTILE[0] + " (no-such-id)",
        lost=[said],
        healed=[said],
        timeline={"units": units, "samples": [[0, 1, 2]], "cpus": said},
    )
    check = {"name": said, "ok": False, "found": said, "wanted": said, "detail": said}
    stage(run, "audit", wheels=[{"wheel": said, "checks": [check]}])
    cases = "".join(
        f"<testcase classname={_attribute(text)} name={_attribute(text)} time='1'>"
        f"<properties><property name={_attribute('has.' + text)} value={_attribute(text)}/>"
        f"<property name={_attribute('speed.' + text + '.x_ms')} value='1.5'/></properties>"
        f"<failure message={_attribute(text)}>{_attribute(text)[1:-1]}</failure></testcase>"
        for text in HOSTILE
    )
    document = f"<testsuites><testsuite name={_attribute(said)}>{cases}</testsuite></testsuites>"
    (run.path / "smoke.xml").write_text(document, "utf-8")
    stage(run, "test", "failed", outcomes={"failed": len(HOSTILE)}, tail=[*HOSTILE], error=said)
    (run.path / "a <b> file.txt").write_text("x")
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
        label = f"{n:03}"
        if n % 15 == 7:
            run = failed_build(out, label=label, **cell)
        elif n % 31 == 9:
            run = failed_smoke(out, label=label, seed=n, **cell)
        elif n % 41 == 11:
            run = killed(out, label=label, **cell)
        else:
            run = good(out, label=label, seed=n, **cell)
        manifest(run)
        run.close()
        made.append(run)
    return made
