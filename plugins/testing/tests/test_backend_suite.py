"""The backend suite through an EP: which cases are run."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug.errors import InvalidArgument, NotFound
from onnxplug_testing.backend_suite import CPU, Lineup, count_cases
from onnxplug_testing.suite_command import main

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
