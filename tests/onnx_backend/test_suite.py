"""The ONNX backend suite on the CPU EP, case by case; then with nothing compiled and
without ``onnx.reference``.

What does not pass is listed in ``known_failures.toml`` by its exact name, with the
reason; a listed case that passes fails the test until its line is removed.
"""

from __future__ import annotations

import importlib.util
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parent


def _load_suite() -> ModuleType:
    # tests are imported by path and form no package
    spec = importlib.util.spec_from_file_location("suite", FOLDER / "suite.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


suite = _load_suite()

from onnxplug.backend import OnnxplugBackend  # noqa: E402

CASES: Final[dict[str, Callable[[], None]]] = suite.load_cases(OnnxplugBackend)
_LISTED: Final = tomllib.loads((FOLDER / "known_failures.toml").read_text("utf-8"))
_COMPILED: Final[dict[str, str]] = _LISTED.pop("compiled")
_ARRAYS: Final[dict[str, str]] = _LISTED.pop("arrays")
FAILURES_ON_ARRAYS: Final[dict[str, str]] = _LISTED | _ARRAYS
KNOWN_FAILURES: Final[dict[str, str]] = _LISTED | _COMPILED


RANDOM: Final = frozenset(name for name in CASES if name.startswith("test_bernoulli"))
"""Cases that compare with random draws: what they compare is right only by chance."""


def _parameters() -> Iterator[object]:
    for name in CASES:
        if name in RANDOM:
            continue
        reason = KNOWN_FAILURES.get(name)
        marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
        yield pytest.param(name, id=name, marks=marks)


@pytest.mark.parametrize("name", list(_parameters()))
def test_case(name: str, suite_counts: dict[str, int]) -> None:
    suite_counts.setdefault("cases", 0)
    suite_counts["cases"] += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own models overflow on purpose
        CASES[name]()
    suite_counts["passed"] = suite_counts.get("passed", 0) + 1


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_case(name: str, suite_counts: dict[str, int]) -> None:
    # shape and element type are compared first, and are told apart from the values
    suite_counts["cases"] = suite_counts.get("cases", 0) + 1
    title = "random, right in shape and element type"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            CASES[name]()
        except AssertionError as error:
            assert "Not equal to tolerance" in str(error)
    suite_counts[title] = suite_counts.get(title, 0) + 1


@pytest.mark.parametrize(
    "every", [8, pytest.param(1, marks=pytest.mark.exhaustive)], ids="every {}".format
)
def test_the_same_cases_pass_on_arrays_and_need_no_reference(
    suite_counts: dict[str, int], monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_COMPILE", "0")
    names = sorted(CASES.keys() - RANDOM)[::every]
    fixed = {name: CASES[name] for name in names}
    with suite.without_reference():
        passed, failed = suite.count(fixed)
    title = "passed on arrays, with onnx.reference made to raise"
    suite_counts[title] = len(passed)
    assert failed.keys() == FAILURES_ON_ARRAYS.keys() & fixed.keys(), failed


def test_every_known_failure_is_a_case() -> None:
    assert KNOWN_FAILURES.keys() <= CASES.keys() - RANDOM


def test_the_suite_is_whole() -> None:
    assert len(CASES) == 2033
