"""The machine of a remote engine, read by a container that runs for a second there.

It sees ``/sys`` and ``/dev`` read-only, has no network, and is removed.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path, PurePosixPath

from pipelines.core.errors import HostError
from pipelines.core.hosttext import safe
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.manager import of_a_moment
from pipelines.hosts.passthrough.linux import Machine, look

_SCRIPT = Path(__file__).with_name("remote_machine.sh")
_SECONDS = 30
_MOST = 4 << 20  # most bytes of output
_ROW = re.compile(r"([FLND]) ((?:sys|dev|proc)/[\w.:/-]{1,200})(?: (\S*))?")
_SEEN = ("/sys", "/dev")


def look_at(engine: Engine, image: str) -> Machine:
    """The machine of ``engine``, read by a container of ``image``, which must have a POSIX shell.

    Raises :class:`HostError` for empty output, and the engine's errors.
    """
    doing = f"inspect the machine of {engine.title}"
    with engine_errors(doing):
        container = engine.client.containers.create(
            image,
            entrypoint=["/bin/sh", "-c", _SCRIPT.read_text("utf-8"), "look"],
            command=["/host", "/proc"],
            network_mode="none",
            labels=of_a_moment("look"),
            volumes={name: {"bind": f"/host{name}", "mode": "ro"} for name in _SEEN},
        )
    try:
        with engine_errors(doing):
            container.start()
            container.wait(timeout=_SECONDS)
            output = bytes(container.logs(stdout=True, stderr=False))
    finally:
        with contextlib.suppress(Exception):
            container.remove(force=True, v=True)
    return read(output.decode("utf-8", "replace"))


def read(output: str) -> Machine:
    """Parse the script's output; :class:`HostError` if it is incomplete."""
    rows = output[:_MOST].splitlines()
    if not rows or rows[-1] != "END":
        raise HostError(f"the description of its machine was cut off: {safe(output[-200:], 200)}")
    with tempfile.TemporaryDirectory(prefix="machine-") as folder:
        root = Path(folder)
        for row in rows[:-1]:
            match = _ROW.fullmatch(row)
            if match is None or ".." in PurePosixPath(match[2]).parts:
                raise HostError(f"unexpected description of its machine: {safe(row, 200)}")
            _put(root / match[2], match[1], match[3] or "")
        return look(root)


def _put(path: Path, kind: str, value: str) -> None:
    if kind == "D":
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "L":
        path.symlink_to(PurePosixPath(value).name)  # only its name is read
    elif kind == "F" and re.fullmatch(r"(?:[0-9a-f]{2})*", value):
        path.write_bytes(bytes.fromhex(value))
    else:
        path.touch()
