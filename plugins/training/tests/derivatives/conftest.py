"""Gradients by finite differences, and models that contain them."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug.prepare import prepare
from onnxplug.prepare.constants import lift_constants
from onnxplug.prepare.rewrite import rewrite

HEADER = (
    '<ir_version: 8, opset_import: ["" : {opset}, "ai.onnx.preview.training" : 1]>\n'
)
GRADIENT = "ai.onnx.preview.training.Gradient"


@pytest.fixture(scope="session")
def load(parse):
    """Loads a graph from its text, its constants lifted as they are before the pass."""

    def load(text, opset=18):
        model = parse(HEADER.format(opset=opset) + text)
        lift_constants(model.graph)
        return model

    return load


@pytest.fixture(scope="session")
def declare():
    """Writes inputs in ONNX's text form."""
    return declared


@pytest.fixture(scope="session")
def check(load, run):
    """Compares gradients with finite differences."""

    def check(nodes, feeds, **options):
        compare(load, run, nodes, feeds, **options)

    return check


def declared(feeds, shapes):
    """Inputs in ONNX's text form: with their sizes, with names, or without rank."""
    numbers = itertools.count()
    types = {"float64": "double", "float32": "float", "int64": "int64", "bool": "bool"}
    texts = []
    for name, array in feeds.items():
        if shapes == "static":
            sizes = "[" + ",".join(map(str, array.shape)) + "]" if array.shape else ""
        elif shapes == "named":
            dims = [f"D{next(numbers)}" for _ in array.shape]
            sizes = "[" + ",".join(dims) + "]" if dims else ""
        else:
            sizes = "[]"
        texts.append(f"{types[str(array.dtype)]}{sizes} {name}")
    return ", ".join(texts)


def floating(feeds):
    return [name for name, array in feeds.items() if array.dtype.kind == "f"]


def by_differences(text, feeds, opset, step=1e-6):
    """Central differences of the sum of the output y, by the reference evaluator."""
    model = onnx.parser.parse_model(HEADER.format(opset=opset) + text)
    evaluator = ReferenceEvaluator(model)

    def total(name, position, change):
        moved = feeds[name].copy()
        moved.flat[position] += change
        return float(np.sum(evaluator.run(None, {**feeds, name: moved})[0]))

    slopes = {}
    for name in floating(feeds):
        slope = np.zeros(feeds[name].shape)
        for position in range(slope.size):
            up, down = total(name, position, step), total(name, position, -step)
            slope.flat[position] = (up - down) / (2 * step)
        slopes[name] = slope
    return slopes


def compare(load, run, nodes, feeds, *, opset=18, shapes="static", rtol=1e-5):
    """The gradients of sin(r) r, by each input, where *nodes* compute r."""
    xs = floating(feeds)
    inputs = declared(feeds, shapes)
    forward = f"{nodes}  s_ = Sin (r)  y = Mul (s_, r)"
    expected = by_differences(
        f"g ({declared(feeds, 'static')}) => (y) {{ {forward} }}", feeds, opset
    )
    named, outputs = ", ".join(xs), ", ".join(f"d_{name}" for name in xs)
    quoted = ", ".join(f'"{name}"' for name in xs)
    model = load(
        f"g ({inputs}) => ({outputs}) {{ {forward} "
        f'{outputs} = {GRADIENT} <xs = [{quoted}], y = "y"> ({named}) }}',
        opset,
    )
    assert len(rewrite(model.graph)) == 1
    for again in (False, True):  # as it is, and after the other passes
        results = run(model.graph, *feeds.values())
        for name, result in zip(xs, results, strict=True):
            assert result.dtype == feeds[name].dtype
            assert result.shape == feeds[name].shape
            np.testing.assert_allclose(
                result, expected[name], rtol=rtol, atol=rtol / 10
            )
        if not again:
            prepare(model, evaluate=None)
