"""The answer for people and for programs."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pipelines.publish.which.causes import Finding
from pipelines.publish.which.choosing import Judged
from pipelines.publish.which.listed import Row, place_of
from pipelines.publish.which.looking import find_installed, names_in
from pipelines.publish.which.reporting import Package, Report
from pipelines.publish.which.texts import ascii_line, version_key

_WIDTH = 98


#: By what commands are pasted into: how a program is quoted that is not plain, two of them are
#: joined so that the second is for a first that did not fail, and what stands in place of what.
#: PowerShell 5.1 has no &&; in a file cmd reads %2 as a word.
FORMS = {
    "PowerShell": ("& '{}'", "{}; if ($?) {{ {} }}", "", ""),
    "cmd": ('"{}"', "{} && {}", "", ""),
    ".bat": ('"{}"', "{} && {}", "%", "%%"),
    "bash": ("{}", "{} && {}", "\\", "/"),
}


def pip_installs(python: str, what: Sequence[str], torch: str) -> tuple[list[str], list[str]]:
    """What has pip install a wheel that ``what`` names, whatever is there: two commands.

    The first installs what it requires, and keeps torch or refuses. If another wheel of the same
    version is installed, pip keeps that and exits with 0: so the second forces it, and only it.
    """
    pip = [python, "-m", "pip", "install"]
    first = [*pip, *what, *([f"torch=={torch}"] * bool(torch))]
    return first, [*pip, "--force-reinstall", "--no-deps", *what]


def uv_installs(start: Sequence[str], index: str, what: str, torch: str) -> list[str]:
    """The same with uv, of an index: of an address uv does not compare the hash.

    ``start`` is ``uv add``, or ``uv pip install`` with its flags.
    """
    project = what.partition("==")[0]
    kind = "--only-binary" if "pip" in start else "--no-build-package"
    words = [*start, "--index", index, "--reinstall-package", project, kind, project, what]
    return [*words, *([f"torch=={torch}"] * bool(torch))]


def command_of(found: Report, judged: Judged, base: str) -> list[list[str]]:
    """What installs a wheel: torch is named as it is, so that pip keeps it or refuses.

    A second command forces it where a wheel of its release is there already.
    """
    row = judged.row
    address = f"{place_of(row, base)}#sha256={row.sha256}"
    new, again = pip_installs(found.place.executable, [address], found.torch_installed)
    return [new, again] if _find_installed_package(found, row) else [new]


def commands_of(found: Report, judged: Judged, base: str) -> dict[str, str]:
    """That command for each place that it may be pasted into, and the one of uv."""
    row, forms = judged.row, [*FORMS] if found.place.windows else ["bash"]
    start = ["uv", "pip", "install", "--python", found.place.executable]
    what = f"{row.project}=={row.version}"
    uv = uv_installs(start, f"{base}plain/", what, found.torch_installed)
    said = {form: format_for_shell(command_of(found, judged, base), form) for form in forms}
    return {**said, "uv": format_for_shell([uv], "cmd" if found.place.windows else "bash")}


def _find_installed_package(found: Report, row: Row) -> Package | None:
    """The installed package that has a wheel's release."""
    for one in found.packages:
        with contextlib.suppress(ValueError):
            same = version_key(one.installed.version) == version_key(row.version)
            if same and one.installed.project == row.project:
                return one
    return None


def format_for_shell(commands: Sequence[Sequence[str]], form: str) -> str:
    """As they are pasted into one of :data:`FORMS`."""
    (quoted, then, swap, by), lines = FORMS[form], []
    for program, *words in commands:
        start = program.replace("'", "''") if form == "PowerShell" else program
        start = quoted.format(shlex.quote(program) if form == "bash" else start)
        said = [_quote_shell_word(one, form) for one in words]
        lines.append(" ".join([program if is_plain(program) else start, *said]))
    text = lines[0] if len(lines) == 1 else then.format(*lines)
    return text.replace(swap, by) if swap else text


def _quote_shell_word(word: str, form: str) -> str:
    if form == "bash" and set(word) & set('$`"'):  # which it reads within " too: of a path
        return shlex.quote(word)
    return word if word.startswith("-") or word.isalpha() else f'"{word}"'


def is_plain(program: str) -> bool:
    """Whether no terminal sees more in a path than a path."""
    return re.fullmatch(r"[\w.:/\\+~-]+", program) is not None


def as_text(found: Report, base: str) -> str:
    """For people, in lines that a terminal of 100 columns shows whole."""
    lines = [*_machine_lines(found), *_finding_lines(found.findings, "")]
    for one in found.packages:
        lines += ["", *_package_lines(one)]
    for at in found.strays:
        lines += ["", f"{ascii_line(at)} has the name of a package that is not installed:",
                  "  Python imports that folder instead."]  # fmt: skip
    for choice in found.choices:
        lines += ["", *_choice_lines(found, choice, base)]
    for name in found.absent:
        lines += ["", f"{name} is not installed in this Python."]
    for number, (cause, do, undo) in enumerate(remedy_commands(found)):
        lines += [] if number else ["", "Commands that fix these causes, and how to undo each:"]
        lines += [f"  {cause}: {do}", f"    undo: {undo}"]
    if not found.choices:
        lines += [
            "",
            "No wheel can be suggested: no index was given (--index), or it has none of these.",
        ]
    return "\n".join(lines) + "\n"


def remedy_commands(found: Report) -> list[tuple[str, str, str]]:
    """Of each cause that a command changes: its id, that command, and the one that undoes it."""
    every = [*found.findings, *(f for one in found.packages if not one.loads for f in one.findings)]
    words = [(one.id, one.do, _undone(found, *one.do)) for one in dict.fromkeys(every) if one.do]
    # Words of metadata must be nothing else to a terminal.
    plain = re.compile(r"[\w.+!<>=~,*:/\\ -]{1,400}")
    return [
        (cause, _shell_command_line(found, *do), _shell_command_line(found, *undo))
        for cause, do, undo in words
        if all(map(plain.fullmatch, (*do, *undo)))
    ]


def _undone(found: Report, kind: str, what: str, *rest: str) -> tuple[str, ...]:
    """What brings back what is there now."""
    if kind == "ren":
        return (kind, os.path.join(os.path.dirname(what), rest[0]), os.path.basename(what))
    name = re.split(r"[!=<>~]", what)[0]
    there = find_installed(found.place, [name])
    index = (rest[0], f"{rest[1].rpartition('/')[0]}/cpu") if rest else ()
    return ("install", f"{name}=={there[0].version}", *index) if there else ("uninstall", name)


def _shell_command_line(found: Report, kind: str, *words: str) -> str:
    if kind == "ren":
        return " ".join([kind, *(f'"{one}"' for one in words)])
    pip = [found.place.executable, "-m", "pip", kind, *["-y"] * (kind == "uninstall")]
    return format_for_shell([[*pip, *words]], "cmd" if found.place.windows else "bash")


def _machine_lines(found: Report) -> Iterator[str]:
    place, driver = found.place, found.driver
    yield f"Python  {place.python} ({place.platform}), {ascii_line(place.executable)}"
    torch = "none"
    if found.torch:
        cuda = f"CUDA {found.torch.cuda}" if found.torch.cuda else "without CUDA"
        torch = f"{found.torch.version} ({cuda})"
    yield f"torch   {torch}"
    if found.portable:
        own = found.portable
        said = "is said to be" if found.named else "is"
        yield from _wrap_answer_text(
            f"preset  this {said} {own.says}: --for {own.preset}", "", "        "
        )
        for text in own.differs:
            yield from _wrap_answer_text(
                f"{'!' if found.named else '-'} {text}", "        ", "          "
            )
        if own.differs and own.instead:
            yield f"          to build for this Python: {' '.join(own.instead)}"
    yield f"driver  {f'for CUDA {driver.release}' if driver.release else 'none'}"
    named = [
        f"{name} (compute capability {gpu})"
        for gpu, name in zip(driver.gpus, (*driver.names, *[""] * len(driver.gpus)))  # noqa: B905 - Python 3.9
    ]
    yield f"GPU     {', '.join(named) or 'none'}"


def _wrap_answer_text(text: str, first: str, further: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _finding_lines(findings: Sequence[Finding], indent: str) -> Iterator[str]:
    for at, one in enumerate(findings):
        yield from _wrap_answer_text(
            one.actual, f"{indent}{'!' if one.failed else '-'} ", f"{indent}  "
        )
        if one.hint and not any(one.hint == later.hint for later in findings[at + 1 :]):
            yield from _wrap_answer_text(f"=> {one.hint}", f"{indent}  ", f"{indent}     ")


def _package_lines(one: Package) -> Iterator[str]:
    name = f"{one.installed.project} {one.installed.version}"
    said = {True: "is installed and loads", False: "is installed but DOES NOT LOAD"}
    if one.partly:
        said[False] = "can be imported, but NOT ALL OF IT LOADS"
    yield f"{name} {said[one.loads] if one.loads is not None else 'is installed'}"
    for text in one.errors:
        yield from _wrap_answer_text(text, "  ", "    ")
    yield from _finding_lines(one.findings, "  ")
    if one.loads is False and not any(finding.failed for finding in one.findings):
        yield "  No known cause was found."


def _choice_lines(found: Report, choice: Judged, base: str) -> Iterator[str]:
    row = choice.row
    if choice.fits:
        yield f"{row.project}: this wheel fits ({choice.by}; {row.smoke})"
        yield f"  {row.file}"
        there = _find_installed_package(found, row)
        if there is not None and there.loads and not there.findings:
            yield "  It is already installed and loads: nothing to do."
            return
        if not found.keeps_torch:
            knows = f"sees torch {found.torch_installed}" if found.torch_installed else (
                "does not see this torch")  # fmt: skip
            yield f"  pip {knows} and would replace it, so no command is given."
            return
        said = commands_of(found, choice, base)
        first = said["cmd" if found.place.windows else "bash"]
        yield f"  {first}"
        for form, where in (("PowerShell", "PowerShell"), (".bat", "a .bat file")):
            if said.get(form, first) != first:
                yield f"  in {where}: {said[form]}"
        if not any("pip" in names_in(folder) for folder in found.place.paths):
            yield f"  This Python has no pip: run it with -m ensurepip first, or use {said['uv']}"
    else:
        yield f"{row.project}: no wheel of the index fits. The nearest one:"
        yield f"  {row.file}"
        for rule in choice.missed:
            yield from _wrap_answer_text(rule, "  - ", "    ")


def as_object(found: Report, base: str) -> dict[str, Any]:
    """For programs: one object with a ``schema``."""
    machine = {"line": found.machine.line, **asdict(found.machine)}
    return {
        "schema": 1,
        "good": found.good,
        "machine": {**machine, "names": list(found.driver.names)},
        "executable": ascii_line(found.place.executable, 1000),
        "preset": _preset_object(found),
        "findings": [asdict(one) for one in found.findings],
        "packages": [
            {
                "name": one.installed.project,
                "version": one.installed.version,
                "folder": ascii_line(one.installed.folder, 1000),
                "loads": one.loads,
                "partly": one.partly,
                "errors": list(one.errors),
                "findings": [asdict(each) for each in one.findings],
            }
            for one in found.packages
        ],
        "absent": [*found.absent],
        "commands": [dict(zip(("cause", "do", "undo"), one)) for one in remedy_commands(found)],  # noqa: B905 - Python 3.9
        "strays": [ascii_line(one, 1000) for one in found.strays],
        "wheels": {one.row.project: _wheel_object(found, one, base) for one in found.choices},
    }


def _preset_object(found: Report) -> dict[str, Any] | None:
    own = found.portable
    if own is None:
        return None
    return {"name": own.preset, "said": found.named, "differs": [*own.differs],
            "instead": [*own.instead]}  # fmt: skip


def _wheel_object(found: Report, choice: Judged, base: str) -> dict[str, Any]:
    row, fits = choice.row, choice.fits
    named = fits and found.keeps_torch
    return {
        "fits": row.file if fits else None,
        "by": choice.by if fits else "",
        "url": place_of(row, base) if fits else None,
        "sha256": row.sha256 if fits else None,
        "command": command_of(found, choice, base)[-1] if named else None,
        "typed": commands_of(found, choice, base) if named else {},
        "nearest": None if fits else row.file,
        "missed": list(choice.missed),
    }
