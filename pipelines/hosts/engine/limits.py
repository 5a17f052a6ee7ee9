"""Whether a container has the requested limits: an engine may drop one with only a warning."""

from __future__ import annotations

from pipelines.core.errors import HostError
from pipelines.core.hosttext import line
from pipelines.hosts.engine.container import ManagedContainer
from pipelines.hosts.engine.keys import in_bytes

_HINT = (
    "An engine ignores limits that its kernel does not support; docker info lists them. "
    "Remove the key, or use another engine."
)


def require_limits(managed: ManagedContainer) -> None:
    """Compare the engine's description of a container with the arguments of its ``create``.

    Raises :class:`HostError` for the first difference in isolation, memory, processors, disk
    size, devices, or dropped privileges.
    """
    made, keys = managed.container.attrs.get("HostConfig") or {}, managed.spec.keys
    memory = keys.get("mem_limit", 0)
    requested = {
        "Memory": memory if isinstance(memory, int) else in_bytes(memory),
        "NanoCpus": keys.get("nano_cpus", 0),
        "StorageOpt": keys.get("storage_opt", {}),
        "Devices": keys.get("devices", []),
        "CapDrop": keys.get("cap_drop", []),
    }
    if "isolation" in keys:
        requested["Isolation"] = keys["isolation"]
    for name, value in requested.items():
        actual = made.get(name) or type(value)()
        if name == "Devices":
            actual = [device.get("PathOnHost") for device in actual]
        if actual != value:
            raise HostError(
                f"container '{managed.name}': {name} is {line(actual, 80)}, requested was {value}",
                hint=_HINT,
            )
