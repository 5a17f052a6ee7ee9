"""What the machine of an engine elsewhere shows, read by a container that runs for a second there.

It sees ``/sys`` and ``/dev`` without the right to write, has no network, and is removed.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path, PurePosixPath

from pipelines.core.errors import HostError
from pipelines.core.hosttext import safe
from pipelines.hosts.engine.boxes import of_a_moment
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.refusals import telling
from pipelines.hosts.passthrough.linux import Machine, look

_SCRIPT = Path(__file__).with_name("elsewhere.sh")
_SECONDS = 30
_MOST = 4 << 20  # bytes that it may say
_ROW = re.compile(r"([FLND]) ((?:sys|dev|proc)/[\w.:/-]{1,200})(?: (\S*))?")
_SEEN = ("/sys", "/dev")


def look_at(engine: Engine, image: str) -> Machine:
    """The machine of ``engine``, by a container of ``image``, which must have a POSIX shell.

    Who uses a GPU, and how much memory may be locked, is not known of it. Raises
    :class:`HostError` if it says nothing, and what the engine refuses.
    """
    doing = f"look at the machine of {engine.title}"
    with telling(doing):
        container = engine.client.containers.create(
            image,
            entrypoint=["/bin/sh", "-c", _SCRIPT.read_text("utf-8"), "look"],
            command=["/host", "/proc"],
            network_mode="none",
            labels=of_a_moment("look"),
            volumes={name: {"bind": f"/host{name}", "mode": "ro"} for name in _SEEN},
        )
    try:
        with telling(doing):
            container.start()
            container.wait(timeout=_SECONDS)
            said = bytes(container.logs(stdout=True, stderr=False))
    finally:
        with contextlib.suppress(Exception):
            container.remove(force=True, v=True)
    return read(said.decode("utf-8", "replace"))


def read(said: str) -> Machine:
    """What the script has printed; :class:`HostError` if it did not come to its end."""
    rows = said[:_MOST].splitlines()
    if not rows or rows[-1] != "END":
        raise HostError(f"its machine was not read to the end: {safe(said[-200:], 200)}")
    with tempfile.TemporaryDirectory(prefix="machine-") as folder:
        root = Path(folder)
        for row in rows[:-1]:
            found = _ROW.fullmatch(row)
            if found is None or ".." in PurePosixPath(found[2]).parts:
                raise HostError(f"its machine says what no machine has: {safe(row, 200)}")
            _put(root / found[2], found[1], found[3] or "")
        machine = look(root)
    return machine.model_copy(update={"all_processes": False, "memlock": None})


def _put(path: Path, kind: str, value: str) -> None:
    if kind == "D":
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "L":
        path.symlink_to(PurePosixPath(value).name)  # of which only the name is read
    elif kind == "F" and re.fullmatch(r"(?:[0-9a-f]{2})*", value):
        path.write_bytes(bytes.fromhex(value))
    else:
        path.touch()
