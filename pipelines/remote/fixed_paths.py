"""Fixed paths for source trees, because compilers embed the paths."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import shutil
import stat
import sys
from collections.abc import Iterator

from . import files, locks, protected_dirs

#: Seconds that killed compilers, and scanners, may hold a directory.
_TURN = 10.0 if sys.platform == "win32" else 0.0
#: Seconds that a reproducible build waits for another one.
_PATIENCE = 600.0


@contextlib.contextmanager
def moved_to(source: pathlib.Path, place: pathlib.Path) -> Iterator[pathlib.Path]:
    """The tree ``source`` at ``place`` while the block runs; ``source`` itself if that fails.

    One at a time: the caller holds a lock. The tree of a killed build is moved back first.
    """
    note = place.with_name(f"{place.name}.home")
    there = _move_in(source, place, note)
    try:
        yield place if there else source
    finally:
        if there:
            with contextlib.suppress(OSError):  # a scanner holds it: the next build moves it back
                _move_back(place, note)


def _move_in(source: pathlib.Path, place: pathlib.Path, note: pathlib.Path) -> bool:
    try:
        protected_dirs.make(place.parent)
        _move_back(place, note)
        note.write_text(json.dumps(str(source)), "utf-8")
        if source.exists():
            _rename(source, place)
        else:
            place.mkdir()
    except OSError:
        return False
    return True


def _move_back(place: pathlib.Path, note: pathlib.Path) -> None:
    if place.exists():
        try:
            home = pathlib.Path(json.loads(note.read_text("utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            home = place  # its owner is unknown
        if home != place and home.parent.is_dir() and not home.exists():
            _move_across(place, home)
        else:  # its job was removed
            files.remove_tree(str(place))
    note.unlink(missing_ok=True)


@contextlib.contextmanager
def built_at(source: pathlib.Path, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """The tree ``source`` at ``folder / "src"`` while the block runs, and nowhere else.

    Raises ``OSError`` if that is impossible: another build uses it, or the folder is not ours.
    """
    _own_directory(folder)
    place = folder / "src"
    with locks.claim(folder / "in-use", _PATIENCE) as mine:
        if not mine:
            raise OSError(f"another reproducible build on this host uses {place}: wait for it")
        note = place.with_name(f"{place.name}.home")
        _move_back(place, note)
        note.write_text(json.dumps(str(source)), "utf-8")
        if source.exists():
            _move_across(source, place)
        else:
            place.mkdir()
        try:
            yield place
        finally:
            with contextlib.suppress(OSError):  # a scanner holds it: the next build moves it back
                _move_back(place, note)


def _own_directory(folder: pathlib.Path) -> None:
    """Create the directory, or check that it is ours: write access controls the source."""
    if sys.platform == "win32":
        protected_dirs.make(folder)
        return
    protected_dirs.make(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"{folder} is not a directory writable by this user alone: remove it")


@contextlib.contextmanager
def linked(place: pathlib.Path) -> Iterator[pathlib.Path]:
    """A free path for a link that the build may create there while the block runs.

    Only links are removed, never their targets. One at a time: the caller holds a lock.
    """
    protected_dirs.make(place.parent)
    _unlink(place)  # left by a killed build
    try:
        yield place
    finally:
        with contextlib.suppress(OSError):  # the next build does it
            _unlink(place)


def _unlink(place: pathlib.Path) -> None:
    """Remove a link, or an empty directory; raises ``OSError`` if it has contents."""
    try:
        place.readlink()
    except FileNotFoundError:
        return
    except OSError:  # left by CreateJunction on a file system without junctions
        files.patiently(place.rmdir, seconds=_TURN)
    else:
        files.patiently(place.unlink, seconds=_TURN)


def _move_across(source: pathlib.Path, target: pathlib.Path) -> None:
    """Rename a directory, or copy it if the target is on another disk."""
    try:
        _rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(source, target)


def _rename(source: pathlib.Path, target: pathlib.Path) -> None:
    """Rename a directory, never over an existing one."""
    files.patiently(lambda: os.rename(source, target), seconds=_TURN)  # noqa: PTH104
