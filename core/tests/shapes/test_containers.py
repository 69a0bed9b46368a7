"""Types of sequences, optionals and maps, and of what they hold."""

from __future__ import annotations

import pytest

from onnxplug.ep import DataType, MapType, OptionalType, SequenceType, TensorType
from onnxplug.errors import InvalidModel
from onnxplug.prepare.infer import infer_types
from onnxplug.shapes.stated import joined, without_shapes

F = DataType.FLOAT32
INT64 = DataType.INT64


def of(*shape, dtype=F):
    return TensorType(dtype, shape)


INPUTS = """g (float[N,2] x, float[N,3] z, int64 i, bool c, seq(float[M]) s,
    optional(float[N]) o, seq(map(int64, float)) maps) => (y)
    <int64[2] parts = {1, 1}, int64[2] odd = {0, 2}, int64 step = {2}>"""


@pytest.mark.parametrize(
    ("nodes", "type"),
    [
        ("y = SequenceConstruct (x, x)", SequenceType(of("N", 2))),
        ("y = SequenceConstruct (x, z)", SequenceType(of("N", None))),
        ("y = SequenceEmpty <dtype = 7> ()", SequenceType(TensorType(INT64))),
        (
            "e = SequenceEmpty () y = SequenceInsert (e, x)",
            SequenceType(TensorType(F)),
        ),
        ("y = SequenceErase (s, i)", SequenceType(of("M"))),
        ("y = SequenceAt (s, i)", of("M")),
        ("y = SequenceAt (maps, i)", MapType(INT64, of())),
        ("y = SequenceLength (s)", of(dtype=INT64)),
        ("y = SplitToSequence <axis = 1> (x)", SequenceType(of("N", 1))),
        ("y = SplitToSequence <axis = 1, keepdims = 0> (x)", SequenceType(of("N"))),
        ("y = SplitToSequence <axis = 1> (x, parts)", SequenceType(of("N", 1))),
        ("y = SplitToSequence <axis = 1> (x, odd)", SequenceType(of("N", None))),
        ("y = SplitToSequence <axis = 0> (x, step)", SequenceType(of(None, 2))),
        ("y = ConcatFromSequence <axis = 0, new_axis = 1> (s)", of(None, "M")),
        ("y = ConcatFromSequence <axis = 0> (s)", of(None)),
        ("y = Optional (x)", OptionalType(of("N", 2))),
        ("y = Optional <type = seq(float)> ()", OptionalType(SequenceType(of()))),
        ("y = OptionalGetElement (o)", of("N")),
        ("y = OptionalGetElement (s)", SequenceType(of("M"))),
        ("y = OptionalHasElement (o)", of(dtype=DataType.BOOL)),
        ("y = Identity (s)", SequenceType(of("M"))),
        (
            "y = If (c) <then_branch = t () => (p) { p = SequenceConstruct (x) }, "
            "else_branch = e () => (q) { q = SequenceConstruct (z) }>",
            SequenceType(of("N", None)),
        ),
        (
            "e = SequenceEmpty () y = Loop (i, c, e) <body = b (k, go, t) => (go2, t2) "
            "{ go2 = Identity (go) n = NonZero (x) t2 = SequenceInsert (t, n) }>",
            None,  # an element of int64 goes into a sequence of float32
        ),
        (
            "e = SequenceEmpty <dtype = 7> () "
            "y = Loop (i, c, e) <body = b (k, go, t) => (go2, t2) "
            "{ go2 = Identity (go) n = NonZero (x) t2 = SequenceInsert (t, n) }>",
            SequenceType(TensorType(INT64)),
        ),
        (
            "y = SequenceMap (s, x) <body = b (e, w) => (q) { q = MatMul (w, e) }>",
            SequenceType(of("N")),
        ),
        (
            "y = SequenceMap (s) <body = b (e) => (q) { q = NonZero (e) }>",
            SequenceType(of(1, None, dtype=INT64)),
        ),
    ],
)
def test_types_that_follow(parse, nodes, type):
    model = parse(f"{INPUTS} {{ {nodes} }}")
    infer_types(model.graph)
    found = model.graph.types["y"]
    if type is None:
        assert isinstance(found, SequenceType) and found.element.dtype is None
    else:
        assert found == type


def test_a_declaration_of_another_kind_is_refused(parse):
    inputs = INPUTS.replace("(y)", "(float[2] y)")
    model = parse(f"{inputs} {{ a = Neg (x) y = Identity (s) }}")
    with pytest.raises(InvalidModel, match="'y' of graph 'g' is declared as a tensor"):
        infer_types(model.graph)


def test_an_operator_of_tensors_learns_nothing_from_a_sequence(parse):
    model = parse(f"{INPUTS} {{ a = Neg (s) y = Neg (x) }}")
    infer_types(model.graph)
    assert model.graph.types["a"] is None
    assert model.graph.types["y"] == of("N", 2)


@pytest.mark.parametrize(
    ("one", "other", "either"),
    [
        (of(2), of(2), of(2)),
        (of(2, "N"), of(2, "M"), of(2, None)),
        (of(2), of(2, 2), TensorType(F)),
        (of(2), of(2, dtype=INT64), TensorType(None, (2,))),
        (SequenceType(of(2)), SequenceType(None), SequenceType(None)),
        (OptionalType(of(2)), OptionalType(of(3)), OptionalType(of(None))),
        (of(2), SequenceType(of(2)), None),
    ],
)
def test_what_is_either_of_two_types(one, other, either):
    assert joined(one, other) == joined(other, one) == either


def test_shapes_are_left_out_at_any_depth():
    type = OptionalType(SequenceType(of(2, 3)))
    assert without_shapes(type) == OptionalType(SequenceType(TensorType(F)))
    assert without_shapes(MapType(INT64, of())) == MapType(INT64, of())
