"""The cases of the ONNX backend suite, as functions, for any backend."""

from __future__ import annotations

import contextlib
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from onnxplug_testing.backend_suite import load_cases

__all__ = ["count", "load_cases", "without_reference"]


@contextlib.contextmanager
def without_reference() -> Iterator[None]:
    """While this lasts, everything that computes in ``onnx.reference`` raises."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("onnx.reference was used")

    with (
        mock.patch.object(ReferenceEvaluator, "__init__", refuse),
        mock.patch.object(ReferenceEvaluator, "run", refuse),
        mock.patch.object(OpRun, "run", refuse),
    ):
        yield


def count(cases: dict[str, Callable[[], None]]) -> tuple[list[str], dict[str, str]]:
    """The names of the cases that pass, and the others with what they raised."""
    passed: list[str] = []
    failed: dict[str, str] = {}
    for name, run in cases.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run()
        except unittest.SkipTest as skipped:
            failed[name] = f"skipped: {skipped}"
        except Exception as error:  # noqa: BLE001 (whatever a case raises)
            failed[name] = f"{type(error).__name__}: {str(error).strip()[:300]}"
        else:
            passed.append(name)
    return passed, failed
