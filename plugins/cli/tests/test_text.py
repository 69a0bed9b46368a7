"""Tables and numbers."""

from __future__ import annotations

import io
import sys

import pytest

from onnxplug.duration import duration
from onnxplug_cli.text import (
    NO_BREAK,
    WIDTH,
    bar,
    data_size,
    format_table,
    print_table,
    shape_text,
)


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert format_table(
        ("EP", "NODES"),
        [("CPUExecutionProvider", "12"), ("toy", "3")],
        right=("NODES",),
    ) == [
        "EP                    NODES",
        "CPUExecutionProvider     12",
        "toy                       3",
    ]


def test_a_cell_may_have_several_lines() -> None:
    rows = [("a", ["one", "two"]), ("b", "")]
    assert format_table(("X", "WHY"), rows) == ["X  WHY", "a  one", "   two", "b"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_color", [True, False])
def test_rich_shows_cells_as_they_are_and_obeys_no_color(monkeypatch, no_color) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1" if no_color else "")
    print_table(("X", "Y"), [("1", "[bold]2")], right=("Y",))
    assert "[bold]2" in terminal.getvalue()
    assert "\x1b[3" not in terminal.getvalue()  # no colour; weight may be


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 µs"), (12.3e-6, "12.3 µs"), (0.00123, "1.23 ms"), (61.2, "61.2 s")],
)
def test_durations_have_a_fitting_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, ""), (0.5, "██"), (1 / 32, "▏"), (1, "████"), (2, "████")]
)
def test_bars_are_drawn_in_eighths(share: float, text: str) -> None:
    assert bar(share, width=4) == text


def test_shapes_tell_what_is_unknown() -> None:
    assert shape_text(["N", 3, None]) == "[N, 3, ?]"
    assert shape_text(()) == "[]"
    assert shape_text(None) == "of any shape"


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (123_456, "123 KB"),
        (999_499, "999 KB"),
        (999_500, "1 MB"),
        (256 << 20, "268 MB"),
        (5_000_000_000, "5 GB"),
    ],
)
def test_sizes_have_a_fitting_unit(nbytes: int, text: str) -> None:
    assert data_size(nbytes) == text


def test_a_column_is_wrapped_where_the_table_is_too_wide() -> None:
    reason = "of all that was asked for this does not fit, for it is long " * 2
    rows = [("Add 'first'", reason), ("Mul", "short")]
    lines = format_table(("NODE", "WHY"), rows, wrap="WHY")
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) == 4
    assert lines[2].startswith(" " * len("Add 'first'  ") + "  ")
    assert format_table(("NODE", "WHY"), rows[1:], wrap="WHY")[1] == "Mul   short"


def test_words_are_kept_whole_and_some_spaces_too() -> None:
    verdicts = f"Add{NO_BREAK}ok, MatMul{NO_BREAK}ok"
    lines = format_table(("NAME", "CHECK"), [("n" * 66, verdicts)], wrap="CHECK")
    assert [line.split() for line in lines[1:]] == [
        ["n" * 66, "Add", "ok,"],
        ["MatMul", "ok"],
    ]
    assert NO_BREAK not in "".join(lines)
    long = "/model/layers.0/" * 8
    assert long in format_table(("NAME",), [(long,)], wrap="NAME")[1]
