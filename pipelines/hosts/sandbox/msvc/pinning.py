"""The part of ``invoke lock`` for ``msvc: fetch``: reads Microsoft's manifests, writes the pins."""

from __future__ import annotations

from pipelines.core.console import say
from pipelines.core.errors import LockError
from pipelines.hosts.sandbox.msvc import manifest, pins
from pipelines.toolchain.lock import Cache, load_lock


def run_pin(*, force: bool) -> None:
    """Write msvc.lock.yaml if a pin is missing, or always if ``anew``.

    Raises :class:`LockError` for manifests that cannot be downloaded or are not as expected; the
    file is not changed then.
    """
    if not force and _is_pinned():
        return
    made = manifest.ask(Cache(load_lock()), pins.load_packages())
    pins.write_pins(made)
    size = sum(payload.size for payload in made.payloads) >> 20
    say(
        f"msvc.lock.yaml: {len(made.payloads)} files, {size} MiB, Visual Studio {made.channel}; "
        f"license {made.licence}. Review the change before committing it."
    )


def _is_pinned() -> bool:
    try:
        pins.load_pins()
    except LockError:
        return False
    return True
