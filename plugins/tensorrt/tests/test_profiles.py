"""Ranges of shapes: as users write them, and as they follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug import errors
from onnxplug_tensorrt.options import OPTIONS
from onnxplug_tensorrt.profiles import Range, from_facts, read_profile

from .conftest import EP
from .standin import TensorRT

NAMES = "trt_profile_min_shapes", "trt_profile_opt_shapes", "trt_profile_max_shapes"


def read(*texts: str) -> Any:
    defaults = {name: option.default for name, option in OPTIONS.items()}
    return read_profile(defaults | dict(zip(NAMES, texts, strict=True)))


def test_the_grammar_is_that_of_onnx_runtime() -> None:
    assert read("", "", "") is None
    found = read("a:1x2,b:0 : 1", "a:1x3, b:0:4", " a : 2 x 3,b:0:5")
    assert found == {
        "a": Range((1, 2), (1, 3), (2, 3)),
        "b:0": Range((1,), (4,), (5,)),
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("a:1", "", "a:2"), "belong together; set 'trt_profile_opt_shapes'"),
        (("a:1", "a:1", "b:2"), "'trt_profile_max_shapes' lacks input 'a'"),
        (("a:1x", "a:1", "a:1"), "expected inputs, each once"),
        (("a:1,a:2", "a:1", "a:1"), "expected inputs, each once"),
        (("a:-1", "a:1", "a:1"), "expected inputs, each once"),
        (("a:1", "a:1", "a:1" + "0" * 19), "expected inputs, each once"),
        (("a:2", "a:1", "a:3"), "none of them smaller"),
        (("a:1", "a:1x1", "a:3"), "as many sizes in each"),
    ],
)
def test_what_is_written_otherwise(texts: Any, message: str) -> None:
    with pytest.raises(errors.OptionError, match=message):
        read(*texts)


@pytest.mark.parametrize(
    "facts",
    [None, [], {"x": [[1]]}, {"x": [[1], [1], [-1]]}, {"x": [[1], [1], ["a"]]}],
)
def test_what_is_no_profile(facts: Any) -> None:
    if facts == []:
        facts = "text"
    with pytest.raises(ValueError, match="the profile of"):
        from_facts(facts)


def test_one_engine_takes_all_of_a_range(
    alone: Any, parse: Any, tensorrt: TensorRT
) -> None:
    model = parse(
        "t = Transpose<perm = [1, 0]>(x) y = MatMul(x, t)",
        "float[batch, 3] x", "float[batch, batch] y",
    )  # fmt: skip
    session = alone(model, **dict(zip(NAMES, ("x:1x3", "x:2x3", "x:4x3"), strict=True)))
    assert tensorrt.counts["builds"] == 1
    for batch in (1, 4, 2):
        x = np.arange(3 * batch, dtype=np.float32).reshape(batch, 3)
        np.testing.assert_allclose(
            session.run(None, {"x": x}), ReferenceEvaluator(model).run(None, {"x": x})
        )
    assert tensorrt.counts["builds"] == tensorrt.counts["contexts"] == 1
    with pytest.raises(errors.EpError, match=r"\[5, 3\].*\[1, 3\] to \[4, 3\]"):
        session.run(None, {"x": np.ones((5, 3), np.float32)})


def test_values_between_partitions_have_ranges_too(
    make: Any, parse: Any, tensorrt: TensorRT
) -> None:
    tensorrt.refused["Neg"] = "UNSUPPORTED_NODE", "no Neg"
    model = parse(
        "d = Concat<axis = 0>(x, x) n = Neg(d) y = Exp(n)",
        "float[batch, 3] x", "float[m, 3] y",
    )  # fmt: skip
    session = make(model, **dict(zip(NAMES, ("x:1x3", "x:2x3", "x:4x3"), strict=True)))
    assert tensorrt.counts["builds"] == 2
    x = np.ones((4, 3), np.float32)
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], np.exp(-np.concatenate([x, x])), 1e-6
    )
    profile = tensorrt.configs[-1]._profiles[0]
    assert profile._shapes["n"] == ((2, 3), (4, 3), (8, 3))


def test_an_input_without_a_range_goes_elsewhere(make: Any, parse: Any) -> None:
    model = parse(
        "y = Exp(x) z = Sin(v)",
        "float[batch, 3] x, float[k] v", "float[batch, 3] y, float[k] z",
    )  # fmt: skip
    session = make(model, **dict(zip(NAMES, ("x:1x3", "x:2x3", "x:4x3"), strict=True)))
    assert "do not say its sizes" in str(session.explain())
    assert {node.op_type for node in session.explain().nodes if node.ep == EP} == {
        "Exp"
    }
