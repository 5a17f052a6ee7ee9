"""Push an image of ours to a registry and report its digest there."""

from __future__ import annotations

import re

from pipelines.core.errors import ConfigError, HostError
from pipelines.hosts.engine.engine import Engine, Progress, advance
from pipelines.hosts.engine.error_patterns import engine_errors, raise_event
from pipelines.hosts.images.lookup import Image

_TAGGED = re.compile(r"(?P<name>[^\s@]*[^\s@:/]):(?P<tag>[\w][\w.-]{0,127})")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

#: License restrictions of images, by their system.
LICENCE = {
    "windows": "It contains Visual Studio Build Tools: only holders of a Visual Studio license may "
    "use it, so push it to a private registry "
    "(https://github.com/microsoft/vs-dockerfiles).",
    "linux": "It contains a stub toolchain, not Visual Studio: wheels built with it cannot be "
    "published.",
}


def push(engine: Engine, image: Image, to: str, progress: Progress) -> str:
    """Push ``image`` as ``to``, NAME:TAG; returns the reference for a host's configuration.

    Raises :class:`ConfigError` for a name without a tag, :class:`HostError` if the registry
    returns no digest, and what ``engine_errors`` does.
    """
    match = _TAGGED.fullmatch(to)
    if match is None:
        raise ConfigError(
            f"--to {to}: expected a name with a tag",
            hint="For example --to registry.example:5000/wcw/sandbox:1",
        )
    digest = ""
    with engine_errors(f"push image {to}"):
        engine.client.api.tag(image.id, match["name"], match["tag"])
        for event in engine.client.api.push(match["name"], match["tag"], stream=True, decode=True):
            raise_event(event)
            advance(event, progress)
            pushed = event.get("aux")
            digest = (
                str(pushed["Digest"]) if isinstance(pushed, dict) and "Digest" in pushed else digest
            )
    if not _DIGEST.fullmatch(digest):
        raise HostError(
            f"push image {to}: the registry returned no digest",
            hint="Check that it is there: docker pull.",
        )
    return f"{match['name']}@{digest}"
