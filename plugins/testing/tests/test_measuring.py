"""What trials of an engine tell, and what is learnt from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxplug_testing.measuring.learning import Subject, write_table
from onnxplug_testing.measuring.trials import Untaken, describe, try_out
from onnxplug_testing.measuring.variations import Variation


def neg(dtype: str, *, kind: str = "dtype") -> Variation:
    values = np.linspace(-1, 1, 7).astype(dtype)
    number = helper.np_dtype_to_tensor_dtype(values.dtype)
    return Variation(
        case="neg", kind=kind, node=helper.make_node("Neg", ["x"], ["y"]), since=13,
        opset=13, inputs=(values,), output_types=(number,),
    )  # fmt: skip


def right(tried: Variation) -> tuple[Any, ...]:
    return (-tried.inputs[0],)


def in_32_bits(tried: Variation) -> tuple[Any, ...]:
    return ((-tried.inputs[0].astype(np.float32)).astype(np.float64),)


def wrong(tried: Variation) -> tuple[Any, ...]:
    return (tried.inputs[0],)


def refused(tried: Variation) -> tuple[Any, ...]:
    raise Untaken("not this one")


@pytest.mark.parametrize(
    ("answer", "kind", "result"),
    [
        (right, "dtype", "right"),
        (in_32_bits, "dtype", "wrong values"),
        (in_32_bits, "suite", "right"),  # whose own numbers are no more exact
        (refused, "dtype", "refused"),
    ],
)
def test_float64_is_not_right_if_it_is_computed_in_32_bits(
    answer, kind, result
) -> None:
    assert try_out(answer, neg("float64", kind=kind))["result"] == result


def test_a_case_has_other_attributes() -> None:
    node = helper.make_node("Gemm", ["x", "y"], ["z"], alpha=2.0, beta=3.0, transA=1)
    array = np.ones((2, 2), np.float32)
    case = Variation(
        case="gemm", kind="suite", node=node, since=13, opset=13,
        inputs=(array, array), expected=(array,), output_types=(1,),
    )  # fmt: skip
    drawn = helper.make_attribute("transB", 1)
    made = case.with_attributes(alpha=0.5, beta=None, transB=drawn)
    found = {a.name: helper.get_attribute_value(a) for a in made.node.attribute}
    assert found == {"alpha": 0.5, "transA": 1, "transB": 1}
    assert made.expected is None
    assert len(case.node.attribute) == 3 and case.expected is not None


@pytest.fixture
def learn(tmp_path: Path) -> Callable[..., Any]:
    """What is learnt of Neg from answers by element type."""

    def write(answers: dict[str, Any], **known: Any) -> Any:
        lines = []
        for number, (dtype, answer) in enumerate(answers.items()):
            tried = neg(dtype)
            lines.append(describe(tried) | try_out(answer, tried) | {"number": number})
        results, table = tmp_path / "results.jsonl", tmp_path / "table.json"
        results.write_text("\n".join(map(json.dumps, lines)))
        write_table(results, Subject(about={"engine": "1.0"}, **known), table)
        return json.loads(table.read_text())

    return write


ANSWERS = {"float32": right, "int32": refused, "int8": wrong}


@pytest.mark.parametrize(("refuses", "trials"), [(True, 2), (False, 3)])
def test_what_an_engine_refuses_itself_tells_nothing(learn, refuses, trials) -> None:
    table = learn(ANSWERS, refuses=refuses)
    assert table["measured with"]["engine"] == "1.0"
    assert table["measured with"]["trials"] == trials
    assert table["operators"]["Neg"]["types"] == ["float32"]


def test_what_is_known_besides_is_in_the_table(learn) -> None:
    lacks = {"float32": "for which it has 16 bits"}
    table = learn({"float32": right, "int32": right}, lacks=lacks, int64_bits=32)
    assert (table["lacks"], table["int64 bits"]) == (lacks, 32)
    assert table["operators"]["Neg"]["types"] == ["int32"]
