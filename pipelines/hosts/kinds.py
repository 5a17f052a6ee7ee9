"""The kinds of hosts: one table. A new kind is a folder next to this file, and a line here.

``hosts/<kind>/config.py`` has the keys for ``pipeline.yaml`` and opens the adapter next to it.
Code outside ``hosts`` never checks the kind of a host, only its capabilities.
"""

from __future__ import annotations

from pipelines.hosts.base import HostConfig
from pipelines.hosts.container.config import ContainerHost
from pipelines.hosts.local.config import LocalHost
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.vm.config import VmHost
from pipelines.hosts.winrm.config import WinRMHost

#: ``kind`` in ``pipeline.yaml`` -> its keys.
KINDS: dict[str, type[HostConfig]] = {
    "sandbox": SandboxHost,
    "winrm": WinRMHost,
    "local": LocalHost,
    "container": ContainerHost,
    "vm": VmHost,
}
