"""How long a plan of 500 cells takes, from the recipe's file to the last verdict."""

from __future__ import annotations

import time

from test_figures import show

from pipelines.core.units import GIB
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.plan import plan_matrix

LISTS = "80|86|89|90|80;90|80;86;89;90+PTX|86+PTX"


def test_five_hundred_cells() -> None:
    lab = {"kind": "winrm", "endpoint": "https://h:5986/wsman", "username": "u"}
    settings = Config.model_validate({"hosts": {"lab": {**lab, "password_env": "P"}}})
    host = HostFacts(16, 64 * GIB, 80 * GIB, msvc="14.44.35207")
    began = time.monotonic()
    asked = {
        "host": "lab",
        "recipe": "flash-attn",
        "torch": "2.6,2.7,2.8,2.9,2.10,2.11",
        "cuda": "12.4,12.6,12.8",
        "python": "3.10,3.11,3.12,3.13",
        "archs": LISTS,
    }
    made = plan_matrix(settings, Request(axes=asked), facts=host)
    took = time.monotonic() - began
    assert len(made.rows) == 504
    show(f"planning {len(made.rows)} cells", f"{took:.2f} s", "1 s")
    show("source tree", "in the cache" if made.ground.names else "not in the cache", "-")
