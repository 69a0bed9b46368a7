"""Converted models run here, and their outputs against the library's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx

import onnxplug

# Converters store parameters as float32, and operators of ai.onnx.ml return float32:
# a few of its roundings (6e-8) of the largest value are lost.
FLOAT32: Final = 5e-6
# Operators of ONNX proper keep float64.
FLOAT64: Final = 1e-12


def assert_predicts(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray[Any, Any]],
    expected: Sequence[Any],
    tolerance: float = FLOAT32,
) -> None:
    """That *model* gives *expected* for all rows, for one, and of one type always.

    Args:
        feeds: by input, one array each, rows along the first axis.
        expected: by output, arrays with the same rows.
        tolerance: of floats, relative to the largest of an output; all else is exact.
    """
    session = onnxplug.InferenceSession(model.SerializeToString())
    rows = len(next(iter(feeds.values())))
    for batch in (slice(rows), slice(rows // 2, rows // 2 + 1)):
        found = session.run(None, {name: x[batch] for name, x in feeds.items()})
        assert len(found) == len(expected)
        for output, ours, theirs in zip(
            session.get_outputs(), found, map(np.asarray, expected), strict=True
        ):
            assert_close(ours, theirs[batch], tolerance * size(theirs), output.name)


def size(expected: np.ndarray[Any, Any]) -> float:
    """The largest finite number; 1 if these are no floats."""
    if expected.dtype.kind != "f":
        return 1.0
    return float(np.max(np.abs(expected), initial=0, where=np.isfinite(expected)))


def assert_close(
    found: np.ndarray[Any, Any], expected: Any, tolerance: float, name: str = ""
) -> None:
    """Floats within *tolerance*, all else exactly.

    Converters add axes of one element at will, so those do not count.
    """
    found, expected = np.squeeze(found), np.squeeze(expected)
    assert found.shape == expected.shape, name
    if expected.dtype.kind != "f":
        assert found.tolist() == expected.tolist(), name
        return
    assert found.dtype.kind == "f", name
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=name)
