"""Base images in the lock: what a registry calls them, and the digest of what is meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import StringConstraints

from pipelines.core.errors import LockError
from pipelines.core.model import Model

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class BaseImage(Model):
    """An image that others stand on, or that is run as it is."""

    image: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.:_-]*(/[a-z0-9._-]+)*$")]
    """Its name, with its registry unless that is Docker's own."""
    tag: Annotated[str, StringConstraints(pattern=r"^[\w][\w.-]{0,127}$")]
    """Behind which ``invoke lock`` finds it; nothing is ever fetched by it."""
    digest: Digest | None = None
    """What is meant."""

    @property
    def reference(self) -> str:
        """How an engine is asked for it; :class:`LockError` while its digest is not known."""
        if self.digest is None:
            raise LockError(
                f"{self.image}:{self.tag} is not pinned: its digest is not known yet",
                hint="Run `invoke lock` on a machine with an internet connection, and commit "
                "the toolchain.lock.yaml that it completes.",
            )
        return f"{self.image}@{self.digest}"


def with_pins(
    wanted: Mapping[str, BaseImage], known: Mapping[str, BaseImage]
) -> dict[str, BaseImage]:
    """``wanted`` with the digests in ``known``, which belong to an image and its tag.

    Raises :class:`LockError` where both say another one.
    """
    digests = {(one.image, one.tag): one.digest for one in known.values() if one.digest}
    made = {}
    for name, one in sorted(wanted.items()):
        digest = digests.get((one.image, one.tag), one.digest)
        if one.digest and digest != one.digest:
            raise LockError(
                f"image {name}: toolchain.yaml says {one.digest}, the lock has {digest}",
                hint="One of them is wrong; another image behind a tag needs another tag, or "
                "remove the lock's entry.",
            )
        made[name] = one.model_copy(update={"digest": digest})
    return made
