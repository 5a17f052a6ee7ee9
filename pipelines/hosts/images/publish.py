"""Push an image of ours to a registry, and say by which digest it is found there."""

from __future__ import annotations

import re

from pipelines.core.errors import ConfigError, HostError
from pipelines.hosts.engine.engine import Engine, Progress, advance
from pipelines.hosts.engine.refusals import raise_event, telling
from pipelines.hosts.images.finding import Image

_TAGGED = re.compile(r"(?P<name>[^\s@]*[^\s@:/]):(?P<tag>[\w][\w.-]{0,127})")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

#: What holds of images, by their system: the licence of what is in them.
LICENCE = {
    "windows": "It holds Visual Studio Build Tools: only people with a Visual Studio licence may "
    "use it, so it belongs into a private registry "
    "(https://github.com/microsoft/vs-dockerfiles).",
    "linux": "It holds the stand-in for Visual Studio: what is built with it is a proof, and never "
    "goes to an index.",
}


def push(engine: Engine, image: Image, to: str, progress: Progress) -> str:
    """Push ``image`` as ``to``, NAME:TAG; the reference by which a host names it.

    Raises :class:`ConfigError` for a name without a tag, :class:`HostError` where the registry
    gives no digest, and what ``telling`` does.
    """
    found = _TAGGED.fullmatch(to)
    if found is None:
        raise ConfigError(
            f"--to {to}: expected a name with its tag",
            hint="Such as --to registry.example:5000/wcw/sandbox:1",
        )
    digest = ""
    with telling(f"push image {to}"):
        engine.client.api.tag(image.id, found["name"], found["tag"])
        for event in engine.client.api.push(found["name"], found["tag"], stream=True, decode=True):
            raise_event(event)
            advance(event, progress)
            told = event.get("aux")
            digest = str(told["Digest"]) if isinstance(told, dict) and "Digest" in told else digest
    if not _DIGEST.fullmatch(digest):
        raise HostError(
            f"push image {to}: the registry gave no digest", hint="Is it there? docker pull it."
        )
    return f"{found['name']}@{digest}"
