"""Text for people: tables, numbers with units.

Tables are plain, and where a column can be wrapped not wider than :data:`WIDTH`; on a
terminal rich fits them to its width.  Colour and weight are left to rich, which knows
``NO_COLOR``.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any, Final, TextIO

from onnxplug.escape import escape, escape_lines

WIDTH: Final = 80
"""How many columns plain text has, where it can be had in so few."""

_GAP: Final = "  "

_NARROWEST: Final = 12
"""A column is wrapped to no less."""

Cell = str | Sequence[str]
"""Of a table: a line, or several."""


def say(text: object = "", *, end: str = "\n", file: TextIO | None = None) -> None:
    """Print *text*, which may have several lines, without control characters.

    Names that are to be in one line have to be escaped before.
    """
    print(escape_lines(text), end=end, file=file)


def print_json(data: Any) -> None:
    """One JSON document, indented, in plain characters and valid numbers."""
    print(json.dumps(data, indent=2, allow_nan=False))


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Collection[str] = (),
    wrap: str = "",
) -> None:
    """A table; the columns named in *right* are aligned to the right.

    The column named *wrap*, if there is one, is wrapped where the table is too wide.
    """
    if sys.stdout.isatty():
        _print_rich_table(header, rows, right)
        return
    for line in format_table(header, rows, right=right, wrap=wrap):
        say(line)


def format_table(
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Collection[str] = (),
    wrap: str = "",
) -> list[str]:
    """The lines of a plain table."""
    cells = [[_lines(cell) or [""] for cell in row] for row in (header, *rows)]
    widths = [
        max(len(line) for row in cells for line in row[column])
        for column in range(len(header))
    ]
    if wrap in header and sum(widths) + len(_GAP) * (len(widths) - 1) > WIDTH:
        column = header.index(wrap)
        widths[column] -= sum(widths) + len(_GAP) * (len(widths) - 1) - WIDTH
        widths[column] = max(widths[column], _NARROWEST)
        for row in cells:
            row[column] = _wrapped(row[column], widths[column])
    lines = []
    for row in cells:
        for parts in zip_longest(*row, fillvalue=""):
            parts = tuple(part.replace(NO_BREAK, " ") for part in parts)
            aligned = (
                part.rjust(width) if name in right else part.ljust(width)
                for name, part, width in zip(header, parts, widths, strict=True)
            )
            lines.append(_GAP.join(aligned).rstrip())
    return lines


def _lines(cell: Cell) -> list[str]:
    return [escape(line) for line in ([cell] if isinstance(cell, str) else cell)]


NO_BREAK: Final = "\N{NO-BREAK SPACE}"
"""In a cell, a space at which it is not wrapped."""


def _wrapped(lines: Sequence[str], width: int) -> list[str]:
    """*lines* of *width* or less, save for words that are longer."""
    return [
        part
        for line in lines
        for part in textwrap.wrap(
            line,
            width,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        or [""]
    ]


def _print_rich_table(
    header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[str]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold",  # a name that is cut off is no name
        )
    for row in rows:
        # Text, because a cell's brackets are a shape and not rich's markup
        table.add_row(*(Text("\n".join(_lines(cell))) for cell in row))
    Console().print(table)


def plural(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def data_size(nbytes: int) -> str:
    """Three digits and a fitting unit, 1 KB being 1000 bytes."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        # what would be rounded up to the next unit has it
        if nbytes >= 0.9995 * factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes} B"


def shape_text(shape: Sequence[int | str | None] | None) -> str:
    """``[N, 3, 224, ?]``."""
    if shape is None:
        return "of any shape"
    return f"[{', '.join('?' if size is None else escape(size) for size in shape)}]"


def say_wrapped(text: str, indent: str = "") -> None:
    """Print *text* in lines of :data:`WIDTH`, all of them but the first further in."""
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    say("\n".join(lines))


def bar(share: float, width: int = 24) -> str:
    """A bar of *share* (0 to 1) of *width*, in steps of an eighth of a character."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    # no block for 0 of 8
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
