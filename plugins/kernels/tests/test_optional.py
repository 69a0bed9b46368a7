"""Optional values: an element, or None."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_kernels import find_kernel


def run(op_type: str, *inputs: Any, version: int = 28, **attributes: Any) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=1)(*inputs)


@pytest.mark.parametrize("version", [15, 18, 28])
@pytest.mark.parametrize("element", [np.zeros(2), np.array(0), [], [np.zeros(2)]])
def test_an_element(version: int, element: Any) -> None:
    value = run("Optional", element, version=version)
    assert run("OptionalGetElement", value, version=version) is element
    has = run("OptionalHasElement", value, version=version)
    assert isinstance(has, np.ndarray)
    assert (has.shape, has.dtype, has.item()) == ((), bool, True)


def test_no_element() -> None:
    empty = run("Optional", type="a type, which None does not carry")
    assert empty is None
    for inputs in ((), (empty,)):
        has = run("OptionalHasElement", *inputs)
        assert (has.shape, has.dtype, has.item()) == ((), bool, False)
    with pytest.raises(ValueError, match="empty optional"):
        run("OptionalGetElement", empty)
