"""What a survey finds in parts of published wheels, and what an audit finds in the whole ones.

``.venv/bin/pytest -s -m bench tests/bench/test_survey_figures.py``: needs the package index, and
downloads the wheels.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipelines.audit.examination import AuditOptions, examine_all
from pipelines.audit.inputs import resolve_inputs
from pipelines.core import units
from pipelines.toolchain.lock import Cache, load_lock

pytestmark = pytest.mark.bench

MOST = 10_000_000
RELEASES = (
    *("xformers==0.0.30", "xformers==0.0.35", "bitsandbytes==0.50.2", "xgboost==3.1.3"),
    *("comfy-kitchen==0.2.40", "ctranslate2==4.8.5", "tilelang==0.1.15", "cuda-tile==1.7.0"),
    *("cutde==26.3.6", "cuda-core==1.2.2"),
)


def test_published_wheels(tmp_path: Path) -> None:
    cache = Cache(load_lock(), tmp_path / "cache")
    names = {"most": None, "python": "3.12"}
    begun = time.monotonic()
    remote = resolve_inputs(RELEASES, cache, **names, download=False)  # type: ignore[arg-type]
    parts = examine_all(remote, AuditOptions(most=MOST), workers=6)
    took = time.monotonic() - begun
    whole = examine_all(resolve_inputs(RELEASES, cache, **names), AuditOptions())  # type: ignore[arg-type]
    fetched, size = sum(one.fetched for one in parts), sum(one.size for one in whole)
    print(
        f"\n{len(parts)} wheels: {units.format_size(fetched)} of {units.format_size(size)} in "
        f"{took:.0f} s"
    )
    assert len(parts) >= len(RELEASES)
    for part, full in zip(parts, whole, strict=True):
        known = {(one.id, one.subject): one for one in full.findings}
        answered = [one for one in part.findings if one.level != "unknown"]
        print(f"{part.file}: {part.fetched} of {full.size} bytes, {len(answered)} of {len(known)}")
        if part.partial:
            levels = {(one.id, one.subject): one.level for one in answered}
            assert levels == {key: known[key].level for key in levels}, part.file
            assert part.fetched < MOST + 4096
            assert part.worst != "ok"
        else:
            assert part.model_copy(update={"fetched": 0}) == full
