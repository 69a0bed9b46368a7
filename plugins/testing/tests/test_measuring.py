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
from onnxplug_testing.measuring.trials import Untaken, amend, compare, describe, try_out
from onnxplug_testing.measuring.variations import Variation, variations


def neg(dtype: str, *, kind: str = "dtype") -> Variation:
    values = np.linspace(-1, 1, 7).astype(dtype)
    number = helper.np_dtype_to_tensor_dtype(values.dtype)
    return Variation(
        case="neg", kind=kind, node=helper.make_node("Neg", ["x"], ["y"]), since=13,
        opset=13, inputs=(values,), output_types=(number,),
    )  # fmt: skip


def right(tried: Variation) -> Callable[[], tuple[Any, ...]]:
    return lambda: (-tried.inputs[0],)


def in_32_bits(tried: Variation) -> Callable[[], tuple[Any, ...]]:
    return lambda: ((-tried.inputs[0].astype(np.float32)).astype(np.float64),)


def wrong(tried: Variation) -> Callable[[], tuple[Any, ...]]:
    return lambda: (tried.inputs[0],)


def refused(tried: Variation) -> Callable[[], tuple[Any, ...]]:
    raise Untaken("not this one")


def uncompiled(tried: Variation) -> Callable[[], tuple[Any, ...]]:
    raise RuntimeError("no such node")


@pytest.mark.parametrize(
    ("answer", "kind", "result"),
    [
        (right, "dtype", "right"),
        (in_32_bits, "dtype", "wrong values"),
        (in_32_bits, "suite", "right"),  # whose own numbers are no more exact
        (refused, "dtype", "refused"),
        (uncompiled, "dtype", "raised"),
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


def test_what_is_refused_everywhere_is_no_reason_to_refuse_more(learn) -> None:
    crashes = ("dynamic",)
    table = learn({"float32": right}, everywhere=[crashes])
    assert table["operators"]["Neg"]["refused"] == [["dynamic"]]
    assert table["operators"]["Neg"]["types"] == ["float32"]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_what_is_cast_fits_as_onnx_does_not_say_what_else_becomes(dtype) -> None:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    values = np.linspace(-200, 200, 41).astype(np.float32)
    case = Variation(
        case="cast", kind="suite",
        node=helper.make_node("Cast", ["x"], ["y"], to=number), since=13,
        opset=13, inputs=(values,), output_types=(number,),
    )  # fmt: skip
    info = np.iinfo(dtype)
    tried = [each for each in variations(case, 0) if each.kind == "values"]
    assert tried
    for each in tried:
        assert info.min <= each.inputs[0].min() and each.inputs[0].max() <= info.max


@pytest.mark.parametrize(
    ("operator", "result"), [("DFT", "right"), ("Neg", "wrong values")]
)
def test_sums_of_a_signal_are_as_far_off_as_the_greatest_is_rounded(
    operator, result
) -> None:
    tried = Variation(
        case="sums", kind="values", node=helper.make_node(operator, ["x"], ["y"]),
        since=20, opset=20, inputs=(np.zeros((1, 2, 1), np.float32),),
        output_types=(1,),
    )  # fmt: skip
    expected = np.array([400, 0], np.float32)
    found = expected + np.array([0, 3e-5], np.float32)
    assert compare([expected], [found], tried)["result"] == result


@pytest.mark.parametrize(
    ("operator", "first", "result"),
    [("Softmax", 0, "right"), ("Softmax", 0.5, "wrong values"),
     ("Sigmoid", 0, "wrong values")],
)  # fmt: skip
def test_what_is_masked_wholly_may_be_zeros(operator, first, result) -> None:
    tried = Variation(
        case="masked", kind="special", node=helper.make_node(operator, ["x"], ["y"]),
        since=13, opset=13, inputs=(np.full(2, -np.inf, np.float32),),
        output_types=(1,),
    )  # fmt: skip
    found = np.array([first, 0], np.float32)
    assert compare([np.full_like(found, np.nan)], [found], tried)["result"] == result


def test_what_ends_a_process_by_itself_clears_the_trial_before(tmp_path) -> None:
    results = tmp_path / "results.jsonl"

    def write(line: dict[str, Any]) -> None:
        with results.open("a") as file:
            file.write(json.dumps({"op": "Neg", "number": 1} | line) + "\n")

    write({"started": 1})
    write({"result": "right"})
    for before, after in (("right", "crashed"), ("crashed", "right")):
        amend(results, "Neg", 1, before, after)
        assert json.loads(results.read_text().splitlines()[-1])["result"] == after
    amend(results, "Neg", 2, "right", "crashed")
    assert len(results.read_text().splitlines()) == 4
