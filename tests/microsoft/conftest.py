"""Models of one of ONNX Runtime's operators, run here and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import onnxplug

DOMAIN: Final = "com.microsoft"

Arrays = Sequence["np.ndarray[Any, Any] | None"]

onnxruntime.set_default_logger_severity(4)


def _model(
    operator: str,
    inputs: Arrays,
    outputs: Collection[int],
    opset: int,
    constants: Collection[int],
    domain: str,
    dtypes: Sequence[Any],
    attributes: dict[str, Any],
) -> tuple[bytes, dict[str, np.ndarray[Any, Any]]]:
    given, weights, feeds, names = [], [], {}, []
    for position, array in enumerate(inputs):
        name = f"input{position}" if array is not None else ""
        names.append(name)
        if array is None:
            continue
        if position in constants:
            weights.append(numpy_helper.from_array(array, name))
            continue
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        given.append(helper.make_tensor_value_info(name, element, array.shape))
        feeds[name] = array
    made = [f"output{n}" if n in outputs else "" for n in range(max(outputs) + 1)]
    results = []
    for name, dtype in zip(filter(None, made), dtypes, strict=False):
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        results.append(helper.make_tensor_value_info(name, element, None))
    results += [
        onnx.ValueInfoProto(name=name) for name in [*filter(None, made)][len(dtypes) :]
    ]
    node = helper.make_node(operator, names, made, domain=domain, **attributes)
    model = helper.make_model(
        helper.make_graph([node], operator, given, results, weights),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)],
        ir_version=10,
    )
    return model.SerializeToString(), feeds


@pytest.fixture(scope="session")
def ours() -> Callable[..., list[np.ndarray[Any, Any]]]:
    """Runs an operator here: ``ours(operator, inputs, …)``; ``None`` leaves one out."""

    def run(
        operator: str,
        inputs: Arrays,
        *,
        outputs: Collection[int] = (0,),
        opset: int = 17,
        constants: Collection[int] = (),
        domain: str = DOMAIN,
        dtypes: Sequence[Any] = (),
        compiled: bool = False,
        **attributes: Any,
    ) -> list[np.ndarray[Any, Any]]:
        model, feeds = _model(
            operator, inputs, outputs, opset, constants, domain, dtypes, attributes
        )
        return _session(model, compiled).run(None, feeds)

    return run


@pytest.fixture(scope="session")
def theirs() -> Callable[..., list[np.ndarray[Any, Any]]]:
    """Runs an operator by ONNX Runtime, as :func:`ours` does here."""

    def run(
        operator: str,
        inputs: Arrays,
        *,
        outputs: Collection[int] = (0,),
        opset: int = 17,
        constants: Collection[int] = (),
        domain: str = DOMAIN,
        dtypes: Sequence[Any] = (),
        **attributes: Any,
    ) -> list[np.ndarray[Any, Any]]:
        model, feeds = _model(
            operator, inputs, outputs, opset, constants, domain, dtypes, attributes
        )
        return _theirs(model, feeds)

    return run


@pytest.fixture(scope="session")
def compare() -> Callable[..., None]:
    """Compares an operator with ONNX Runtime: ``compare(operator, inputs, …)``.

    *tolerance* is relative to the largest magnitude of the result, or 1.
    """

    def run(
        operator: str,
        inputs: Arrays,
        *,
        outputs: Collection[int] = (0,),
        opset: int = 17,
        constants: Collection[int] = (),
        domain: str = DOMAIN,
        dtypes: Sequence[Any] = (),
        compiled: bool = False,
        tolerance: float = 5e-6,
        **attributes: Any,
    ) -> None:
        model, feeds = _model(
            operator, inputs, outputs, opset, constants, domain, dtypes, attributes
        )
        theirs = _theirs(model, feeds)
        results = _session(model, compiled).run(None, feeds)
        for found, wanted in zip(results, theirs, strict=True):
            assert_close(found, wanted, tolerance)

    return run


@pytest.fixture(scope="session")
def close() -> Callable[..., None]:
    """Compares a result with a reference in double precision."""
    return assert_close


def assert_close(found: Any, wanted: Any, tolerance: float = 5e-6) -> None:
    assert found.shape == wanted.shape
    if wanted.dtype != np.float64:
        assert found.dtype == wanted.dtype
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    if wanted.size:
        worst = np.abs(found - wanted).max() / max(1.0, np.abs(wanted).max())
        assert worst <= tolerance


def _theirs(model: bytes, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found: list[np.ndarray[Any, Any]] = session.run(None, feeds)
    return found


def _session(model: bytes, compiled: bool) -> onnxplug.InferenceSession:
    providers = [("CPUExecutionProvider", {"compile": compiled})]
    return onnxplug.InferenceSession(model, providers=providers)


@pytest.fixture
def normal() -> Callable[..., np.ndarray[Any, Any]]:
    """Normally distributed float32 of a shape."""
    random = np.random.default_rng(7)
    return lambda *shape: random.standard_normal(shape).astype(np.float32)


@pytest.fixture
def integers() -> Callable[..., np.ndarray[Any, Any]]:
    """Integers of a dtype below a bound: ``integers(bound, shape, dtype)``."""
    random = np.random.default_rng(8)

    def make(bound: int, shape: Sequence[int], dtype: Any = np.int32) -> Any:
        return random.integers(0, bound, shape).astype(dtype)

    return make
