"""Runs that have wheels to be published, and an index of them behind a server on this machine."""

from __future__ import annotations

import hashlib
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import report_samples as samples
from fatbins import ELF, container
from foreign_wheels import foreign
from loopback import listening
from pes import msvc, stand_in

from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.evidence import Evidence, GpuResult
from pipelines.core.files import sha256_of
from pipelines.publish import offers
from pipelines.publish.index.publishing import Offer
from pipelines.record.results import (
    AuditedFile,
    AuditResult,
    CollectResult,
    FileResult,
    SmokeResult,
)
from pipelines.record.run import Run
from pipelines.reports import junit
from pipelines.reports.model import Case, Suite
from pipelines.stages.manifest import write_manifest

CARDS = {"75": "Tesla T4", "80": "A100", "86": "RTX 3090", "89": "RTX 4090", "90": "H100"}
CARDS["120"] = "RTX 5090"


def cuda_wheel(
    folder: Path,
    *,
    name: str = "demo_attn",
    version: str = "2.8.3",
    local: str = "cu128torch2.8",
    tag: str = "cp312-cp312-win_amd64",
    archs: str = "80;90",
    cuda: str = "12.8",
    requires: tuple[str, ...] = ("einops", "torch"),
    more: Mapping[str, bytes] | None = None,
) -> Path:
    """A wheel with true device code for ``archs`` in a module of its platform."""
    code = b"".join(container((ELF, one, 8), cuda=cuda) for one in parse_arch_list(archs).sass)
    end = "so" if "linux" in tag else f"{tag.partition('-')[0]}-win_amd64.pyd"
    made = stand_in if local.endswith(".sandbox") else msvc
    files = {
        f"{name}/__init__.py": f"BUILT = {f'{version}+{local}'!r}\n".encode(),
        f"{name}/_C.{end}": made(code),
        **(more or {}),
    }
    full = f"{version}+{local}" if local else version
    return foreign(folder, name, full, tag, requires=requires, files=files, python=">=3.10")


def finished(
    out: Path,
    *,
    tested_on: str = "RTX 4090",
    python: str = "3.12",
    torch: str = "2.8",
    cuda: str = "12.8",
    archs: str = "80;90",
    facts: Mapping[str, Any] | None = None,
    smoke: Mapping[str, Any] | None = None,
    ok: bool = True,
    **changes: Any,
) -> Run:
    """A run of a cell, through the real record, with its wheel, audit, manifest and smoke test."""
    about = {"recipe": "demo-attn", "evidence": Evidence.WINDOWS} | dict(facts or {})
    cell = {"python": python, "torch": torch, "cuda": cuda, "archs": archs}
    run = Run.create(out, samples.facts(**cell, **about))
    local = changes.pop("local", f"cu{cuda.replace('.', '')}torch{torch}")
    tag = f"cp{python.replace('.', '')}"
    path = cuda_wheel(
        run.path / "wheels",
        local=local,
        cuda=cuda,
        archs=archs,
        **({"tag": f"{tag}-{tag}-win_amd64"} | changes),
    )
    record(run, path, archs, tested_on, ok=ok, smoke=smoke)
    run.close()
    return run


def record(
    run: Run,
    path: Path,
    archs: str,
    tested_on: str,
    *,
    ok: bool = True,
    smoke: Mapping[str, Any] | None = None,
) -> None:
    """What the stages leave of a wheel, as they leave it."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    row = FileResult(path=f"wheels/{path.name}", size=path.stat().st_size, sha256=sha256)
    samples.stage(run, "collect", result=CollectResult(files=(row,)))
    checks = (
        samples.check("RECORD", "ok", "true"),
        samples.check("SASS", "ok" if ok else "error", archs, archs),
        samples.check("toolset", "ok", "MSVC", id="toolset", values=("MSVC 14.44",)),
    )
    audited = AuditedFile(
        file=path.name, sha256=sha256, archs=parse_arch_list(archs), checks=checks
    )
    samples.stage(run, "audit", "passed" if ok else "failed", 1.0, AuditResult(files=(audited,)))
    if tested_on:
        told: dict[str, Any] = {
            "wheel": path.name,
            "sha256": sha256,
            "exit": 0,
            "outcomes": {"passed": 12},
            "gpus": (GpuResult(name=f"NVIDIA GeForce {tested_on}", driver_model="WDDM"),),
        } | dict(smoke or {})
        state = told.pop("state", "passed")
        cases = [
            Case(f"test_{number}", "test_gpu", outcome=outcome)
            for outcome, many in told["outcomes"].items()
            for number in range(many)
        ]
        junit.write_junit_file(run.path / "smoke.xml", [Suite("smoke", tuple(cases))])
        told["report"] = sha256_of(run.path / "smoke.xml")
        samples.stage(run, "test", state, 3.0, SmokeResult(**told))
    write_manifest(run)


def offers_of(runs: Sequence[Run], *, untested: bool) -> list[Offer]:
    """Their wheels, in a directory next to that of the runs."""
    room = tempfile.mkdtemp(prefix="offers-", dir=runs[0].path.parent.parent) if runs else ""
    return offers.collect_offers(runs, Path(room), untested=untested)


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        """As https://developers.cloudflare.com/waf/tools/browser-integrity-check/ refuses it."""
        if self.headers.get("User-Agent", "").startswith("Python-urllib"):
            self.send_error(403, "error code: 1010")
        else:
            super().do_GET()


def served(root: Path, tls: ssl.SSLContext | None = None) -> AbstractContextManager[str]:
    """The files of a directory on this machine's loopback; its address, without a slash."""
    return listening(_Handler, tls, directory=root)
