"""Whether a container is what was asked for: an engine may discard a limit with a mere warning."""

from __future__ import annotations

from pipelines.core.errors import HostError
from pipelines.core.hosttext import line
from pipelines.hosts.engine.box import Box
from pipelines.hosts.engine.keys import in_bytes

_HINT = (
    "An engine discards limits that its kernel does not have; docker info says which it has. "
    "Leave the key out, or name another engine."
)


def require_as_asked(box: Box) -> None:
    """Compare what the engine says of a container with the keys that its ``create`` was given.

    :class:`HostError` names the first that differs. Looked at: isolation, memory, processors, the
    size of the disk, devices, and rights that were taken away.
    """
    made, keys = box.container.attrs.get("HostConfig") or {}, box.order.keys
    memory = keys.get("mem_limit", 0)
    wanted = {
        "Memory": memory if isinstance(memory, int) else in_bytes(memory),
        "NanoCpus": keys.get("nano_cpus", 0),
        "StorageOpt": keys.get("storage_opt", {}),
        "Devices": keys.get("devices", []),
        "CapDrop": keys.get("cap_drop", []),
    }
    if "isolation" in keys:
        wanted["Isolation"] = keys["isolation"]
    for name, value in wanted.items():
        found = made.get(name) or type(value)()
        if name == "Devices":
            found = [one.get("PathOnHost") for one in found]
        if found != value:
            raise HostError(
                f"container '{box.name}': {name} is {line(found, 80)}, asked for was {value}",
                hint=_HINT,
            )
