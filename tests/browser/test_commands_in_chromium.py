"""The page's command for each thing that it may be pasted into, as Chromium's own output has it."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from catalogues import wheel
from pasted import PAGE, TORCH, filled

from pipelines.publish.index.catalogue import Catalogue
from pipelines.publish.index.pages import render_index_pages
from pipelines.publish.index.rows import row_of

ONE = wheel("demo-attn", "2.8.3")


@pytest.mark.parametrize("torch", [TORCH, ""])
@pytest.mark.parametrize("form", PAGE)
def test_the_script_fills_it_in_as_it_was_made(tmp_path: Path, form: str, torch: str) -> None:
    browser = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if browser is None:
        pytest.skip("there is no Chromium")
    one = ONE if torch else wheel("demo-attn", "2.8.3", torch="")
    page = render_index_pages(Catalogue(wheels=(one,)))["index.html"].decode()
    chosen, many = re.subn(
        rf'<option( data-text="[^"]*"[^>]*>{form}<)', r"<option selected\1", page
    )
    assert many == 1
    (tmp_path / "index.html").write_text(chosen)
    said = f"torch={torch.replace('+', '%2B')}&cuda={'12.8' * bool(torch)}"
    machine = f"platform=win_amd64&python=3.12&{said}&driver=12.9&gpu=8.9"
    address = f"{tmp_path.as_uri()}/index.html#wcw1:{machine}&package=demo-attn"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'own'}"]
    done = subprocess.run(
        [browser, *flags, "--virtual-time-budget=5000", "--dump-dom", address],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    (found,) = re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", done.stdout)
    wanted = filled(form, tmp_path.as_uri(), row_of(one).href, torch)
    version = one.file.split("-")[1]
    assert html.unescape(found) == wanted.replace("==2.8.3+cu128torch2.8", f"=={version}")
