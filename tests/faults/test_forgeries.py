"""Lies about a run or an index, each consistent as far as whoever tells it can: none is taken.

Every field of every file is changed at each moment: before a run is signed, before it is published,
between check and publish, in the index before its next publish, and where a wheel arrives. Who lies
has no key of the controller.
"""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from indexes import finished, offers_of
from records import rewrite
from test_provenance import pair
from test_rebuild import party, tree

from pipelines.cli import program
from pipelines.publish.index.publishing import Order, publish_wheels
from pipelines.publish.index.store import Store
from pipelines.publish.provenance.signing import load_private, sign_envelope
from pipelines.publish.provenance.statement import (
    MANIFEST,
    SIGNED,
    UNSIGNED,
    encode_statement,
    make_statement,
    write_statements,
)
from pipelines.record.run import Run
from pipelines.stages.line import run_build
from pipelines.stages.manifest import write_manifest

Lie = Callable[[Path], object]
#: Minimum number of forgeries at each of the five moments.
LEAST = 100


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every plain value of a JSON is."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    elif path:
        yield path


def other(value: Any) -> Any:
    """A value of the same kind that is another."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str) and value:
        return ("0" if value[0] != "0" else "1") + value[1:]
    return "another"


def edited(name: str, where: tuple[Any, ...]) -> Lie:
    """Another value, in the form in which the file was written; with the statement that follows."""

    def edit(folder: Path) -> None:
        was = (folder / name).read_text()
        told = json.loads(was)
        forms: list[dict[str, Any]] = [
            {"indent": 2},
            {"indent": 1},
            {"indent": 1, "sort_keys": True},
            {},
        ]
        form = next(one for one in forms if json.dumps(told, **one) == was.rstrip("\n"))
        inner = told
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = other(inner[where[-1]])
        data = json.dumps(told, **form) + was[len(was.rstrip("\n")) :]
        (folder / name).write_text(data)
        if name == MANIFEST and any(folder.glob(f"*{UNSIGNED}")):
            with suppress(ValueError):
                write_statements(folder, data.encode())

    return edit


def of_json(folder: Path, name: str) -> Iterator[tuple[str, Lie]]:
    for where in leaves(json.loads((folder / name).read_bytes())):
        yield f"{name} {where}", edited(name, where)


def of_bytes(folder: Path, name: str) -> Iterator[tuple[str, Lie]]:
    """One bit, a cut, nothing at all."""

    def change(make: Callable[[bytes], bytes]) -> Lie:
        return lambda folder: (folder / name).write_bytes(make((folder / name).read_bytes()))

    size = (folder / name).stat().st_size
    for at in range(0, size, max(1, size // 4)):

        def flip(data: bytes, at: int = at) -> bytes:
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

        yield f"{name} bit at {at}", change(flip)
    yield f"{name} cut", change(lambda data: data[:-1])
    yield f"{name} longer", change(lambda data: data + b"\n ")
    yield f"{name} gone", lambda folder: (folder / name).unlink()


def of_record(run: Path) -> Iterator[tuple[str, Lie]]:
    """Each row changed, sealed or not, with the manifest made again to agree; or gone."""
    columns = {"facts": ("key", "value"), "stages": ("name", "result")}
    with closing(sqlite3.connect(run / "record.sqlite")) as database:
        rows = [
            (table, name, value)
            for table, (key, column) in columns.items()
            for name, value in database.execute(f"SELECT {key}, {column} FROM {table}")  # noqa: S608
        ]
    for table, name, value in rows:
        key, column = columns[table]
        changed = json.dumps(other(json.loads(value))) if table == "facts" else "null"
        update = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"  # noqa: S608

        def plain(folder: Path, update: str = update, values: Any = (changed, name)) -> None:
            with closing(sqlite3.connect(folder / "record.sqlite")) as database, database:
                database.execute(update, values)

        def sealed(folder: Path, update: str = update, values: Any = (changed, name)) -> None:
            rewrite(Run(folder), update, values)
            try:
                write_manifest(Run(folder))
            except Exception:
                return

        def gone(folder: Path, table: str = table, key: str = key, name: str = name) -> None:
            with closing(sqlite3.connect(folder / "record.sqlite")) as database, database:
                database.execute(f"DELETE FROM {table} WHERE {key} = ?", (name,))  # noqa: S608

        yield f"{table} {name} changed", plain
        yield f"{table} {name} changed and sealed anew", sealed
        yield f"{table} {name} gone", gone


def taken(folder: Path, room: Path, lies: Iterator[tuple[str, Lie]], words: list[str]) -> list[str]:
    """The forgeries with which the command succeeds; each is made in a copy of ``folder``."""
    accepted, names = [], []
    for name, lie in lies:
        names.append(name)
        copy = room / "copy"
        shutil.copytree(folder, copy)
        lie(copy)
        if program.run_command_line([word.replace("COPY", str(copy)) for word in words]) == 0:
            accepted.append(name)
        shutil.rmtree(copy)
    assert len(names) >= LEAST
    return accepted


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_no_lie_about_a_run_is_published(tmp_path: Path) -> None:
    run = finished(tmp_path / "out").path
    words = ["publish", "COPY", "--to", str(tmp_path / "index"), "--dry-run"]
    assert program.run_command_line([word.replace("COPY", str(run)) for word in words]) == 0
    wheel = next((run / "wheels").glob("*.whl")).relative_to(run).as_posix()

    def lies() -> Iterator[tuple[str, Lie]]:
        yield from of_json(run, "manifest.json")
        yield from of_record(run)
        yield from of_bytes(run, wheel)
        yield from of_bytes(run, "smoke.xml")

    assert taken(run, tmp_path, lies(), words) == []


def test_no_lie_about_a_run_is_signed(tmp_path: Path) -> None:
    run = run_build(party(tmp_path, "they", tree(tmp_path)))
    key, _ = pair(tmp_path, "key")
    words = ["attest", "COPY", "--key", str(key)]
    wheel = next((run / "wheels").glob("*.whl"))

    def lies() -> Iterator[tuple[str, Lie]]:
        yield from of_json(run, "manifest.json")
        yield from of_json(run, wheel.name + UNSIGNED)
        yield from of_record(run)
        yield from of_bytes(run, f"wheels/{wheel.name}")

    assert taken(run, tmp_path, lies(), words) == []
    assert program.run_command_line([word.replace("COPY", str(run)) for word in words]) == 0
    assert (run / (wheel.name + SIGNED)).is_file()


def test_no_lie_in_an_index_is_built_on(tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert (
        program.run_command_line(
            ["publish", str(finished(tmp_path / "out").path), "--to", str(index)]
        )
        == 0
    )
    more = finished(tmp_path / "more", cuda="12.6").path

    def lies() -> Iterator[tuple[str, Lie]]:
        yield from of_json(index, "catalogue.json")
        for path in sorted((index / "files").rglob("*")):
            if path.is_file() and not path.name.endswith("-variants.json"):  # made again
                yield from of_bytes(index, path.relative_to(index).as_posix())

    assert taken(index, tmp_path, lies(), ["publish", str(more), "--to", "COPY", "--dry-run"]) == []


def test_no_lie_after_the_check_is_published(tmp_path: Path) -> None:
    """A forgery after the run was checked changes nothing of what is uploaded."""
    run = finished(tmp_path / "out").path
    wheel = next((run / "wheels").glob("*.whl")).relative_to(run).as_posix()

    def uploaded(lie: Lie, name: str) -> dict[str, bytes]:
        copy, index = tmp_path / "copy" / run.name, tmp_path / name
        shutil.copytree(run, copy)
        offers = offers_of([Run(copy)], untested=False)
        lie(copy)
        publish_wheels(Store(str(index)), Order(offers=offers), say=lambda _: None)
        shutil.rmtree(copy)
        found = {p.relative_to(index).as_posix(): p for p in (index / "files").rglob("*.*")}
        made = {name: path.read_bytes() for name, path in found.items() if path.is_file()}
        shutil.rmtree(index)
        return made

    honest = uploaded(lambda _: None, "honest")
    assert len(honest) > 4
    lies = [
        *of_json(run, "manifest.json"),
        *of_record(run),
        *of_bytes(run, wheel),
        *of_bytes(run, "smoke.xml"),
    ]
    assert len(lies) >= LEAST
    assert [name for at, (name, lie) in enumerate(lies) if uploaded(lie, f"i{at}") != honest] == []


def test_no_lie_about_a_wheel_that_arrives_is_verified(tmp_path: Path) -> None:
    """Wheel, statement and manifest as they were published, or signed by another key."""
    run = run_build(party(tmp_path, "they", tree(tmp_path)))
    (key, public), (theirs, _) = pair(tmp_path, "key"), pair(tmp_path, "theirs")
    assert program.run_command_line(["attest", str(run), "--key", str(key)]) == 0
    away = tmp_path / "away"
    away.mkdir()
    wheel = next((run / "wheels").glob("*.whl"))
    envelope = f"{wheel.name}{SIGNED}"
    for path in (wheel, run / "manifest.json", run / envelope):
        shutil.copy(path, away)
    words = ["verify", f"COPY/{wheel.name}", "--key", str(public)]
    assert program.run_command_line([word.replace("COPY", str(away)) for word in words]) == 0
    said = json.loads(base64.b64decode(json.loads((away / envelope).read_text())["payload"]))

    def signed(where: tuple[Any, ...], *, anew: bool) -> Lie:
        """The payload with another value, under the old signature or one of their key."""

        def lie(folder: Path) -> None:
            (folder / "said").write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")
            edited("said", where)(folder)
            payload = (folder / "said").read_bytes()
            told = json.loads((folder / envelope).read_text())
            told["payload"] = base64.b64encode(payload).decode()
            data = json.dumps(told).encode()
            if anew:
                data = sign_envelope(payload, load_private(theirs, str))
            (folder / envelope).write_bytes(data)

        return lie

    def of_another(where: tuple[Any, ...]) -> Lie:
        """Manifest, and the statement that follows from it, signed by their key."""

        def lie(folder: Path) -> None:
            edited(MANIFEST, where)(folder)
            with suppress(ValueError):
                whole = make_statement((folder / MANIFEST).read_bytes(), wheel.name)
                data = sign_envelope(encode_statement(whole), load_private(theirs, str))
                (folder / envelope).write_bytes(data)

        return lie

    def lies() -> Iterator[tuple[str, Lie]]:
        of_it = ("files", 0, "path")  # else it is another wheel's, and said not to be checked
        yield from (
            row for row in of_json(away, "manifest.json") if not row[0].endswith(str(of_it))
        )
        yield from ((n, lie) for n, lie in of_bytes(away, wheel.name) if "gone" not in n)
        for where in leaves(json.loads((away / MANIFEST).read_bytes())):
            if where != of_it:
                yield f"manifest and payload {where}, signed by another", of_another(where)
        for where in leaves(said):
            yield f"payload {where}", signed(where, anew=False)
            yield f"payload {where}, signed by another", signed(where, anew=True)

    assert taken(away, tmp_path, lies(), words) == []
