"""What the kit asks of operators, sizes, options and runs tells right from wrong."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxplug import ep
from onnxplug.errors import UnassignedNode
from onnxplug.plugins import registry
from onnxplug_testing.conformance import Settings, examine
from onnxplug_testing.conformance.cases import from_the_end
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.opinions import (
    by_cpu,
    by_function,
    difference,
)
from onnxplug_testing.conformance.subject import find_subject, refusal
from onnxplug_testing.conformance.survey import claimed_of, survey
from onnxplug_testing.measuring.variations import Variation

from .planted.compile_ep import GeneratedFactory
from .planted.mistake import MISTAKES

importlib.import_module(".planted.compile_mistakes", __package__)
importlib.import_module(".planted.third.compile_results", __package__)


@pytest.fixture
def known() -> Iterator[Callable[[ep.EpFactory], str]]:
    """Makes an EP known."""
    factories: list[ep.EpFactory] = []

    def enter(factory: ep.EpFactory) -> str:
        factories.append(factory)
        registry.add(factory)
        return factory.name

    yield enter
    for factory in factories:
        registry.remove(factory.name)


def variation(operator: str, *inputs: Any, **attributes: Any) -> Variation:
    """A case of *operator* in opset 13."""
    names = [f"x{position}" for position in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], **attributes)
    schema = onnx.defs.get_schema(operator, 13)
    return Variation(
        case="made here",
        kind="suite",
        node=node,
        since=schema.since_version,
        opset=13,
        inputs=inputs,
        output_types=(1,),
    )


def test_float64_is_compared_as_such() -> None:
    right = np.array([4.0, 6.0]) * (1 + 2.0**-25)
    assert difference([right.astype(np.float32).astype(float)], [right], ["float64"])
    assert not difference([right + 1e-15], [right], ["float64"])


def test_axes_are_counted_from_the_end() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    turned = from_the_end(variation("Softmax", x, axis=1))
    assert turned is not None
    assert [each.i for each in turned.node.attribute] == [-2]
    assert from_the_end(variation("Softmax", x, axis=-1)) is None
    assert from_the_end(variation("Relu", x)) is None


def test_a_function_of_onnx_may_be_right_besides_the_formula() -> None:
    x = np.linspace(-3, 3, 7).astype(np.float32)
    model = variation("Celu", x, alpha=-2.0).plain_model()
    case = Case(model.SerializeToString(), {"x0": x}, "Celu")
    alpha = np.float32(-2)
    expected = alpha * np.where(x / alpha < 0, np.expm1(x / alpha), x / alpha)
    np.testing.assert_allclose(by_function(case)[0], expected, rtol=1e-6)
    assert difference(by_cpu(case), [expected])


def test_what_is_said_of_parts_is_not_said_of_the_operator() -> None:
    said = {"ReduceMax 'a/ReduceMax'": ["op: ReduceMax"], "Softmax 'a'": ["dtype: no"]}
    error = UnassignedNode("no EP runs it", reasons=said)
    assert refusal(error) == "op: ReduceMax; dtype: no"
    assert refusal(error, "Softmax") == "dtype: no"


def test_lists_are_asked_about_as_constants(known: Callable[..., str]) -> None:
    subject = find_subject(known(GeneratedFactory()))
    axes = np.array([1], np.int64)
    case = variation("ReduceSum", np.ones((2, 3), np.float32), axes)
    answers = survey(subject, {"ReduceSum": [case]})["ReduceSum"]
    assert [each.constants for each in claimed_of(answers)] == [{1}]


@pytest.mark.parametrize(
    ("check", "mistake"),
    [
        ("claims/digits", "claims-integers-that-it-computes-in-float32"),
        (
            "specialisation/sizes",
            "computes-with-the-shapes-of-another-specialisation",
        ),
        (
            "specialisation/element-types-in-runs",
            "declines-in-runs-what-no-shapes-change",
        ),
        ("specialisation/many-at-once", "compiles-one-partition-at-a-time"),
        ("options/compiled-in", "ignores-an-option-where-it-restores"),
        ("speed/overheads", "compiles-in-each-run"),
    ],
)
def test_a_check_finds_one_mistake_and_no_other(
    known: Callable[..., str], check: str, mistake: str
) -> None:
    name = known(MISTAKES[mistake].factory())
    assert examine(name, only=[check], settings=Settings(budget=2.5)).findings
    registry.remove(name)
    known(GeneratedFactory())
    # where nothing is found it takes all its time
    assert not examine(name, only=[check], settings=Settings(budget=1.5)).findings
