"""What is shown to who waits."""

from __future__ import annotations

import io
import logging
import time
import types

import pytest

from onnxplug_cli import progress
from onnxplug_cli.progress import LOGGER, Progress, showing_log


class Terminal(io.StringIO):
    """A terminal that keeps all that was written."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error, as a terminal."""
    terminal = Terminal()
    # sys.stderr itself is pytest's again when the test begins
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=terminal))
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress, "_INTERVAL", 0.01)
    return terminal


def wait_for(terminal: Terminal, text: str) -> None:
    end = time.monotonic() + 20
    while text not in terminal.getvalue():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_long_work_is_shown_and_then_gone(terminal) -> None:
    with Progress("loading …"):
        wait_for(terminal, "loading …\r")
    assert terminal.getvalue() == "loading …\r         \r"


def test_the_text_may_change(terminal) -> None:
    with Progress("a long text") as work:
        wait_for(terminal, "a long text\r")
        work.text = "short"
        wait_for(terminal, "short      \r")


def test_a_bar_shows_how_much_is_done(terminal) -> None:
    with Progress("measuring") as work:
        work.tell("half", 0.5)
        wait_for(terminal, f"{'━' * 12}{' ' * 12} half\r")
        work.tell("too much", 7.0)
        wait_for(terminal, f"{'━' * 24} too much\r")
        work.tell("nobody knows")
        wait_for(terminal, "nobody knows ")


def test_short_work_is_not_shown(terminal, monkeypatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 60)
    with Progress("loading …"):
        pass
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal(capsys, monkeypatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0)
    with Progress("loading …"):
        time.sleep(0.02)
    assert capsys.readouterr() == ("", "")


def test_an_error_ends_it_too(terminal) -> None:
    with pytest.raises(ValueError), Progress("loading …"):
        wait_for(terminal, "loading")
        raise ValueError
    assert terminal.getvalue().endswith(" \r")


def test_what_eps_log_of_their_progress_is_shown(terminal, caplog) -> None:
    logger = logging.getLogger(LOGGER)
    with showing_log(logging.WARNING):
        logger.info("building, %d of %d", 1, 2)
        wait_for(terminal, "building, 1 of 2\r")
        logger.info("built", extra={"is_done": True})
        wait_for(terminal, f"{' ' * 16}\r")
    assert "built\r" not in terminal.getvalue()
    logger.info("building")
    assert not caplog.records and not logger.handlers
    # where the log is shown, it is there
    with caplog.at_level(logging.INFO), showing_log(logging.INFO):
        logger.info("building")
    assert [record.getMessage() for record in caplog.records] == ["building"]
