"""Whether nodes that read one constant, each in a way of its own, compute rightly.

What an EP makes of a constant for one node, packed or turned, another cannot read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.cases import describe, load_suite
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.mutation import KEPT, SIZING, Pool, one_attribute
from onnxplug_testing.conformance.opinions import contradiction, is_computed
from onnxplug_testing.conformance.subject import refusal
from onnxplug_testing.conformance.survey import claimed_of, survey
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial
from onnxplug_testing.measuring.variations import DTYPES, Variation

_SIZE: Final = 4
"""Of every axis, so that an operator may read its inputs turned."""

_DRAWN: Final = 4
"""Pairs of each operator that differ in an attribute at random."""

_CASES: Final = 6


@check("operators", share=0.6)
def shared_constants(trial: Trial) -> None:
    """Two nodes of one operator that read one constant and differ in an attribute."""
    suite = load_suite()
    turns = {
        name: _pairs(trial, name, claimed_of(given))
        for name, given in survey(trial.subject, suite).items()
        if claimed_of(given) and name not in SIZING
    }
    while turns:
        for name in list(turns):
            if not trial.has_time:
                trial.leave_out(f"{OUT_OF_TIME} for more", len(turns))
                return
            pair = next(turns[name], None)
            if pair is None:
                del turns[name]
            else:
                _try(trial, *pair)
    if not trial.tried:
        trial.leave_out("the EP takes no operator with a constant and attributes")


def _pairs(
    trial: Trial, name: str, cases: Sequence[Variation]
) -> Iterator[tuple[Variation, Variation]]:
    """Two forms of one case each, of one size along each axis."""
    cubes = [made for case in cases[:_CASES] if (made := _cube(case)) is not None]
    if not cubes:
        return
    for second in _flipped(cubes[0]):
        yield cubes[0], second
    pool, draw = Pool(cubes), trial.draw(name)
    for _ in range(_DRAWN):
        first = draw.choice(cubes)
        drawn = one_attribute(first, pool, draw)
        if drawn is not None and drawn.node.attribute != first.node.attribute:
            yield first, drawn


def _flipped(case: Variation) -> Iterator[Variation]:
    """*case* with each attribute that is 0 or 1 the other way."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    given = {each.name: each for each in case.node.attribute}
    for name, declared in schema.attributes.items():
        if declared.type != defs.OpSchema.AttrType.INT or name in KEPT:
            continue
        value = helper.get_attribute_value(given.get(name, declared.default_value))
        if value in (0, 1):
            yield case.with_attributes(**{name: 1 - value})


def _cube(case: Variation) -> Variation | None:
    """*case* of the same size along all axes, all inputs but the first constant;
    ``None`` if it has one only, or is of no numbers."""
    lists = case.lists()
    rest = [p for p, a in enumerate(case.inputs) if a is not None and p]
    if not rest or len(rest) == len(lists):
        return None
    numbers = np.random.default_rng(len(rest))
    inputs: list[Any] = []
    for position, array in enumerate(case.inputs):
        if array is None or position in lists:
            inputs.append(array)
            continue
        if not isinstance(array, np.ndarray) or array.dtype.name not in DTYPES:
            return None
        shape = (_SIZE,) * array.ndim
        # scales and variances are not to be 0 or less
        inputs.append(numbers.integers(1, 5, shape).astype(array.dtype))
    return replace(
        case,
        kind="shared constant",
        inputs=tuple(inputs),
        constants=frozenset(rest),
        expected=None,
    )


def _try(trial: Trial, first: Variation, second: Variation) -> None:
    try:
        case = _joined(first, second)
    except Exception:  # noqa: BLE001 (a variation that ONNX does not allow)
        return
    if not trial.attempt(case):
        return
    node = f"{describe(first)} and {describe(second)}"
    try:
        found = trial.subject.run(case.model, case.feeds)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (told of by others)
        why = refusal(error)
        trial.take_back(
            f"{type(error).__name__}, which others tell of"
            if why is None
            else "the EP refuses the nodes"
        )
        return
    text, _ = contradiction(found, case, trial.subject)
    if text and trial.subject.is_reference:
        trial.take_back("ONNX's reference alone says otherwise, and may be wrong")
    elif text and not is_computed(case):
        trial.take_back("the CPU EP raises of what was drawn, which may be no ONNX")
    elif text:
        text = f"of two nodes that read one constant, {text}"
        trial.find(said.RESULTS, text, node=node, case=case, kind=first.node.op_type)


def _joined(first: Variation, second: Variation) -> Case:
    """One model of both nodes, which read the same values."""
    nodes = []
    for number, each in enumerate((first, second)):
        node = onnx.NodeProto()
        node.CopyFrom(each.node)
        renamed = [name and f"{name}_{number}" for name in each.node.output]
        del node.output[:]
        node.output.extend(renamed)
        nodes.append(node)
    values, weights = [], []
    names = dict.fromkeys(zip(first.node.input, range(len(first.inputs)), strict=False))
    for name, position in names:
        array = first.inputs[position]
        if not name or array is None:
            continue
        if position in first.constants:
            weights.append(numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            values.append(helper.make_tensor_value_info(name, kind, array.shape))
    outputs = [
        helper.make_tensor_value_info(name, kind, None)
        for node in nodes
        for name, kind in zip(node.output, first.output_types, strict=False)
        if name
    ]
    graph = helper.make_graph(nodes, "shared", values, outputs, weights)
    imports = [helper.make_opsetid("", first.opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    name = f"{first.case}, twice with one constant, opset {first.opset}"
    return Case(model.SerializeToString(), first.feeds(), name)
