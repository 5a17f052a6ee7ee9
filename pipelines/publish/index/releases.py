"""Wheels as assets of a release on GitHub, over its REST API; an asset is never replaced.

https://docs.github.com/en/rest/releases/assets: an upload that broke off leaves an asset whose
state is not "uploaded", which may be removed; a name that is taken is refused with 422. A release
has 1000 assets at most, and none is added to an immutable one: such is a draft until all are there.
https://docs.github.com/en/code-security/concepts/supply-chain-security/immutable-releases
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar
from urllib.parse import quote

import requests
from pydantic import BaseModel, StringConstraints, ValidationError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from pipelines.core.errors import AuthError, ConfigError, StorageError
from pipelines.core.hosttext import line, secret
from pipelines.core.model import first_problem
from pipelines.publish.index.store import AGAIN

_ADDRESS = re.compile(r"github:(?P<repository>[\w.-]+/[\w.-]+)@(?P<tag>[\w./+-]+)")
_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
_PAGE, _FULL = 100, 1000
_MOST = 16 << 20  # bytes of an answer
_SECONDS = (20, 600)
_LARGEST = 2 << 30  # bytes of an asset: GitHub takes less than 2 GiB
_OK, _SERVER = 300, 500


Kind = TypeVar("Kind", bound=BaseModel)


class _Asset(BaseModel):
    id: int
    name: Annotated[str, StringConstraints(max_length=500)]
    state: str
    size: int
    digest: str | None = None
    """``sha256:…``; older assets have none."""
    browser_download_url: Annotated[str, StringConstraints(max_length=2000)]


class _Release(BaseModel):
    id: int
    html_url: Annotated[str, StringConstraints(max_length=2000)]
    upload_url: Annotated[str, StringConstraints(max_length=2000)]
    tag_name: Annotated[str, StringConstraints(max_length=500)] = ""
    draft: bool = False
    immutable: bool = False


class _BusyError(StorageError):
    """The server is not well: it may be in a moment."""


class Release:
    """One release; every error is one of ours, and names what was being done."""

    def __init__(self, address: str, *, api: str = "") -> None:
        """``address`` is ``github:OWNER/REPO@TAG``; the token comes from the environment.

        Raises :class:`ConfigError` for another address or without such a release, and
        :class:`AuthError` without a token.
        """
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise ConfigError(
                f"--to {line(address, 200)}: no release of GitHub's",
                hint="Write github:OWNER/REPO@TAG.",
            )
        token = next(filter(None, map(os.environ.get, _TOKENS)), "")
        if not token:
            raise AuthError(
                f"{address}: there is no token for GitHub",
                hint="Set GITHUB_TOKEN to one that may write to the repository's contents.",
            )
        self.name = address
        self._api = (api or os.environ.get("GITHUB_API_URL") or "https://api.github.com").rstrip(
            "/"
        )
        self._http = requests.Session()
        self._http.headers.update(
            {
                "Authorization": f"Bearer {secret(token)}",
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28",
            }
        )
        place = f"{self._api}/repos/{found['repository']}/releases"
        self._place = place
        # A draft is in the list alone, and its addresses are others until it is published.
        listed = self._ask("GET", f"{place}?per_page={_PAGE}") or []
        drafts = [one for one in (_read(_Release, each, address) for each in listed) if one.draft]
        mine = [one for one in drafts if one.tag_name == found["tag"]]
        tag = quote(found["tag"], safe="")
        self._release = (
            mine[0] if mine else _read(_Release, self._ask("GET", f"{place}/tags/{tag}"), address)
        )
        self.assets = (
            f"{self._release.html_url.partition('/releases/')[0]}/releases/download/{tag}/"
        )
        self._assets = {one.name: one for one in self._listed()}

    def _listed(self) -> list[_Asset]:
        found: list[_Asset] = []
        for page in range(1, _FULL // _PAGE + 2):
            address = f"{self._place}/{self._release.id}/assets?per_page={_PAGE}&page={page}"
            found += [_read(_Asset, one, self.name) for one in self._ask("GET", address)]
            if len(found) < page * _PAGE:
                break
        return found

    def require_room(self, wheels: Iterable[str]) -> None:
        """:class:`ConfigError` if these and their metadata cannot be added, before any is sent."""
        more = {name for one in wheels for name in (one, f"{one}.metadata")} - {*self._assets}
        why = "is immutable: GitHub adds no asset to it" if more and self._release.immutable else ""
        if len(self._assets) + len(more) > _FULL:
            why = f"has {len(self._assets)} assets, {len(more)} are to come, GitHub takes {_FULL}"
        if why:
            raise ConfigError(
                f"{self.name} {why}",
                hint="Nothing was uploaded. Type gh release create NEW-TAG --draft, and publish "
                "to that: it is published when all its files are there.",
            )

    def finish(self) -> None:
        """Publish a draft: from then on its assets have their addresses."""
        if self._release.draft and self._assets:
            self._ask("PATCH", f"{self._place}/{self._release.id}", json={"draft": False})

    def place(self, name: str, source: Path, sha256: str) -> str:
        """Have the file there as an asset called ``name``; its address.

        Raises :class:`StorageError` when another file has that name, or what arrived is not it.
        """
        asset = self._assets.get(name)
        if asset is not None and asset.state != "uploaded":
            self._ask("DELETE", f"{self._place}/assets/{asset.id}")
            asset = None
        if asset is None:
            asset = self._upload(name, source)
        self._require(asset, name, source.stat().st_size, sha256)
        self._assets[name] = asset
        return self._address(asset)

    def _address(self, asset: _Asset) -> str:
        drafted = f"{self.assets}{quote(asset.name, safe='')}"
        return drafted if self._release.draft else asset.browser_download_url

    def sizes(self) -> dict[str, int]:
        """Every whole asset's address, with its bytes."""
        whole = (one for one in self._assets.values() if one.state == "uploaded")
        return {self._address(one): one.size for one in whole}

    def _upload(self, name: str, source: Path) -> _Asset:
        size = source.stat().st_size
        if size >= _LARGEST:
            raise StorageError(
                f"{name} has {size} bytes, and GitHub takes no asset of 2 GiB",
                hint="Publish to an object store.",
            )
        address = f"{self._release.upload_url.partition('{')[0]}?name={quote(name, safe='')}"
        with source.open("rb") as stream:
            # An upload is not tried twice on its own: what a broken one has left is removed first.
            told = self._once("POST", address, data=stream)
        return _read(_Asset, told, self.name)

    def _require(self, asset: _Asset, name: str, size: int, sha256: str) -> None:
        digest = asset.digest or f"sha256:{self._hash(asset)}"
        wrong = ""
        if asset.name != name:
            wrong = f"it is called {line(asset.name, 200)} there"
        elif asset.state != "uploaded":
            wrong = f"its state is {line(asset.state, 40)}"
        elif asset.size != size or digest != f"sha256:{sha256}":
            wrong = f"it has {asset.size} bytes and {line(digest, 80)} there, and here {size} and "
            wrong += f"sha256:{sha256}"
        if wrong:
            raise StorageError(
                f"{self.name}: {name}: {wrong}",
                hint="An asset is never replaced: publish to another tag, or remove it there if "
                "nobody has installed it.",
            )

    def _hash(self, asset: _Asset) -> str:
        """Of an asset that tells no digest, by reading it."""
        hashed = hashlib.sha256()
        headers = {"Accept": "application/octet-stream"}
        try:
            with self._http.get(
                f"{self._place}/assets/{asset.id}", headers=headers, stream=True, timeout=_SECONDS
            ) as answer:
                answer.raise_for_status()
                for piece in answer.iter_content(1 << 20):
                    hashed.update(piece)
        except requests.RequestException as error:
            raise StorageError(f"{self.name}: {line(error, 300)}", hint=AGAIN) from error
        return hashed.hexdigest()

    @retry(
        retry=retry_if_exception_type(_BusyError),
        stop=stop_after_attempt(4),
        wait=wait_exponential(multiplier=0.5),
        reraise=True,
    )
    def _ask(self, method: str, address: str, **more: Any) -> Any:
        return self._once(method, address, **more)

    def _once(self, method: str, address: str, **more: Any) -> Any:
        if "data" in more:
            more["headers"] = {"Content-Type": "application/octet-stream"}
        try:
            answer = self._http.request(method, address, timeout=_SECONDS, stream=True, **more)
            with answer:
                data = answer.raw.read(_MOST + 1, decode_content=True)
        except (requests.RequestException, OSError) as error:
            raise _BusyError(f"{self.name}: {line(error, 300)}", hint=AGAIN) from error
        if answer.status_code >= _OK or len(data) > _MOST:
            self._refuse(method, answer, data)
        return _json(data, self.name)

    def _refuse(self, method: str, answer: requests.Response, data: bytes) -> NoReturn:
        code, said = answer.status_code, line(data[:500].decode("utf-8", "replace"), 300)
        what = f"{self.name}: {method}: GitHub says {code}: {said}"
        if code in (401, 403):
            raise AuthError(what, hint="The token may not write there, or too much was asked.")
        if code == 404:  # noqa: PLR2004
            raise ConfigError(what, hint="Make the release first: gh release create TAG --draft.")
        kind = _BusyError if code >= _SERVER else StorageError
        raise kind(what, hint=AGAIN)


def _json(data: bytes, name: str) -> Any:
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{name}: no answer of GitHub's: {line(error)}", hint=AGAIN) from None


def _read(kind: type[Kind], told: Any, name: str) -> Kind:
    try:
        return kind.model_validate(told)
    except ValidationError as error:
        raise StorageError(
            f"{name}: GitHub's answer is not of its shape: {first_problem(error)}", hint=AGAIN
        ) from None
