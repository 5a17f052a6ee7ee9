"""The files of a commit, the same on every system."""

from __future__ import annotations

import os
import posixpath
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from pipelines.core.errors import ConfigError, LockError, SetupError
from pipelines.core.shell import INSTALL_GIT
from pipelines.recipe.origin import GitSource

#: What a published tree may have from its own making; of a directory here :mod:`worktree` knows.
MADE = frozenset({"build", "dist", "__pycache__", ".pytest_cache", ".git"})
_MOST_LINKS = 40  # one leading to the next, as Linux bounds it
_GIT_SECONDS = 1800

Member = tuple[str, bytes]
"""A file's name with ``/``, and what is in it."""


def commit_files(source: GitSource, protocol: str = "https") -> Iterator[Member]:
    """The files of a commit with the submodules that are named, from a clone for this once."""
    with tempfile.TemporaryDirectory(prefix="source-") as scratch:
        _run_isolated_git(scratch, protocol, "init", "--quiet")
        _run_isolated_git(
            scratch, protocol, "fetch", "--quiet", "--depth=1", source.git, source.commit
        )
        _run_isolated_git(scratch, protocol, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        found = _run_isolated_git(scratch, protocol, "rev-parse", "HEAD").strip()
        if found != source.commit:
            raise LockError(f"{source.git} gave {found}, pinned is {source.commit}")
        if source.submodules:
            words = ("submodule", "--quiet", "update", "--init", "--depth=1", "--")
            _run_isolated_git(scratch, protocol, *words, *source.submodules)
        listed = _run_isolated_git(
            scratch, protocol, "ls-files", "--stage", "-z", "--recurse-submodules"
        )
        rows = (row.partition("\t") for row in listed.split("\0"))
        links = {name for about, _, name in rows if about.startswith("120000 ")}
        yield from _iter_checkout_files(Path(scratch), links)


def _run_isolated_git(directory: str, protocol: str, *words: str) -> str:
    """Run git in isolation: no configuration, no hooks, no questions, one protocol."""
    options = ["protocol.allow=never", f"protocol.{protocol}.allow=always"]
    options += ["core.hooksPath=/dev/null", "advice.detachedHead=false"]
    # The bytes of the commit, on Windows too, where links need a privilege.
    options += ["core.autocrlf=false", "core.eol=lf", "core.symlinks=false"]
    command = ["git", *(word for option in options for word in ("-c", option)), *words]
    nothing = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    environment = {**os.environ, **nothing, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise SetupError(
            "git is not installed here", hint=f"Type: {INSTALL_GIT}, or similar."
        ) from None
    except subprocess.TimeoutExpired:
        raise LockError(
            f"git {words[0]} took longer than {_GIT_SECONDS} s", hint="Is the network slow?"
        ) from None
    if done.returncode:
        last = " | ".join(done.stderr.strip().splitlines()[-3:])[:500] or "no message"
        raise LockError(f"git {words[0]} failed: {last}", hint="Check the network and the url.")
    return done.stdout


def _iter_checkout_files(tree: Path, links: Collection[str]) -> Iterator[Member]:
    """Files of a checkout without symbolic links: what would be one has the path that it leads to.

    It gets the bytes of the file there; one that leads to a directory, or nowhere, is left out.
    """
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        if not MADE & {*name.split("/")} and path.is_file():
            there = tree / _followed(tree, name, links)
            if there.is_file():
                yield name, there.read_bytes()


def _followed(tree: Path, name: str, links: Collection[str]) -> str:
    """Where a file is in the end; nothing where its links go round."""
    there = name
    for _ in range(_MOST_LINKS):
        parts = there.split("/")
        upwards = ("/".join(parts[: count + 1]) for count in range(len(parts)))
        link = next((one for one in upwards if one in links), None)
        if link is None:
            return there
        to = (tree / link).read_text("utf-8", "replace")
        rest = parts[link.count("/") + 1 :]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(link), to, *rest))
        if there.split("/")[0] in ("", ".."):
            raise ConfigError(
                f"{name} of that commit is a link out of the tree",
                hint="Ask its authors for a commit without it, or build a directory here.",
            )
    return ""
