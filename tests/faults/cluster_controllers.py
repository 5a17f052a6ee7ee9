"""The parties of a cluster as processes that can be killed.

``cluster_controllers.py ORDER serve|join|ask [NAME]``, ORDER a JSON file. Scheduler, member,
asker, lines and detached jobs are the product's; hosts are this machine's Python, in a directory
each, and packages have a backend that notes when two of it run at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from plans import PYTHON, recipe_of
from projects import project
from test_line import BenchConfig, backend

from pipelines import buildplan
from pipelines.config import Config
from pipelines.files import write_atomic
from pipelines.fleet.cluster import joined, wire
from pipelines.fleet.cluster.certificates import read_address
from pipelines.fleet.cluster.joined import JoinedErrand
from pipelines.fleet.cluster.member import Member
from pipelines.fleet.dask_engine import DaskEngine
from pipelines.fleet.dispatch import Dispatcher
from pipelines.fleet.drivers import Driver
from pipelines.fleet.entries import Attempt
from pipelines.fleet.kept import begin_lost
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.lines import Order
from pipelines.fleet.looking import Hosts
from pipelines.fleet.model import Machine, Needs, Work
from pipelines.fleet.party import called
from pipelines.fleet.rules import Rules
from pipelines.hosts.kinds import KINDS
from pipelines.recipe.model import Recipe
from pipelines.stages import detached
from pipelines.units import GIB

RULES = Rules(
    grace=60, pause=0.3, most_pause=2, boot=30, tries=1000, deaths=1000, losses=1000, poll=0.2
)
#: What a build does besides: it takes some time, and notes what must never happen.
EVIDENCE = """
    import fcntl, sys, time
    lock = open(PLACE + "/only-one", "a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        open(PLACE + "/twice", "w").close()
        raise SystemExit("another one of me runs")
    open(PLACE + "/begun", "a").write("x")
    time.sleep(SECONDS)
"""


def source_of(home: Path, name: str, seconds: float) -> None:
    """A package whose wheel differs from the others' by its name alone."""
    place = home / name
    place.mkdir(parents=True)
    code = backend().replace('print("[1/1]', f'{EVIDENCE}    print("[1/1]', 1)
    code = code.replace("PLACE", repr(str(place))).replace("SECONDS", str(seconds))
    project(place / "tree", code.replace("import json", f"import json  # {name}"))


def recipe_named(home: Path, name: str) -> Recipe:
    """As ``load_recipe`` finds it."""
    return recipe_of(home / name / "tree").model_copy(update={"name": name})


def serve(order: dict[str, Any]) -> None:
    address, file = read_address(order["address"], "order"), Path(order["certificate"])
    asyncio.run(wire.serve(address, file, print, print))


def join(order: dict[str, Any], name: str) -> None:
    KINDS["bench"] = BenchConfig
    place = Path(order["place"]) / name
    hosts = {host: {"kind": "bench", "root": str(place / host)} for host in order["hosts"]}
    settings = Config.model_validate(
        {
            "hosts": hosts,
            "out": str(place / "out"),
            "compile_cache": {"kind": "off"},
            "fleet": {"free_gib": 0},
        }
    )
    member = Member(settings, tuple(hosts), print)
    address, file = read_address(order["address"], "order"), Path(order["certificate"])
    while True:  # as whoever starts it again would
        try:
            asyncio.run(wire.stay(address, file, name, member.answer, say=print))
        except Exception as error:
            print(error)
            time.sleep(0.3)


def ask(order: dict[str, Any]) -> None:
    joined.POLL, joined._PATIENCE = 0.2, 3.0
    out = Path(order["place"]) / "out"
    out.mkdir(exist_ok=True)
    hashed = hashlib.sha256(b"cluster").hexdigest()
    if (ledger := Ledger.find(out, hashed)) is not None:
        ledger.hold()
        begin_lost(ledger, time.time())
    else:
        ledger = Ledger.create(out, hashed)
    address, file = read_address(order["address"], "order"), Path(order["certificate"])
    names = tuple(f"{member}/{host}" for member in order["members"] for host in order["hosts"])
    settings = Config.model_validate({"hosts": {"x": {"kind": "sandbox"}}, "out": str(out)})
    dialled = wire.Wire(address, file)
    while True:  # a member may be away at this moment, and was never seen before
        there = joined.look(dialled)
        hosts = {**settings.hosts, **_known(Path(order["place"]) / "joined.json", there.hosts)}
        if hosts.keys() >= set(names):
            break
        time.sleep(0.5)
    settings = settings.model_copy(update={"hosts": hosts})
    works, axes = _works(order, names)
    machines = {name: Machine(name=name, cores=1, memory=8 * GIB) for name in names}
    ledger.put(works, machines.values(), time.time())
    runs = {one.span.key: one.span.run for one in ledger.attempts() if _is_done(one)}
    todo = Order(settings, ledger.path, axes, runs=runs)
    looked = Hosts(settings.fleet, ledger.path, names)
    errands = {
        name: JoinedErrand(name, there.wire, todo, looked, fleet=called(ledger), first=works[0])
        for name in names
    }
    drivers = {name: Driver(name, errand, ledger.path) for name, errand in errands.items()}
    engine = DaskEngine(drivers, machines)
    try:
        summary = Dispatcher(ledger, engine, RULES).run()
    finally:
        engine.close()
        ledger.close()
    write_atomic(Path(order["place"]) / "summary", json.dumps(summary.works).encode())


def _is_done(attempt: Attempt) -> bool:
    return attempt.span.outcome == "done"


def _known(file: Path, found: Any) -> dict[str, joined.JoinedHost]:
    """The hosts that were ever there: as a fleet remembers them."""
    known = json.loads(file.read_text()) if file.exists() else {}
    known |= {name: host.model_dump(mode="json") for name, host in found.items()}
    write_atomic(file, json.dumps(known).encode())
    return {name: joined.JoinedHost.model_validate(told) for name, told in known.items()}


def _works(
    order: dict[str, Any], names: tuple[str, ...]
) -> tuple[list[Work], dict[str, dict[str, str]]]:
    works, axes = [], {}
    for name in order["cells"]:
        axes[name] = {"recipe": name, "python": PYTHON, "cuda": "13.0", "archs": "90a"}
        common: dict[str, Any] = {"cell": name, "core_seconds": 1.0, "hosts": names}
        works.append(Work(key=name, kind="cell", needs=Needs(memory=GIB), **common))
        needs = Needs(slots=0, memory=GIB)
        works.append(Work(key=f"{name}/test", kind="test", needs=needs, after=(name,), **common))
    return works, axes


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    detached._PAUSES = (0.05, 0.2, 0.5, 1.0, 1.0)
    sources = Path(given["place"]) / "sources"
    setattr(buildplan, "load_recipe", lambda name, **_: recipe_named(sources, name))  # noqa: B010
    verb, *named = sys.argv[2:]
    if verb == "join":
        join(given, *named)
    else:
        {"serve": serve, "ask": ask}[verb](given)
