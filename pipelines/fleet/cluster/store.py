"""The runs that a member has for others' fleets: to be fetched, and those that were sent."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from pipelines.errors import PipelineError, TransferError
from pipelines.files import disk_errors
from pipelines.fleet.cluster import parcels
from pipelines.fleet.cluster.commission import Commission, Parcel, Piece, read
from pipelines.fleet.kept import differs
from pipelines.run import Run

_PACKED, _SENT = "parcels", "sent"
#: Seconds for which packed and sent runs wait for who asked, where invoke fleet join begins anew.
_KEPT = 14 * 24 * 3600.0


class Store:
    """By fleets, below one directory; its verbs are given text and bytes and answer the same."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sealed: dict[str, Path] = {}
        """Seal -> a run here that has it, own or sent."""
        self._forget_old()

    def _forget_old(self) -> None:
        """Remove what nobody has come for: who asked was never begun again."""
        oldest = time.time() - _KEPT
        for folder in (*self._root.glob(f"*/{_PACKED}"), *self._root.glob(f"*/{_SENT}")):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)

    def found(self, seal: str) -> Path | None:
        """The run with that seal, if it is here as it was."""
        run = self._sealed.get(seal)
        if run is None or _seal(run) != seal:
            return None
        return run

    def packed(self, fleet: str, run: Run, *, sealed: bool) -> Parcel:
        """Have a run here be fetched; ``sealed``: later works may need it as well."""
        if sealed:
            self._sealed[parcels.seal_of(run)] = run.path
        return parcels.pack(run, self._root / fleet / _PACKED)[1]

    def forget(self, fleet: str, parcel: Parcel) -> None:
        """It was fetched; the run itself stays."""
        parcels.at(self._root / fleet / _PACKED, parcel).unlink(missing_ok=True)

    def clear(self, fleet: str) -> None:
        """A fleet is over: nothing is fetched of it any more, or needed that was sent."""
        for name in (_PACKED, _SENT):
            shutil.rmtree(self._root / fleet / name, ignore_errors=True)

    def lacks(self, text: str, _data: bytes) -> tuple[str, bytes]:
        """Of the runs that a work comes after, those that are not here: their keys, a line each."""
        asked = read(Commission, text, "the asker")
        return "\n".join(k for k, seal in asked.after.items() if self.found(seal) is None), b""

    def piece(self, text: str, _data: bytes) -> tuple[str, bytes]:
        """A part of a packed run."""
        asked = read(Piece, text, "the asker")
        try:
            with parcels.at(self._root / asked.fleet / _PACKED, asked.parcel).open("rb") as file:
                file.seek(asked.offset)
                return "", file.read(parcels.PIECE)
        except OSError as error:
            raise TransferError(f"{asked.parcel.run} cannot be read: {error.strerror}") from None

    def put(self, text: str, data: bytes) -> tuple[str, bytes]:
        """Take a part of a run that is sent; after the last one the run is looked at."""
        asked = read(Piece, text, "the asker")
        parcel, folder = asked.parcel, self._root / asked.fleet / _SENT
        part = parcels.at(folder, parcel)
        parcels.require_bounded(parcel)
        if asked.offset + len(data) > parcel.size:
            raise TransferError(f"{parcel.run}: more came than its {parcel.size} bytes")
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with part.open("r+b" if asked.offset else "wb") as file:
                file.seek(asked.offset)
                file.write(data)
        if asked.offset + len(data) < parcel.size:
            return "", b""
        try:
            run = parcels.unpack(part, parcel, folder / parcel.sha256[:16] / parcel.run)
        finally:
            part.unlink(missing_ok=True)
        if why := differs(run, share=bool(run.facts().share)):
            raise TransferError(f"{run.id} arrived, and {why}")
        if asked.seal is None or asked.seal != parcels.seal_of(run):
            raise TransferError(f"{run.id} arrived, and is another run than was told")
        host = run.facts().target.host
        if "/" not in host:  # a host of that name may be here, too
            parcels.call_host(run, f"asker/{host}")
        self._sealed[asked.seal] = run.path
        return "", b""


def _seal(run: Path) -> str:
    try:
        return parcels.seal_of(Run(run))
    except (PipelineError, OSError):
        return ""
