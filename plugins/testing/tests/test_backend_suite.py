"""The backend suite through an EP: which cases are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxplug.errors import InvalidArgument, NotFound
from onnxplug_testing.backend_suite import CPU, Lineup, count_cases
from onnxplug_testing.suite_command import main, write_table

LINEUP = Lineup(CPU, {})


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["test_addd"], "no case 'test_addd'; did you mean 'test_add'"),
        (["test_add", "test_adx", "zzz"], "no case 'test_adx', 'zzz'; did you mean"),
        ("test_addd", "no case 'test_addd'; did you mean 'test_add'"),
        ([7], "no case 7$"),
    ],
)
def test_a_case_that_the_suite_does_not_have_is_named(names: Any, words: str) -> None:
    with pytest.raises(NotFound, match=words) as caught:
        count_cases(LINEUP, names)
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("what", ["every", "jobs"])
def test_numbers_start_at_one(what: str, number: int) -> None:
    with pytest.raises(InvalidArgument, match=f"{what} is {number}; expected 1"):
        count_cases(LINEUP, ["test_add"], **{what: number})


def test_the_command_says_so_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["test_addd"], ["--jobs", "0", "test_add"]):
        with pytest.raises(SystemExit) as caught:
            main(None, LINEUP, words)
        assert caught.value.code == 2
        assert "Traceback" not in capsys.readouterr().err


def test_cases_are_run_by_name() -> None:
    for names in ("test_add", ["test_add"], iter(["test_add"])):
        found = count_cases(LINEUP, names)
        assert (found["cases"], found["pass on the EP and the CPU EP"]) == (1, 1)


def test_counts_by_operator_are_stated_between_marks(tmp_path: Path) -> None:
    file = tmp_path / "counts.md"
    marks = "<!-- counts of cases -->", "<!-- end of counts -->"
    file.write_text(f"before\n\n{marks[0]}\nold\n{marks[1]}\n\nafter\n")
    found = {
        "cases": 3,
        "pass wholly on the EP": 2,
        "of these compute nothing on it": 0,
        "of these by operator": {"Abs": 1, "Add": 1},
    }
    write_table(file, found)
    once = file.read_text()
    assert once.startswith(f"before\n\n{marks[0]}\n\n2 of the 3 cases")
    assert once.endswith(f"\n\n`Abs` 1, `Add` 1.\n\n{marks[1]}\n\nafter\n")
    write_table(file, found)
    assert file.read_text() == once
    file.write_text("nothing")
    with pytest.raises(ValueError, match="has no <!-- counts"):
        write_table(file, found)
