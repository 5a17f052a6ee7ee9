"""The page of many wheels: self-contained, and harmless whatever stands in a wheel."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

from audited import TAG, look, one
from fatbins import ELF, PTX, container
from foreign_wheels import foreign
from pes import msvc

from pipelines.audit.findings import WheelReport
from pipelines.audit.loads import Loads, Missing
from pipelines.audit.page import render, write_wheels_page
from pipelines.core.finding import Finding

EVIL = "<script>alert(1)</script>\"'&\u202e"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    reader = Tags()
    reader.feed(page)
    return reader.seen


def with_gpus(folder: Path) -> WheelReport:
    code = container((ELF, "80", 8), (PTX, "80", 8), cuda="12.8", isa="8.7")
    return one(folder, {"other/_C.cp311-win_amd64.pyd": msvc(code)})


def test_its_policy_names_its_own_style_and_script_and_nothing_else(tmp_path: Path) -> None:
    page = render([with_gpus(tmp_path)])
    policy = next(a["content"] or "" for t, a in tags(page) if a.get("http-equiv"))
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    linked = [a.get("href") or a.get("src") or "" for _, a in tags(page)]
    assert all(one[:1] in ("#", "") or one == "data:," for one in linked)
    assert not [a for _, a in tags(page) if {"style", "onclick", "onload"} & a.keys()]


def test_what_a_wheel_says_stays_text() -> None:
    seen = WheelReport(
        file=f"{EVIL}.whl",
        name=EVIL,
        version=EVIL,
        findings=(Finding(id="a", title=EVIL, level="error", actual=EVIL, hint=EVIL),),
        loads=(
            Loads(
                against=EVIL,
                missing=(Missing(binary=EVIL, library=EVIL, symbol=EVIL, demangled=EVIL),),
            ),
        ),
    )
    page = render([seen])
    assert [t for t, _ in tags(page)].count("script") == 1
    assert "alert(1)</script>" not in page
    (row,) = [a for t, a in tags(page) if t == "tr" and "data-gpus" in a]
    assert EVIL[:8] in (row["data-text"] or "")


def test_what_it_says_of_a_wheel(tmp_path: Path) -> None:
    page = render([with_gpus(tmp_path), look(foreign(tmp_path, "pure"))])
    (gpu, pure) = [a for t, a in tags(page) if t == "tr" and "data-gpus" in a]
    assert '"8.9": "native"' in (gpu["data-gpus"] or "")
    assert '"12.0": "jit"' in (gpu["data-gpus"] or "")
    assert '"5.2": "no"' in (gpu["data-gpus"] or "")
    assert '"8.9": "none"' in (pure["data-gpus"] or "")
    assert (gpu["data-python"], pure["data-python"]) == ("3.11", "any")
    assert "Oldest Windows driver: 528.33 for" in page
    assert "Audit of 2 wheels" in page


def test_what_it_loads_with_is_only_what_was_looked_at(tmp_path: Path) -> None:
    gone = Missing(binary="a.pyd", library="c10.dll", symbol="x", demangled="x")
    told = (
        Loads(against="torch 2.7.0", checked=3),
        Loads(against="torch 2.8.0 (cp311)", checked=3, unknown=("c10_cuda.dll",)),
        Loads(against="torch 2.9.0", checked=3, missing=(gone,)),
        Loads(against="torch 2.10.0", unknown=("c10.dll",)),
        Loads(against="MSVC's run-time 14.44", checked=3),
    )
    seen = with_gpus(tmp_path).model_copy(update={"loads": told})
    page = render([seen])
    (row,) = [a for t, a in tags(page) if t == "tr" and "data-gpus" in a]
    assert row["data-torch"] == "torch 2.7.0|torch 2.8.0"
    words = re.findall(r"</span> (loads|in part|\d+ missing|not checked)</span>", page)
    assert words[:4] == ["loads", "in part", "1 missing", "not checked"]


def test_hundreds_fit_into_a_page(tmp_path: Path) -> None:
    seen = with_gpus(tmp_path)
    size = write_wheels_page(tmp_path / "page.html", [seen] * 400)
    assert size == (tmp_path / "page.html").stat().st_size
    assert size < 4_000_000


def test_the_same_wheels_give_the_same_page(tmp_path: Path) -> None:
    seen = one(tmp_path, tag=TAG)
    assert render([seen, seen]) == render([seen, seen])
