"""The kinds of hosts: one table. A new kind is a folder beside this file, and a line here.

``hosts/<kind>/config.py`` has the keys that ``pipeline.yaml`` may have and opens the adapter beside
it. Nothing outside of ``hosts`` asks which kind a host is: only what it can do.
"""

from __future__ import annotations

from pipelines.hosts.base import HostConfig
from pipelines.hosts.container.config import ContainerHost
from pipelines.hosts.local.config import LocalHost
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.winrm.config import WinRMHost

#: ``kind`` in ``pipeline.yaml`` -> its keys.
KINDS: dict[str, type[HostConfig]] = {
    "sandbox": SandboxHost,
    "winrm": WinRMHost,
    "local": LocalHost,
    "container": ContainerHost,
}
