"""Fixed places for what is being compiled, for compilers write down where it stood."""

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

#: Seconds that compilers which were ended, and scanners, may hold a directory.
_TURN = 10.0 if sys.platform == "win32" else 0.0
#: Seconds that a reproducible build waits for another one.
_PATIENCE = 600.0


@contextlib.contextmanager
def moved(source: pathlib.Path, place: pathlib.Path) -> Iterator[pathlib.Path]:
    """The tree ``source`` at ``place`` while the block runs; ``source`` itself if that fails.

    One at a time: the caller holds a lock. What a build that was killed left there goes home first.
    """
    note = place.with_name(f"{place.name}.home")
    there = _go(source, place, note)
    try:
        yield place if there else source
    finally:
        if there:
            with contextlib.suppress(OSError):  # a scanner is at it: the next build moves it home
                _home(place, note)


def _go(source: pathlib.Path, place: pathlib.Path, note: pathlib.Path) -> bool:
    try:
        protected_dirs.make(place.parent)
        _home(place, note)
        note.write_text(json.dumps(str(source)), "utf-8")
        if source.exists():
            _rename(source, place)
        else:
            place.mkdir()
    except OSError:
        return False
    return True


def _home(place: pathlib.Path, note: pathlib.Path) -> None:
    if place.exists():
        try:
            home = pathlib.Path(json.loads(note.read_text("utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            home = place  # nobody knows whose it is
        if home != place and home.parent.is_dir() and not home.exists():
            _carry(place, home)
        else:  # its job was removed meanwhile
            files.remove_tree(str(place))
    note.unlink(missing_ok=True)


@contextlib.contextmanager
def standing(source: pathlib.Path, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """The tree ``source`` at ``folder / "src"`` while the block runs, and nowhere else.

    Raises ``OSError`` where that cannot be: another build is at it, or the folder is not ours.
    """
    _own(folder)
    place = folder / "src"
    with locks.claim(folder / "in-use", _PATIENCE) as mine:
        if not mine:
            raise OSError(f"another reproducible build on this host is at {place}: wait for it")
        note = place.with_name(f"{place.name}.home")
        _home(place, note)
        note.write_text(json.dumps(str(source)), "utf-8")
        if source.exists():
            _carry(source, place)
        else:
            place.mkdir()
        try:
            yield place
        finally:
            with contextlib.suppress(OSError):  # a scanner is at it: the next build moves it home
                _home(place, note)


def _own(folder: pathlib.Path) -> None:
    """Make the directory, or see that it is one of ours: who may write there chooses the source."""
    if sys.platform == "win32":
        protected_dirs.make(folder)
        return
    protected_dirs.make(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"{folder} is not a directory that this user alone may change: remove it")


@contextlib.contextmanager
def linked(place: pathlib.Path) -> Iterator[pathlib.Path]:
    """A place where there is nothing, for a link that the build may put there while the block runs.

    Links alone are removed, never what they lead to. One at a time: the caller holds a lock.
    """
    protected_dirs.make(place.parent)
    _unlink(place)  # of a build that was killed
    try:
        yield place
    finally:
        with contextlib.suppress(OSError):  # the next build does it
            _unlink(place)


def _unlink(place: pathlib.Path) -> None:
    """Remove a link, or an empty directory; raises ``OSError`` for what holds anything."""
    try:
        place.readlink()
    except FileNotFoundError:
        return
    except OSError:  # what CreateJunction leaves where a file system has none
        files.patiently(place.rmdir, seconds=_TURN)
    else:
        files.patiently(place.unlink, seconds=_TURN)


def _carry(source: pathlib.Path, target: pathlib.Path) -> None:
    """Rename a directory, or copy it where the target is on another disk."""
    try:
        _rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(source, target)


def _rename(source: pathlib.Path, target: pathlib.Path) -> None:
    """Rename a directory, never over another one."""
    files.patiently(lambda: os.rename(source, target), seconds=_TURN)  # noqa: PTH104
