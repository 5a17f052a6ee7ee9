"""How long the report of 100 cells takes, from their records to the page, and how large it is."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from test_figures import show

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

import report_samples as samples

from pipelines.reports import markdown
from pipelines.reports.load import load_view
from pipelines.reports.write import write_summary_pages

CELLS = 100


def test_a_hundred_cells(tmp_path: Path) -> None:
    runs = samples.matrix(tmp_path, CELLS)
    took = []
    for _ in range(3):
        began = time.monotonic()
        views = [load_view(run) for run in runs]
        page = write_summary_pages(views, tmp_path)
        took.append(time.monotonic() - began)
    assert page.read_text("utf-8").count('<article class="cell"') == CELLS
    show(f"report of {CELLS} cells", f"{min(took):.2f} s", "2 s")
    show("its page", f"{page.stat().st_size / 1e6:.2f} MB", "2 MB")
    show("its summary for GitHub", f"{len(markdown.summary(views).encode()) / 1e3:.0f} kB", "1 MiB")
