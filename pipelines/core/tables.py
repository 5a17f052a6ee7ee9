"""A table as wide as it must be in a pipe; in a terminal with the columns that it has room for.

None of its lines ends with blanks: those that rich fills the last column with are taken off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    Group,
    RenderableType,
    RenderHook,
)
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

_NO_LIMIT = 10_000  # characters
_FOLDED = 24  # characters in a line of what may be broken anywhere, if it is that long
_BETWEEN = 2


class Trimming(RenderHook):
    """Has a console print tables, and groups with tables, without blanks at the lines' ends."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Those of ``renderables`` that pad, without the padding."""
        return [_Trimmed(one) if isinstance(one, Table | Group) else one for one in renderables]


@dataclass(frozen=True)
class _Trimmed:
    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        inner = _in_words(self.inner, console.width) if console.is_terminal else self.inner
        for line in Segment.split_lines(console.render(inner, options)):
            while line and not line[-1].control and not line[-1].text.strip():
                line.pop()
            if line and not line[-1].control:
                line[-1] = line[-1]._replace(text=line[-1].text.rstrip())
            yield from line
            yield Segment.line()


def _in_words(one: RenderableType, width: int) -> RenderableType:
    if isinstance(one, Group):
        return Group(*(_in_words(inner, width) for inner in one.renderables))
    return between_words(one, width) if isinstance(one, Text) else one


def between_words(text: Text, width: int) -> Text:
    """A text that is too long for a line, broken between words; each line is indented as it is."""
    if text.no_wrap or len(text) <= width:
        return text
    indent = len(text.plain) - len(text.plain.lstrip())
    begin, breaks = 0, []
    for word in re.finditer(r"\S+", text.plain):
        length = word.end() - begin + indent * bool(begin)
        if length > width and word.start() > max(begin, indent):
            begin = word.start()
            breaks.append(begin)
    lines = text.divide(breaks)
    for line in lines:
        line.rstrip()
    for line in lines[1:]:
        line.pad_left(indent)
    return Text("\n").join(lines)


def print_columns(
    console: Console,
    lines: Sequence[Mapping[str, str]],
    *,
    fold: Sequence[str] = (),
    wrap: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> list[str]:
    """Print ``lines``, values with markup by column; what was left out for want of room.

    Without a terminal the width has no limit. In a terminal columns ``fold`` are broken
    anywhere, ``wrap`` at spaces, and those of ``spare`` are given up, the first first.
    """
    shown, left_out = list(lines[0]) if lines else [], []
    # Rich takes room from any column, until words and names break: each says what it needs.
    least = {
        column: _minimum_column_width(
            column, lines, words=column in wrap, most=_FOLDED if column in fold else 0
        )
        for column in shown
    }
    for column in spare if console.is_terminal else ():
        if sum(least[name] + _BETWEEN for name in shown) - _BETWEEN <= console.width:
            break
        shown.remove(column)
        left_out.append(column)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in shown:
        table.add_column(
            column,
            overflow="fold" if column in fold else "ellipsis",
            # Rich would take room from what cannot give any, and then give it back.
            no_wrap=least[column] == _minimum_column_width(column, lines, words=False, most=0),
            min_width=least[column],
        )
    for line in lines:
        table.add_row(*(line[column] for column in shown))
    if not console.is_terminal:
        limits = console.options.update(max_width=_NO_LIMIT)
        table.width = Measurement.get(console, limits, table).maximum
    console.print(table, soft_wrap=False, crop=False)
    return left_out


def _minimum_column_width(
    column: str, lines: Sequence[Mapping[str, str]], *, words: bool, most: int
) -> int:
    """Characters that a column needs: of its longest word, or value; 0: without limit."""
    texts = [column, *(Text.from_markup(line[column]).plain for line in lines)]
    longest = max(len(part) for text in texts for part in (text.split() if words else [text]))
    return min(longest, most or longest)
