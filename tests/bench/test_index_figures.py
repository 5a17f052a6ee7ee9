"""How long a wheel more takes in an index of 500, and what of the index it writes."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from indexes import finished

from pipelines.publish.index.publishing import Order, publish_wheels
from pipelines.publish.index.store import Store
from pipelines.publish.offers import collect_offers


def test_one_more_wheel_in_an_index_of_500(tmp_path: Path) -> None:
    cells = itertools.product(
        [f"2.{number}.0" for number in range(21)],
        ("3.10", "3.11", "3.12", "3.13"),
        ("2.8", "2.9"),
        ("12.6", "12.8", "13.0"),
    )
    runs = [
        finished(tmp_path / "out", version=version, python=python, torch=torch, cuda=cuda)
        for version, python, torch, cuda in itertools.islice(cells, 501)
    ]
    store = Store(str(tmp_path / "index"))
    began = time.perf_counter()
    offers = collect_offers(runs, Path(tempfile.mkdtemp()), untested=False)
    read = time.perf_counter() - began
    began = time.perf_counter()
    publish_wheels(store, Order(offers[:-1]), say=lambda _: None)
    first = time.perf_counter() - began
    began = time.perf_counter()
    done = publish_wheels(store, Order(offers[-1:]), say=lambda _: None)
    more = time.perf_counter() - began
    front = (tmp_path / "index/index.html").stat().st_size
    print(f"\n500 wheels and their variants: read {read:.1f} s, published {first:.1f} s")
    print(f"one more: {more:.2f} s, {len(done.pages)} pages written")
    print(f"table of {len(runs)} wheels: {front / 1000:.0f} kB")
    assert len(done.fresh) == 2
    assert len(done.catalogue.wheels) == 1002
