"""Plans, their parts, and where a model is divided."""

from __future__ import annotations

import random

import onnx
import pytest

from onnxplug.calibration.plan import (
    Plan,
    Share,
    alone,
    complement,
    joined,
    mixed,
)
from onnxplug.calibration.segments import (
    MOST,
    crossing_values,
    kind_of,
    segments,
)
from onnxplug.graph import Graph
from onnxplug.graph.load import load_model

CPU = "CPUExecutionProvider"


def loaded(text: str) -> Graph:
    head = '<ir_version: 10, opset_import: ["": 21]>\n'
    model = onnx.parser.parse_model(head + text)
    return load_model(memoryview(model.SerializeToString())).graph


def chain(*ops: str) -> Graph:
    """A graph in which each node reads what the one before makes; of a convolution and
    a product also a constant."""
    lines, last = [], "x"
    for number, op in enumerate(ops):
        more = ", w" if op in ("Conv", "MatMul") else ""
        lines.append(f"v{number} = {op} ({last}{more})")
        last = f"v{number}"
    body = "\n".join(lines)
    return loaded(
        f"g (float[1,1,4,4] x, float[1,1,4,4] w) => (float[] {last}) {{{body}}}"
    )


# Spans...


def test_spans_and_what_is_left_make_the_whole() -> None:
    rng = random.Random(0)
    for _ in range(200):
        count = rng.randint(1, 12)
        edges = sorted(rng.sample(range(count + 1), min(4, count + 1) // 2 * 2))
        spans = joined(zip(edges[::2], edges[1::2], strict=True))
        rest = complement(spans, count)
        places = [n for first, last in (*spans, *rest) for n in range(first, last)]
        assert sorted(places) == list(range(count))


def test_spans_that_touch_are_one() -> None:
    assert joined([(4, 6), (0, 2), (2, 3), (5, 9)]) == ((0, 3), (4, 9))


def test_plans_keep_each_ep_from_what_the_other_has() -> None:
    one, cpu = Share("One", ((0, 2),)), Share(CPU)
    assert alone("One", with_cpu=True) == Plan((Share("One"), cpu))
    assert alone("One", with_cpu=False) == alone("One", with_cpu=True)._replace(
        shares=(Share("One"),)
    )
    assert alone(CPU, with_cpu=True) == Plan((cpu,))
    # whichever of the two is the base, the CPU EP claims last
    assert mixed("One", CPU, [(0, 2)], 5, with_cpu=True) == Plan((one, cpu))
    other_way = Share("One", ((0, 1), (3, 5)))
    assert mixed(CPU, "One", [(1, 3)], 5, with_cpu=True) == Plan((other_way, cpu))
    both = (one, Share("Two", ((2, 5),)))
    assert mixed("One", "Two", [(0, 2)], 5, with_cpu=True) == Plan((*both, cpu))
    assert mixed("One", "Two", [(0, 2)], 5, with_cpu=False) == Plan(both)
    assert str(Plan((one, cpu))) == f"One (not nodes 0–1) + {CPU}"
    assert str(alone("One", with_cpu=True)) == "One"


@pytest.mark.parametrize(
    "data", [[], [["One", [[2, 2]]]], [["One", [[-1, 2]]]], [[7, []]], [["One"]], 7]
)
def test_what_is_no_plan_is_refused(data: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Plan.from_json(data)


# Segments...


def test_a_model_is_divided_where_its_work_changes() -> None:
    graph = chain("Conv", "Relu", "Conv", "Relu", "MatMul", "Tanh", "MatMul")
    first, second = segments(graph)
    assert (first.kind, first.heavy, first.span) == ("conv", 2, (0, 3))
    assert (second.kind, second.heavy, second.span) == ("product", 2, (3, 7))


def test_a_model_of_one_kind_is_divided_into_thirds() -> None:
    found = segments(chain(*["MatMul", "Relu"] * 9))
    assert [(each.kind, each.heavy) for each in found] == [("product", 3)] * 3
    assert len(segments(chain("MatMul", "Relu", "MatMul"))) == 1
    assert len(segments(chain("Relu", "Tanh"))) == 1


def test_segments_are_few_and_cover_the_model() -> None:
    rng = random.Random(1)
    for _ in range(40):
        ops = rng.choices(["Conv", "MatMul", "Relu", "Tanh"], k=rng.randint(1, 40))
        found = segments(chain(*ops))
        assert 1 <= len(found) <= MOST
        places = [n for each in found for n in range(*each.span)]
        assert places == list(range(len(ops)))
        heavy = sum(op in ("Conv", "MatMul") for op in ops)
        assert sum(each.heavy for each in found) == heavy


def test_a_border_that_many_values_cross_is_none() -> None:
    makes = "\n".join(f"r{n} = Relu (c)" for n in range(7))
    reads = "\n".join(f"s{n} = MatMul (r{n}, r{n})" for n in range(7))
    last = ", ".join(f"s{n}" for n in range(7))
    graph = loaded(
        f"g (float[1,1,4,4] x) => (float[] y) {{ c = Conv (x, x)\n{makes}\n"
        f"q = Sum (r0, r1, r2, r3, r4, r5, r6)\n{reads}\ny = Sum (q, {last}) }}"
    )
    # right behind the convolution it is one value
    assert segments(graph)[0].span == (0, 1)
    assert crossing_values(graph)[8] == 7


def test_constants_and_shapes_do_not_cross() -> None:
    graph = loaded(
        """g (float[4] x) => (float[4] y) {
            a = Constant <value_float = 1.0> ()
            b = Identity (a)
            s = Shape (x)
            c = Relu (x)
            d = Add (c, b)
            y = Expand (d, s)
        }"""
    )
    assert crossing_values(graph) == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("ConvTranspose", "conv"),
        ("QLinearConv", "conv"),
        ("LSTM", "recurrent"),
        ("QLinearMatMul", "product"),
        ("Relu", ""),
    ],
)
def test_work_has_kinds(op: str, kind: str) -> None:
    graph = loaded(f"g (float[4] x) => (float[4] y) {{ y = {op} (x) }}")
    assert kind_of(graph.nodes[0]) == kind
