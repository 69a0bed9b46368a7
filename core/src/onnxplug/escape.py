"""Text from models, files and plugins, made fit to be shown.

Such text may hold what a terminal takes for commands, what turns the direction of
writing, or what looks like the end of a line: characters of Unicode's categories Cc,
Cf, Cs, Zl and Zp.  They are shown as Python writes them in a string: ``\\x1b``.

Errors, warnings and the command line escape all that they show by themselves, apart
from the ends of lines.  Whoever puts names into text has them in one line, by
:func:`escape` or ``repr``.
"""

from __future__ import annotations

from typing import Final

_CATEGORIES: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


def escape(text: object) -> str:
    """*text* in one line, without control and format characters."""
    shown = str(text)
    if shown.isprintable():  # nearly always
        return shown
    from unicodedata import category  # seldom needed

    return "".join(
        # of these characters repr shows none as it is
        repr(each)[1:-1] if category(each) in _CATEGORIES else each
        for each in shown
    )


def escape_lines(text: object) -> str:
    """*text* without control and format characters, apart from the ends of lines."""
    return "\n".join(map(escape, str(text).split("\n")))
