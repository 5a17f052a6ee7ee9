"""Surveys of published wheels: their sources, opt-outs, results, and what has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from pipelines import __version__
from pipelines.audit.findings import WheelReport
from pipelines.audit.inputs import Input, resolve_inputs
from pipelines.audit.listing import Listing, plain_name
from pipelines.core import units
from pipelines.core.errors import ConfigError
from pipelines.core.files import disk_errors, write_atomic
from pipelines.core.finding import LEVELS, Finding, Level
from pipelines.core.hosttext import safe_line, shown_url
from pipelines.toolchain.lock import Cache, load_lock

_BEGIN = b'{"file":'  # of each line in a survey's file
#: Address and name of a wheel, and the sha256 that its source states.
Key = tuple[str, str, str]


def list_survey_wheels(
    words: Iterable[str], python: str, most: int | None, report: Callable[[Listing], object]
) -> tuple[list[Input], list[Finding]]:
    """The wheels that sources have, and a finding for each source that could not be read."""
    items: list[Input] = []
    notes = []
    cache = Cache(load_lock())
    for word in words:
        path = Path(word).expanduser()
        for text in read_list_file(path) if path.suffix != ".whl" and path.is_file() else [word]:
            try:
                items += resolve_inputs(
                    [text], cache, python=python, most=most, report=report, download=False
                )
            except ConfigError as error:
                subject = shown_url(text) if "://" in text else text
                why = Finding(id="source", level="unknown", subject=subject, actual=error.message)
                notes.append(why)
    return list(dict.fromkeys(items)), notes


def read_list_file(path: Path) -> list[str]:
    """The lines of a text file, without comments."""
    try:
        rows = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: {safe_line(error, 200)}", hint="Name a text file with one entry per line."
        ) from None
    return [text for row in rows if (text := row.strip()) and not text.startswith("#")]


def is_out(one: Input | WheelReport, out: Iterable[str]) -> bool:
    """Whether ``out`` has a wheel's project, or the beginning of its address."""
    name = plain_name(one.file)
    return any(
        one.place.startswith(shown_url(text)) or (name and name.project == canonicalize_name(text))
        for text in out
    )


def read_survey_file(path: Path) -> list[WheelReport]:
    """The wheels in a survey's file; a last line that was not written whole is left out."""
    with suppress(OSError, ValidationError):
        *rows, rest = path.read_bytes().split(b"\n")
        if _BEGIN.startswith(rest[: len(_BEGIN)]):
            return [WheelReport.model_validate_json(row) for row in rows]
    raise ConfigError(
        f"{path} is not a survey file, or is damaged", hint="Name a different file, or a new one."
    )


def start_survey(path: Path) -> dict[Key, WheelReport]:
    """Begin a survey's file, or continue it: the wheels in it that could be read."""
    done = [one for one in read_survey_file(path) if is_read(one)] if path.exists() else []
    write_atomic(path, "".join(f"{one.model_dump_json()}\n" for one in done).encode())
    return {(one.place, one.file, digest): one for one in done for digest in (one.sha256, "")}


def append_report(path: Path, one: WheelReport) -> None:
    """Add a wheel to a survey's file."""
    with disk_errors(path.parent), path.open("a", encoding="utf-8") as file:
        file.write(f"{one.model_dump_json()}\n")


def is_read(one: WheelReport) -> bool:
    """Whether anything in it could be read."""
    return not any(found.failed and found.id in ("readable", "taken") for found in one.findings)


def survey_changes(
    now: Iterable[WheelReport], earlier: Iterable[WheelReport], *, complete: bool
) -> Iterator[Finding]:
    """What is different; without ``complete`` a missing wheel may just not have been listed."""
    old = {(one.place, one.file): one for one in earlier}
    for one in now:
        before = old.pop((one.place, one.file), None)
        if before is None:
            yield Finding(id="new", level="ok", subject=one.file, actual="was not there before")
        elif is_read(one) and is_read(before):
            yield from _compare_wheel_reports(before, one)
    for one in old.values():
        actual = "no longer listed" if complete else "not listed, but the listing is incomplete"
        level: Level = "warning" if complete else "unknown"
        yield Finding(id="gone", level=level, subject=one.file, actual=actual)


def _compare_wheel_reports(old: WheelReport, new: WheelReport) -> Iterator[Finding]:
    if old.size != new.size or len({old.sha256, new.sha256} - {""}) > 1:
        actual = "a different file under the same name and address"
        hint = f"{old.size} bytes, sha256 {old.sha256} before; {new.size}, {new.sha256} now"
        yield Finding(id="bytes", level="error", subject=new.file, actual=actual, hint=hint)
    before = {(one.id, one.subject): one for one in old.findings if one.checked}
    for one in new.findings:
        was = before.get((one.id, one.subject), one)
        if one.checked and was.level != one.level:
            worse = LEVELS.index(one.level) < LEVELS.index(was.level)
            yield Finding(
                id="worse" if worse else "better",
                level="warning" if worse else "ok",
                subject=new.file,
                actual=f"{one.label}: {was.level} before, {one.level} now",
                hint=one.text,
            )


def issue_sentence(one: WheelReport) -> str:
    """What an issue report needs; empty if nothing is wrong."""
    wrong = [
        f"{found.label}: {found.text}" + (f" ({found.hint})" if found.hint else "")
        for found in (*one.of("error"), *one.of("warning"))
        if found.id != "upload"  # it is published already
    ]
    if not wrong:
        return ""
    read = units.format_size(one.fetched) if one.partial else "all"
    digest = f"{'stated ' * one.partial}sha256 {one.sha256 or 'unknown'}"
    return (
        f"{one.file} ({digest}) from {one.place}: {'; '.join(wrong)}. "
        f"Read {read} of it with windows-cuda-wheels {__version__}; nothing was run."
    )
