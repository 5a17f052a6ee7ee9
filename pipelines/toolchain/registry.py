"""The digest of what a registry has behind a tag, by the protocol that all of them speak.

https://distribution.github.io/distribution/spec/api/ and, for the token that most of them want even
from anybody, https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pipelines.core.errors import LockError
from pipelines.core.hosttext import line
from pipelines.toolchain.sources import BaseImage, session

if TYPE_CHECKING:
    import requests

_TIMEOUT = (15, 60)
_LIMIT = 4 << 20  # bytes: what a registry takes as a manifest
#: Docker's own names it by two hosts.
_DOCKER, _DOCKER_API = "docker.io", "registry-1.docker.io"
_LOOPBACK = ("localhost", "127.0.0.1")
#: Lists before single ones: what several platforms share is one digest.
_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def digest_behind(image: BaseImage) -> str:
    """The digest of what stands behind ``image``'s tag now, computed from what came.

    Raises :class:`LockError` where it cannot be had, or is not what the registry calls it.
    """
    import requests

    registry, repository = _place(image.image)
    scheme = "http" if registry.partition(":")[0] in _LOOPBACK else "https"
    url = f"{scheme}://{registry}/v2/{repository}/manifests/{image.tag}"
    try:
        with session() as client:
            answer = _get(client, url, {"Accept": _ACCEPT})
            if answer.status_code == requests.codes.unauthorized:
                token = _token(client, answer, registry)
                answer = _get(client, url, {"Accept": _ACCEPT, "Authorization": f"Bearer {token}"})
            answer.raise_for_status()
    except requests.RequestException as error:
        raise LockError(
            f"{image.image}:{image.tag}: {registry} does not say what it is: "
            f"{line(str(error), 300)}",
            hint="Check the name and the network, then type: invoke lock",
        ) from error
    found = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
    said = answer.headers.get("Docker-Content-Digest", found)
    if said != found:
        raise LockError(
            f"{image.image}:{image.tag}: {registry} says {line(said, 80)}, but what came has "
            f"{found}",
            hint="Somebody on the way changes it: do not use it.",
        )
    return found


def _get(client: requests.Session, url: str, headers: dict[str, str]) -> requests.Response:
    answer = client.get(url, headers=headers, timeout=_TIMEOUT, stream=True)
    length = int(answer.headers.get("Content-Length") or 0)
    if length > _LIMIT:
        raise LockError(f"{url} has {length} bytes: that is no manifest")
    return answer


def _place(name: str) -> tuple[str, str]:
    """Registry and repository of an image's name, as Docker reads it."""
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, repository = first, rest
    else:
        registry, repository = _DOCKER, name if slash else f"library/{name}"
    return (_DOCKER_API if registry == _DOCKER else registry), repository


def _token(client: requests.Session, refused: requests.Response, registry: str) -> str:
    """What lets anybody read: from where the registry itself says."""
    challenge = refused.headers.get("WWW-Authenticate", "")
    fields = dict(_CHALLENGE.findall(challenge))
    realm = fields.pop("realm", "")
    place = urlsplit(realm)
    secure = place.scheme == "https" or place.hostname in _LOOPBACK
    if not challenge.startswith("Bearer ") or not secure:
        raise LockError(
            f"{registry} wants a sign-in that is not anybody's: {line(challenge, 200)}",
            hint="Write the digest into toolchain.yaml: docker pull prints it.",
        )
    answer = client.get(realm, params=fields, timeout=_TIMEOUT)
    answer.raise_for_status()
    try:
        told = answer.json()
        return str(told.get("token") or told["access_token"])
    except (ValueError, KeyError, AttributeError):
        raise LockError(f"{realm} gives no token", hint="Type: invoke lock, later.") from None
