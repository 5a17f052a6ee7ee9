"""Patches of a recipe: unified diffs in files of ours, pinned, and applied to the letter.

The source that they are for is pinned as well, so there is nothing to search for: every line that a
patch keeps or takes out stands where the patch says, or nothing is built. They change files that
are there, and neither make nor remove any.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import ConfigError
from pipelines.core.files import sha256_of
from pipelines.core.model import suggest_nearest
from pipelines.core.paths import PACKAGE, project_dir
from pipelines.recipe.model import Patch, Recipe

SHIPPED = PACKAGE / "recipes"
_MOST = 1 << 20  # bytes of a patch
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
Member = tuple[str, bytes]
_NO_END = "\\ No newline at end of file"


@dataclass(frozen=True)
class Hunk:
    """Lines of a file that become others; with their ends, but for a last one that has none."""

    line: int
    """Where it begins in the file as it is, from 0."""
    old: tuple[str, ...]
    new: tuple[str, ...]


def patch_file(patch: Patch) -> Path:
    """The file of ``patch``: of the project, or of those that come with the recipes.

    Raises :class:`ConfigError` when there is none, or when it is not what the recipe pins.
    """
    places = [project_dir() / patch.file, SHIPPED / patch.file]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        known = [one.relative_to(SHIPPED).as_posix() for one in SHIPPED.glob("patches/*/*.patch")]
        raise ConfigError(
            f"patches: there is no file {places[0]}{suggest_nearest(patch.file, known)}",
            hint="Name it as seen from pipeline.yaml.",
        )
    if path.stat().st_size > _MOST:
        raise ConfigError(f"patches: {path} has more than {_MOST >> 20} MiB: that is not a patch")
    if (found := sha256_of(path)) != patch.sha256:
        raise ConfigError(
            f"patches: {path} has sha256 {found}, the recipe pins {patch.sha256}",
            hint="One of them was changed: read the patch, then write its sha256 there.",
        )
    return path


def read_patch(patch: Patch) -> dict[str, list[Hunk]]:
    """File of the source tree (with ``/``) -> what becomes of it, in the file's order.

    Raises :class:`ConfigError` for what is no unified diff, or makes, removes or renames a file.
    """
    path = patch_file(patch)
    try:
        return dict(_parse_patch_files(path.read_text("utf-8").split("\n")))
    except (ValueError, IndexError) as error:
        why = "it ends within a change" if isinstance(error, IndexError) else error
        raise ConfigError(
            f"patches: {path} is not a unified diff: {why}",
            hint="Create it with git diff. It may only change existing files, not their names.",
        ) from None


def _parse_patch_files(lines: list[str]) -> Iterator[tuple[str, list[Hunk]]]:
    at, seen = 0, set[str]()
    while at < len(lines):
        if _HUNK.match(lines[at]):
            raise ValueError(f"line {at + 1} belongs to no file")
        if not lines[at].startswith("--- "):
            at += 1
            continue
        if not lines[at + 1].startswith("+++ "):
            raise ValueError(f"line {at + 2} does not begin with +++")
        names = {_patched_file_name(line) for line in lines[at : at + 2]}
        if len(names) != 1 or "" in names:
            raise ValueError(f"line {at + 1} makes, removes or renames a file")
        (name,) = names
        if name in seen:
            raise ValueError(f"{name} is in it twice")
        seen.add(name)
        at, hunks = at + 2, []
        while at < len(lines) and (found := _HUNK.match(lines[at])):
            at, hunk = _hunk(lines, at + 1, *(int(part or 1) for part in found.group(1, 2, 4)))
            hunks.append(hunk)
        if not hunks:
            raise ValueError(f"{name} has no change")
        yield name, hunks
    if not seen:
        raise ValueError("no line in it begins with ---")


def _patched_file_name(line: str) -> str:
    """A file in ``--- a/setup.py``, without the first directory; empty for /dev/null."""
    name = line[4:].split("\t", maxsplit=1)[0].strip()
    return "" if name == "/dev/null" else name.partition("/")[2]


def _hunk(lines: list[str], at: int, line: int, old: int, new: int) -> tuple[int, Hunk]:
    """The hunk whose lines begin at ``at``, and where the next thing begins."""
    sides: tuple[list[str], list[str]] = [], []
    last: list[list[str]] = []
    while len(sides[0]) < old or len(sides[1]) < new or lines[at : at + 1] == [_NO_END]:
        if lines[at] == _NO_END and last:
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
        elif (mark := lines[at][:1]) in {" ", "-", "+"}:
            last = [side for side, marks in zip(sides, (" -", " +"), strict=True) if mark in marks]
            for side in last:
                side.append(f"{lines[at][1:]}\n")
        else:
            raise ValueError(f"line {at + 1} begins with none of ' ', + and -")
        at += 1
    if (len(sides[0]), len(sides[1])) != (old, new):
        raise ValueError(f"the change before line {at + 1} does not match its header")
    return at, Hunk(max(line - 1, 0), tuple(sides[0]), tuple(sides[1]))


def apply_patches(recipe: Recipe, members: Iterable[Member]) -> Iterator[Member]:
    """``members`` of the source with the recipe's patches, in their order.

    Raises :class:`ConfigError` when one does not fit: the source is another one than it is for.
    """
    if not recipe.patches:
        yield from members
        return
    patches = [(patch.file, read_patch(patch)) for patch in recipe.patches]
    wanted = {name for _, changes in patches for name in changes}
    for name, data in members:
        changed = data
        if name in wanted:
            wanted.discard(name)
            for file, changes in patches:
                changed = _apply_hunks(recipe, file, name, changed, changes.get(name, []))
        yield name, changed
    if wanted:
        raise _unfit_patch_error(
            recipe, f"the source has no {min(wanted)}, which its patches change"
        )


def _apply_hunks(recipe: Recipe, file: str, name: str, data: bytes, hunks: list[Hunk]) -> bytes:
    if not hunks:
        return data
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _unfit_patch_error(
            recipe, f"{name}, which {file} changes, is not UTF-8 text"
        ) from None
    lines = io.StringIO(text, newline="\n").readlines()  # as diff has them: a form feed ends none
    made: list[str] = []
    done = 0
    for hunk in hunks:
        after = hunk.line + len(hunk.old)
        there = lines[hunk.line : after]
        if hunk.line < done or tuple(map(_normalise_line_end, there)) != hunk.old:
            raise _unfit_patch_error(recipe, f"{file} does not fit {name} at line {hunk.line + 1}")
        whole = [line for line in there if line.endswith("\n")] or lines[:1]
        ends = {line.endswith("\r\n") for line in whole}
        if len(ends) > 1:
            raise _unfit_patch_error(
                recipe, f"{name} has mixed line endings at line {hunk.line + 1}"
            )
        new = [line.replace("\n", "\r\n") for line in hunk.new] if True in ends else hunk.new
        made += [*lines[done : hunk.line], *new]
        done = after
    return "".join([*made, *lines[done:]]).encode()


def _normalise_line_end(line: str) -> str:
    """A line as it would be with the ends of POSIX."""
    return f"{line[:-2]}\n" if line.endswith("\r\n") else line


def _unfit_patch_error(recipe: Recipe, what: str) -> ConfigError:
    return ConfigError(
        f"recipe {recipe.name} {recipe.version}: {what}",
        hint="A patch is for one release: rewrite it for this one, or remove it from patches.",
    )
