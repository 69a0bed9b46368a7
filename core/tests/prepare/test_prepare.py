"""All passes together: models compute what they did."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug.authoring.operators import having
from onnxplug.ep import DataType, TensorType
from onnxplug.errors import OptionError
from onnxplug.graph.export import export_graph
from onnxplug.graph.load import load_model
from onnxplug.prepare import PASSES, prepare
from onnxplug.prepare.infer import fix_free_dimensions

X = np.array([-1.0, 2.0], np.float32)

MIXED = """g (float[2] x, bool c) => (y) <float[2] k = {1, 2}, float[2] l = {1, 2}> {
    two = Constant <value_float = 2.0> ()
    m = Mul (k, two)
    a = local.twice (x)
    b = local.twice (x)
    d = Add (a, m)
    e = Add (b, l)
    f = If (c) <
        then_branch = t () => (p) { p = Add (d, e) },
        else_branch = h () => (q) { unused = Exp (d)  q = Sub (d, e) }>
    y = Identity (f)
}
<domain: "local", opset_import: ["" : 21]>
twice (a) => (b) { half = Add (a, a)  b = Identity (half) }"""


def test_models_of_the_suite_compute_what_they_did(suite, evaluate, same):
    """Expanded functions are the interesting ones; two cases of each kind will do."""
    compared = 0
    seen: Counter[tuple[str, ...]] = Counter()
    for case in suite:
        operators = tuple(node.op_type for node in case.model.graph.node)
        seen[operators] += 1
        if seen[operators] > 2 or having("random").intersection(operators):
            continue
        inputs = case.data_sets[0][0]
        names = [entry.name for entry in case.model.graph.input]
        feeds = dict(zip(names, inputs, strict=False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = ReferenceEvaluator(case.model).run(None, dict(feeds))
            except Exception:  # noqa: BLE001  the evaluator does not know them all
                continue
            model = load_model(case.model)
            prepare(model, evaluate=evaluate)
            again = prepare(model, evaluate=evaluate)
            assert not any(again.counts.values()), (case.name, again.passes)
            exported = export_graph(model.graph).model
            results = ReferenceEvaluator(exported).run(None, dict(feeds))
        assert all(map(same, expected, results)), case.name
        compared += 1
    assert compared > 300


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("disabled", [(), *((name,) for name in PASSES), tuple(PASSES)])
def test_any_pass_can_be_switched_off(parse, evaluate, disabled, condition):
    model = parse(MIXED)
    functions = model.functions.copy()
    feeds = {"x": X, "c": np.array(condition)}
    exported = export_graph(model.graph, functions=functions.values()).model
    expected = ReferenceEvaluator(exported).run(None, feeds)
    report = prepare(model, evaluate=evaluate, disabled=disabled)
    assert report.disabled == disabled
    assert not report.counts.keys() & set(disabled)
    left = functions.values() if "inline" in disabled else ()
    exported = export_graph(model.graph, functions=left).model
    results = ReferenceEvaluator(exported).run(None, feeds)
    assert results[0].tolist() == expected[0].tolist()


def test_all_that_can_go_goes(parse, ops, evaluate):
    model = parse(MIXED)
    report = prepare(model, evaluate=evaluate)
    assert ops(model.graph) == ["Add", "Add", "Add", "If"]
    assert model.graph.nodes[-1].outputs == ("y",)
    assert model.graph.types["y"] == TensorType(DataType.FLOAT32, (2,))
    assert report.counts["inline"] == 2
    assert report.changed("fold") == ("Mul giving 'm'",)
    assert report.changed("constants") == ("two",)
    assert "Exp giving 'unused'" in report.changed("eliminate")
    assert str(report).startswith("prepared: inline 2, constants 1, rewrite 0")


def test_the_report_says_in_which_round_what_was_done(parse, evaluate):
    report = prepare(parse(MIXED), evaluate=evaluate)
    assert [record.name for record in report.passes][: len(PASSES)] == list(PASSES)
    assert {record.round for record in report.passes} >= {1, 2}


def test_a_second_time_changes_nothing(parse, evaluate):
    model = parse(MIXED)
    prepare(model, evaluate=evaluate)
    before = export_graph(model.graph).model
    report = prepare(model, evaluate=evaluate)
    assert not any(report.counts.values())
    assert export_graph(model.graph).model == before


def test_the_result_is_the_same_each_time(parse, evaluate):
    exports, reports = [], []
    for _ in range(2):
        model = parse(MIXED)
        reports.append(prepare(model, evaluate=evaluate))
        exports.append(export_graph(model.graph).model.SerializeToString())
    assert exports[0] == exports[1]
    assert reports[0] == reports[1]


def test_shapes_that_folding_uncovers_are_used(parse, evaluate):
    model = parse(
        """g (float[N,4] x) => (y)
        <int64 one = {1}, int64[1] axis = {0}, int64 k = {3}> {
            shape = Shape (x)
            n = Gather (shape, one)
            m = Mul (n, k)
            d = Div (m, k)
            d1 = Unsqueeze (d, axis)
            r = ConstantOfShape (d1)
            s = Shape (r)
            t = Cast <to = 1> (s)
            y = Add (x, t)
        }"""
    )
    prepare(model, evaluate=evaluate)
    assert [node.op_type for node in model.graph.nodes] == ["Add"]


def test_free_dimensions_make_shapes_constants(parse):
    model = parse("g (float[N,4] x) => (y) { y = Shape (x) }")
    fix_free_dimensions(model.graph, {"N": 7})
    prepare(model, evaluate=None)
    assert model.graph.constant("y").tolist() == [7, 4]


def test_a_pass_that_does_not_exist_cannot_be_switched_off(parse):
    model = parse("g (float[2] x) => (y) { y = Neg (x) }")
    with pytest.raises(OptionError, match=r"'folding'.*did you mean 'fold'.*eliminate"):
        prepare(model, evaluate=None, disabled=("folding",))
