"""``invoke lock``'s part for ``msvc: fetch``: Microsoft's manifests are asked, the pins written."""

from __future__ import annotations

from pipelines.core.console import say
from pipelines.core.errors import LockError
from pipelines.hosts.sandbox.msvc import manifest, pins
from pipelines.toolchain.lock import Cache, load_lock


def run_pin(*, anew: bool) -> None:
    """Write msvc.lock.yaml, if something in it is missing or ``anew``.

    Raises :class:`LockError` for manifests that cannot be had or are not what is wanted; the file
    then stays as it is.
    """
    if not anew and _is_pinned():
        return
    made = manifest.ask(Cache(load_lock()), pins.load_packages())
    pins.write_pins(made)
    size = sum(one.size for one in made.payloads) >> 20
    say(
        f"msvc.lock.yaml: {len(made.payloads)} files, {size} MiB, Visual Studio {made.channel}; "
        f"licence {made.licence}. Read the change before it is committed."
    )


def _is_pinned() -> bool:
    try:
        pins.load_pins()
    except LockError:
        return False
    return True
