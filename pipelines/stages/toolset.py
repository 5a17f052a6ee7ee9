"""Which toolset of MSVC builds a plan on its host: one that goes with its CUDA, or none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipelines.core.console import say
from pipelines.core.errors import ConfigError
from pipelines.hosts.base import Host
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.matrix.compat import Rule, applicable_rules, load_compat
from pipelines.remote import builder

_VERSION = re.compile(r"14\.\d{2}\.\d{3,6}")


def toolset_for(there: Sequence[str], plan: BuildPlan) -> str | None:
    """Such as 14.44, if Visual Studio's default does not support the plan's CUDA; else ``None``.

    Chosen from ``there``, the result of :func:`list_host_toolsets`, before anything is sent. Raises
    :class:`ConfigError` if no installed one does; nothing is known without MSVC or its toolsets.
    """
    first = _against(plan, there[0]) if there else None
    if first is None:
        return None
    for version in there[1:]:
        if _against(plan, version) is None:
            say(f"note: {first.says} Using MSVC {version}, which is also installed", style="yellow")
            return ".".join(version.split(".")[:2])
    raise ConfigError(
        f"{plan.host.name} has MSVC {', '.join(there[:5])}: {first.says} ({first.source})",
        hint=f"{first.hint[:1].upper()}{first.hint[1:]}.",
    )


def default_toolset(session: LiveSession, host: Host) -> str | None:
    """The version that a build has where none is asked for; ``None`` where it is not known."""
    return next(iter(list_host_toolsets(session, host)), None)


def list_host_toolsets(session: LiveSession, host: Host) -> list[str]:
    """What the host says of it, the default first; nothing where that is no version."""
    if not (host.capabilities.windows and host.capabilities.msvc):
        return []
    answer = session.call(builder.toolsets)
    there = [one for one in answer if isinstance(one, str) and _VERSION.fullmatch(one)]
    return there if there[:1] == answer[:1] else []


def _against(plan: BuildPlan, version: str) -> Rule | None:
    """The first rule that refuses it."""
    facts = {"msvc": version, "cuda": plan.target.cuda, "torch": plan.target.torch}
    found = applicable_rules(
        load_compat().rules, {name: text for name, text in facts.items() if text}
    )
    return next((r for r in found if "msvc" in r.when and r.level == "error"), None)
