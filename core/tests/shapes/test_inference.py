"""Shapes that follow from operators, by what exporters write."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from onnxplug.ep import DataType, TensorType
from onnxplug.prepare import prepare
from onnxplug.prepare.infer import fix_free_dimensions, infer_types
from onnxplug.shapes.stated import is_known

F = DataType.FLOAT32

INPUTS = """g (float[N,S,32] x, float[N,4,P,8] past, float[N,3,H,W] image, int64[K] ids,
    float[16,3,3,3] k3, float[3,5,2,2] kt, float[32,32] square, float[2,21,32] gw,
    float[2,21,7] gr) => (y)
    <int64 zero = {0}, int64 one = {1}, int64[1] at0 = {0}, int64[1] at1 = {1},
    int64[1] minus = {-1}, int64[1] eight = {8},
    int64[1] large = {9223372036854775807},
    int64[2] heads = {4, 8}, int64[3] rep = {1, 2, 3}, int64[1] two1 = {2},
    float[2] offon = {0, 1}, float[4] scales = {1, 1, 2, 0.3},
    int64[2] at02 = {0, 2}>"""
N = "n0 = Shape <start = 0, end = 1> (x) "
NS = "shape = Shape (x) n = Gather (shape, zero) s = Gather (shape, one) "
NS1 = NS + "n1 = Unsqueeze (n, at0) s1 = Unsqueeze (s, at0) "
SPLIT = NS1 + "t = Concat <axis = 0> "


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        # targets that are computed
        (SPLIT + "(n1, s1, heads) y = Reshape (x, t)", "N S 4 8"),
        (SPLIT + "(n1, minus, heads) y = Reshape (x, t)", "N S 4 8"),
        (
            NS + "m = Mul (n, s) m1 = Unsqueeze (m, at0) "
            "t = Concat <axis = 0> (m1, minus) y = Reshape (x, t)",
            "N*S 32",
        ),
        ("y = Reshape (x, minus)", "32*N*S"),
        (NS1 + "t = Concat <axis = 0> (minus, s1) y = Reshape (x, t)", "32*N S"),
        ("y = Flatten <axis = 2> (x)", "N*S 32"),
        ("y = Flatten <axis = 0> (x)", "1 32*N*S"),
        # caches of decoders
        (
            "h = Identity (past) y = Concat <axis = 2> (h, past)",
            "N 4 2*P 8",
        ),
        (
            "p = Shape <start = 2, end = 3> (past) s = Shape <start = 1, end = 2> (x) "
            "t = Add (p, s) ts = Squeeze (t) y = Range (zero, ts, one)",
            "P+S",
        ),
        (
            "p = Shape <start = 2, end = 3> (past) q = Add (p, at1) "
            "qs = Squeeze (q, at0) "
            "r = Range (zero, qs, one) y = Unsqueeze (r, at0)",
            "1 P+1",
        ),
        # slices
        ("y = Slice (x, at1, large, at1)", "N max(0,S-1) 32"),
        (
            "b = Constant <value_ints = [-40]> () i = Constant <value_ints = [2]> () "
            "y = Slice (x, b, b, i, minus)",
            "N S 1",
        ),
        ("y = Slice (x, at0, minus, at1)", "N max(0,S-1) 32"),
        ("y = Slice (x, minus, large, at1)", "N min(1,S) 32"),
        (N + "y = Slice (x, at0, n0, at1)", "N min(N,S) 32"),
        ("e = Shape <start = 1, end = 2> (x) y = Slice (x, at0, e, at1)", "N S 32"),
        ("c = Concat <axis = 1> (x, x) e = Shape <start = 1, end = 2> (x) "
         "y = Slice (c, e, large, at1)", "N S 32"),
        # expansion as PyTorch writes it
        (
            NS1 + "want = Concat <axis = 0> (n1, minus, s1) k = Shape (want) "
            "ones = ConstantOfShape <value = int64[1] {1}> (k) m = Mul (ones, minus) "
            "e = Equal (want, m) t = Where (e, ones, want) "
            "u = Unsqueeze (eight, at02) y = Expand (u, t)",
            "N 1 S",
        ),
        (N + "t = Concat <axis = 0> (n0, at1, at1) w0 = Unsqueeze (ids, at02) "
             "y = Expand (w0, t)", "N K 1"),
        ("t = Shape (x) y = ConstantOfShape (t)", "N S 32"),
        # convolutions and pools
        ("y = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (image, k3)",
         "N 16 (H+1)//2 (W+1)//2"),
        ("y = Conv <auto_pad = \"SAME_UPPER\", strides = [2, 2]> (image, k3)",
         "N 16 (H+1)//2 (W+1)//2"),
        ("y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (image)",
         "N 3 H//2 W//2"),
        ("a = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (image) "
         "y = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (a)",
         "N 3 H//4 W//4"),
        ("y = ConvTranspose <strides = [2, 2]> (image, kt)", "N 5 2*H 2*W"),
        ("y = GlobalAveragePool (image)", "N 3 1 1"),
        ("y = Resize (image, , scales)", "N 3 2*H H0"),
        # others
        ("y = MatMul (x, square)", "N S 32"),
        ("t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (x, t)", "N S S"),
        ("y = Gather (x, ids)", "K S 32"),
        ("y = ReduceMean <keepdims = 0> (x, minus)", "N S"),
        ("y = ArgMax <axis = 1> (x)", "N 1 32"),
        ("y = Tile (x, rep)", "N 2*S 96"),
        ("a, y = Split <axis = 1, num_outputs = 2> (past)", "N 2 P 8"),
        ("y = Einsum <equation = \"bsd,bhpe->bhs\"> (x, past)", "N 4 S"),
        ("y, i = TopK <axis = 1> (x, two1)", "N 2 32"),
        ("y = OneHot (ids, eight, offon)", "K 8"),
        ("y, h = GRU <hidden_size = 7, direction = \"bidirectional\"> (x, gw, gr)",
         "N 2 S 7"),
    ],
)  # fmt: skip
def test_shapes_that_follow(parse, nodes, shape):
    model = parse(f"{INPUTS} {{ {nodes} }}")
    infer_types(model.graph)
    found = model.graph.types["y"].shape
    assert found is not None
    text = [str(size).replace(" ", "") for size in found]
    assert ["?" if size == "None" else size for size in text] == [
        "?" if size == "H0" else size for size in shape.split()
    ]


def test_element_types_follow_too(parse):
    model = parse(
        """g (float16[N] x, uint8[N] q, float[1] scale) => (a, b, c, d, e, f) {
            a = Cast <to = 6> (x)
            b = Equal (x, x)
            c = DequantizeLinear (q, scale)
            d = QuantizeLinear (scale, scale)
            e = Shape (x)
            f = Where (b, x, x)
        }"""
    )
    infer_types(model.graph)
    found = [str(model.graph.types[name].dtype) for name in "abcdef"]
    assert found == ["int32", "bool", "float32", "uint8", "int64", "float16"]


def test_branches_that_agree_have_a_shape(parse):
    model = parse(
        """g (float[N,2] x, bool c) => (y, z) {
            y, z = If (c) <
                then_branch = t () => (p, p2) { p = Neg (x) p2 = Transpose (x) },
                else_branch = e () => (q, q2) { q = Abs (x) q2 = Identity (x) }>
        }"""
    )
    infer_types(model.graph)
    assert model.graph.types["y"] == TensorType(F, ("N", 2))
    assert model.graph.types["z"] == TensorType(F, (None, None))


def test_what_a_loop_and_a_scan_gather_has_a_shape(parse):
    model = parse(
        """g (int64[1] k, int64 n, bool c, float[N,2] x, float[T,B,3] xs)
        => (s, ys, l, zs) {
            s, ys = Loop (n, c, x) <body = l (i, go, state) => (go, next, out) {
                next = Concat <axis = 0> (x, x)  out = Neg (x)
            }>
            start = ReduceSum <keepdims = 0> (xs, k)
            l, zs = Scan (start, xs) <num_scan_inputs = 1, body = b (h, v)
                => (h2, o) { h2 = Add (h, v) o = Transpose (v) }>
        }"""
    )
    infer_types(model.graph)
    types = model.graph.types
    assert types["ys"] == TensorType(F, (None, "N", 2))
    assert types["zs"] == TensorType(F, ("T", 3, "B"))
    assert types["s"].dtype is F
    assert is_known(model.graph.nodes[0].subgraphs["body"].types["out"])


def test_sizes_of_a_trace_give_way_to_what_follows(parse, caplog):
    model = parse(
        """g (float[N,4] x) => (float[1,4] y) <float[1,4] a, float[2,3] c>
        { a = Neg (x)  b = Abs (a)  k = Transpose (b) c = Exp (k) y = Neg (b) }"""
    )
    with caplog.at_level(logging.WARNING, "onnxplug.prepare"):
        infer_types(model.graph)
    types = model.graph.types
    assert types["a"] == types["b"] == TensorType(F, ("N", 4))
    assert types["y"] == TensorType(F, (1, 4))  # as the model's users know it
    assert types["c"] == TensorType(F, (4, "N"))
    assert "c of graph 'g' is declared as" in caplog.text


def test_declared_names_stand_where_nothing_follows(parse):
    model = parse(
        """g (float[N] x) => (y) <int64[1,count] a>
        { a = NonZero (x)  y = Concat <axis = 1> (a, a) }"""
    )
    infer_types(model.graph)
    assert model.graph.types["y"].shape == (1, "2*count")


def test_names_that_name_nothing_are_not_taken_for_equal(parse):
    model = parse("g (float[A,B] x) => (y) { a = MatMul (x, x) y = Neg (a) }")
    model.graph.types["x"] = TensorType(F, ("?", "?"))
    model.graph.nodes[0].op_type = "Add"
    infer_types(model.graph)
    first, second = model.graph.types["a"].shape
    assert first != second


def test_inputs_of_no_stated_size_are_the_same_size_wherever_they_are(parse):
    model = parse("g (float[N,2] x) => (y) { a = Neg (x) b = Abs (x) y = Add (a, b) }")
    model.graph.types["x"] = TensorType(F, (None, 2))
    infer_types(model.graph)
    assert model.graph.types["a"] == model.graph.types["b"]
    assert model.graph.types["a"].shape[0] is not None
    assert model.graph.types["y"].shape == (None, 2)


def test_free_dimensions_are_found_within_expressions(parse):
    model = parse(
        "g (float[N,S] x) => (y) "
        "{ a = Concat <axis = 0> (x, x)  b = foreign.Op (a)  y = Neg (b) }"
    )
    infer_types(model.graph)
    assert model.graph.types["a"].shape == ("2*N", "S")
    fix_free_dimensions(model.graph, {"N": 5})
    assert model.graph.types["a"].shape == (10, "S")


def test_sizes_that_do_not_go_together_are_for_others_to_refuse(parse):
    model = parse(
        """g (float[N,2] x, float[3,7] z) => (y) {
            a = MatMul (x, z)
            b = Concat <axis = 0> (x, z)
            c = Add (x, z)
            y = Neg (x)
        }"""
    )
    infer_types(model.graph)
    assert model.graph.types["y"].shape == ("N", 2)


def test_onnx_is_not_imported_for_operators_with_rules():
    program = """
import sys
from onnxplug.ep import DataType, TensorType
from onnxplug.graph import Graph, Model, Node
from onnxplug.prepare import prepare
nodes = [Node("Shape", ("x",), ("s",)), Node("ConstantOfShape", ("s",), ("z",)),
         Node("MatMul", ("x", "z"), ("y",))]
graph = Graph("g", inputs=["x"], outputs=["y"], nodes=nodes,
              types={"x": TensorType(DataType.FLOAT32, ("N", "N"))},
              opset_imports={"": 21})
prepare(Model(graph, 10, {}, None, "", "", "", 0, "", {}, {}), evaluate=None)
assert graph.types["y"] == TensorType(DataType.FLOAT32, ("N", "N"))
assert "onnx" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        (SPLIT + "(n1, s1, heads) y = Reshape (x, t)", [0, 0, 4, 8]),
        (SPLIT + "(n1, minus, heads) y = Reshape (x, t)",
         [0, -1, 4, 8]),
        (NS + "m = Mul (n, s) m1 = Unsqueeze (m, at0) "
         "t = Concat <axis = 0> (m1, eight, minus) y = Reshape (x, t)", None),
        (NS + "m = Mul (n, s) m1 = Unsqueeze (m, at0) "
         "t = Concat <axis = 0> (m1, heads) y = Reshape (x, t)", [-1, 4, 8]),
        (NS1 + "t = Concat <axis = 0> (s1, n1, heads) y = Reshape (x, t)", None),
        (NS1 + "t = Concat <axis = 0> (n1, s1, heads) "
         "y = Reshape <allowzero = 1> (x, t)", None),
    ],
)  # fmt: skip
def test_targets_that_do_not_depend_on_sizes_become_constants(parse, ops, nodes, left):
    model = parse(f"{INPUTS} {{ {nodes} }}")
    prepare(model, evaluate=None)
    if left is None:
        assert len(ops(model.graph)) > 1
    else:
        assert ops(model.graph) == ["Reshape"]
        target = model.graph.constant(model.graph.nodes[0].inputs[1])
        assert target.tolist() == left
