"""Preparation is done once for the same attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug_kernels.prepared import attribute_array, prepared_once


def counting() -> tuple[list[Any], Callable[..., Any]]:
    calls: list[Any] = []

    @prepared_once
    def prepare(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return (*args, *kwargs.items())

    return calls, prepare


def test_the_same_objects_are_recognised() -> None:
    calls, prepare = counting()
    values, array = (0.5, 1.5), np.zeros(2)
    first = prepare(values, array, 1000, other="a")
    assert prepare(values, array, int("1000"), other="a") is first
    assert len(calls) == 1


def test_other_objects_are_prepared_anew() -> None:
    calls, prepare = counting()
    for _ in range(2000):
        # the identity of a dead tuple is used again
        value = float(len(calls))
        assert prepare((value,)) == ((value,),)
    assert len(calls) == 2000
    assert prepare(1, a=2) != prepare(1, b=2)
    assert prepare(1) != prepare("1")


def test_attribute_array() -> None:
    values = (1.5, 2.5)
    array = attribute_array(np, values, np.float32)
    assert (array.dtype, array.tolist()) == (np.float32, [1.5, 2.5])
    assert attribute_array(np, values, np.float32) is array
    assert attribute_array(np, values, np.float64).dtype == np.float64
