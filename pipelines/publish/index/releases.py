"""Publishes wheels as assets of a GitHub release, over its REST API; assets are never replaced.

https://docs.github.com/en/rest/releases/assets: an interrupted upload leaves an asset whose
state is not "uploaded" and that may be removed; a taken name is refused with 422. A release has at
most 1000 assets, and none can be added to an immutable one, which is a draft until it is complete.
https://docs.github.com/en/code-security/concepts/supply-chain-security/immutable-releases
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar
from urllib.parse import quote

import requests
from pydantic import BaseModel, StringConstraints, TypeAdapter, ValidationError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from pipelines.core.errors import AuthError, ConfigError, StorageError
from pipelines.core.hosttext import remember_secret, safe_line
from pipelines.core.model import first_problem
from pipelines.publish.index.store import AGAIN

_ADDRESS = re.compile(r"github:(?P<repository>[\w.-]+/[\w.-]+)@(?P<tag>[\w./+-]+)")
_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
_PAGE, _FULL = 100, 1000
_MOST = 16 << 20  # bytes of an answer
_SECONDS = (20, 600)
_LARGEST = 2 << 30  # bytes of an asset: GitHub takes less than 2 GiB
_OK, _SERVER = 300, 500


Kind = TypeVar("Kind")


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
    """A temporary server error."""


class Release:
    """One release; raises only our own errors."""

    def __init__(self, address: str, *, api: str = "") -> None:
        """``address`` is ``github:OWNER/REPO@TAG``; the token comes from the environment.

        Raises :class:`ConfigError` for another address or without such a release, and
        :class:`AuthError` without a token.
        """
        match = _ADDRESS.fullmatch(address)
        if match is None:
            raise ConfigError(
                f"--to {safe_line(address, 200)}: not a GitHub release",
                hint="Expected github:OWNER/REPO@TAG.",
            )
        token = next(filter(None, map(os.environ.get, _TOKENS)), "")
        if not token:
            raise AuthError(
                f"{address}: no GitHub token",
                hint="Set GITHUB_TOKEN to a token with write access to the repository's contents.",
            )
        self.name = address
        api = (api or os.environ.get("GITHUB_API_URL") or "https://api.github.com").rstrip("/")
        self._http = requests.Session()
        self._http.headers["Authorization"] = f"Bearer {remember_secret(token)}"
        self._http.headers["Accept"] = "application/vnd.github+json"
        self._http.headers["X-GitHub-Api-Version"] = "2022-11-28"
        self._place = f"{api}/repos/{match['repository']}/releases"
        # Drafts are only in the list, and their addresses change when they are published.
        listed = self._ask(list[_Release], f"{self._place}?per_page={_PAGE}")
        drafts = (one for one in listed if one.draft and one.tag_name == match["tag"])
        tag = quote(match["tag"], safe="")
        self._release = next(drafts, None) or self._ask(_Release, f"{self._place}/tags/{tag}")
        self.assets = self._release.html_url.partition("/releases/")[0]
        self.assets += f"/releases/download/{tag}/"
        self._assets: dict[str, _Asset] = {}
        for page in range(1, _FULL // _PAGE + 2):
            where = f"{self._place}/{self._release.id}/assets?per_page={_PAGE}&page={page}"
            rows = self._ask(list[_Asset], where)
            self._assets |= {asset.name: asset for asset in rows}
            if len(rows) < _PAGE:
                break

    def require_room(self, wheels: Iterable[str]) -> None:
        """:class:`ConfigError` if these and their metadata cannot be added, before any is sent."""
        more = {name for wheel in wheels for name in (wheel, f"{wheel}.metadata")} - {*self._assets}
        here = len(self._assets)
        why = "is immutable: no assets can be added" if more and self._release.immutable else ""
        if here + len(more) > _FULL:
            why = f"has {here} assets; {len(more)} more exceed GitHub's limit of {_FULL}"
        if why:
            raise ConfigError(
                f"{self.name} {why}",
                hint="Nothing was uploaded. Run gh release create NEW-TAG --draft, and publish to "
                "that: it becomes public when it is complete.",
            )

    def finish(self) -> None:
        """Make a draft public, which gives its assets their final addresses."""
        if self._release.draft and self._assets:
            self._retried("PATCH", f"{self._place}/{self._release.id}", json={"draft": False})

    def place(self, name: str, source: Path, sha256: str) -> str:
        """Upload the file as an asset ``name`` unless it exists; return its address.

        Raises :class:`StorageError` if another file has that name, or the upload differs.
        """
        asset = self._assets.get(name)
        if asset is not None and asset.state != "uploaded":
            self._retried("DELETE", f"{self._place}/assets/{asset.id}")
            asset = None
        if asset is None:
            asset = self._upload(name, source)
        self._require(asset, name, source.stat().st_size, sha256)
        self._assets[name] = asset
        return self._address(asset)

    def _address(self, asset: _Asset) -> str:
        drafted = f"{self.assets}{quote(asset.name, safe='')}"
        return drafted if self._release.draft else asset.browser_download_url

    def sha256(self, address: str) -> str:
        """Of the complete asset at an address, as GitHub states it; else it is read."""
        for asset in self._assets.values():
            if asset.state == "uploaded" and self._address(asset) == address:
                return self._digest(asset)
        return ""

    def _upload(self, name: str, source: Path) -> _Asset:
        size = source.stat().st_size
        if size >= _LARGEST:
            raise StorageError(
                f"{name} has {size} bytes, but GitHub's limit is 2 GiB",
                hint="Publish to an object store.",
            )
        address = f"{self._release.upload_url.partition('{')[0]}?name={quote(name, safe='')}"
        with source.open("rb") as stream:
            # Not retried: the remains of a failed upload must be removed first.
            return self._read(_Asset, self._once("POST", address, data=stream))

    def _require(self, asset: _Asset, name: str, size: int, sha256: str) -> None:
        digest = self._digest(asset)
        wrong = ""
        if asset.name != name:
            wrong = f"its name there is {safe_line(asset.name, 200)}"
        elif asset.state != "uploaded":
            wrong = f"its state is {safe_line(asset.state, 40)}"
        elif asset.size != size or digest != sha256:
            wrong = (
                f"it has {asset.size} bytes and sha256 {safe_line(digest, 80)} there, but {size} "
            )
            wrong += f"bytes and sha256 {sha256} here"
        if wrong:
            raise StorageError(
                f"{self.name}: {name}: {wrong}",
                hint="Assets are never replaced: publish to another tag, or remove it there if it "
                "was never installed.",
            )

    def _digest(self, asset: _Asset) -> str:
        if asset.digest and asset.digest.startswith("sha256:"):
            return asset.digest.removeprefix("sha256:")
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
            raise StorageError(f"{self.name}: {safe_line(error, 300)}", hint=AGAIN) from error
        return hashed.hexdigest()

    def _ask(self, kind: type[Kind], address: str) -> Kind:
        return self._read(kind, self._retried("GET", address))

    def _read(self, kind: type[Kind], data: bytes) -> Kind:
        try:
            return TypeAdapter(kind).validate_json(data)
        except ValidationError as error:
            why = f"{self.name}: unexpected response from GitHub: {first_problem(error)}"
            raise StorageError(why, hint=AGAIN) from None

    @retry(
        retry=retry_if_exception_type(_BusyError),
        stop=stop_after_attempt(4),
        wait=wait_exponential(multiplier=0.5),
        reraise=True,
    )
    def _retried(self, method: str, address: str, **more: Any) -> bytes:
        return self._once(method, address, **more)

    def _once(self, method: str, address: str, **more: Any) -> bytes:
        if "data" in more:
            more["headers"] = {"Content-Type": "application/octet-stream"}
        try:
            answer = self._http.request(method, address, timeout=_SECONDS, stream=True, **more)
            with answer:
                data = bytes(answer.raw.read(_MOST + 1, decode_content=True))
        except (requests.RequestException, OSError) as error:
            raise _BusyError(f"{self.name}: {safe_line(error, 300)}", hint=AGAIN) from error
        if answer.status_code >= _OK or len(data) > _MOST:
            self._refuse(method, answer, data)
        return data

    def _refuse(self, method: str, answer: requests.Response, data: bytes) -> NoReturn:
        code, body = answer.status_code, safe_line(data[:500].decode("utf-8", "replace"), 300)
        what = f"{self.name}: {method}: GitHub responded {code}: {body}"
        if code in (401, 403):
            hint = "The token has no write access, or the rate limit is exceeded."
            raise AuthError(what, hint=hint)
        if code == 404:  # noqa: PLR2004
            raise ConfigError(what, hint="Create the release first: gh release create TAG --draft.")
        kind = _BusyError if code >= _SERVER else StorageError
        raise kind(what, hint=AGAIN)
