"""Dimensions whose positions are computed by themselves.

What is proven is tried: with anything at all at positions that are added, the others
have the same values.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug.partition import GraphPartition
from onnxplug.prepare.infer import infer_types
from onnxplug.specialise.positions import Mixed, axes_of_positions

INPUTS = """g (float[N,4,6] x, float[N,4,6] x2, float[4,6] w, float[6,5] m,
    int64[N,3] ids, float[N,3,8,8] image, float[4,N] turned, float[N,6] rows) => (y)
    <float[2,3,3,3] kernel = {KERNEL}, float[6] one6 = {1, 2, 3, 4, 5, 6},
    int64[1] zero = {0}, int64[1] first = {1}, int64[1] last = {2},
    int64[1] minus = {-1}, int64[2] merged = {-1, 6}, int64[3] apart = {-1, 4, 5},
    int64[3] heads3 = {-1, 2, 3}, int64[2] three = {-1, 6}, int64[3] crosswise =
    {4, -1, 6}, float[3,10] third = {THIRD}, int64[3] wide = {-1, 8, 10},
    int64[2] tail = {4, 6}, int64[3] split6 = {-1, 4, 6},
    int64[3] heads = {0, 0, -1}, int64[4] deep = {0, 4, 2, 3}, int64 index0 = {0},
    int64 index1 = {1}, float zf = {0.0}, float onef = {1.0}, float[1] half = {0.5},
    int64[6] pads = {0, 1, 1, 0, 0, 0}, int64[6] wrong_pads = {0, 1, 1, 1, 0, 0},
    float[7,2] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14},
    float[1] unit = {1}, int64[2] both = {1, 2}, float[3] scale3 = {1, 2, 3},
    float[3] bias3 = {0, 1, 0}, float[3] var3 = {1, 1, 2}, float[5] bias5 =
    {1, 2, 3, 4, 5}, float[4] one4 = {1, 2, 3, 4}, float[2,6] norm2 =
    {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {""".replace(
    "KERNEL", ", ".join(str(i % 7 - 3) for i in range(54))
).replace("THIRD", ", ".join(str(i % 5 - 2) for i in range(30)))

NUMBERS = """s = Shape (x)  n = Gather (s, index0)  r = Range (index0, n, index1) """

PROVEN = [
    "y = Add (x, x2)",
    "y = Mul (x, w)",
    "y = Sub (one6, x)",
    "y = Relu (x)",
    "y = Where (c, x, w)",
    "y = Clip (x, zf, onef)",
    "y = Cast <to = 7> (x)",
    "y = Dropout (x)",
    "y = MatMul (x, m)",
    "xt = Transpose <perm = [0, 2, 1]> (x2)  y = MatMul (x, xt)",
    "y = MatMul (rows, m)",
    "y = MatMul (w, z)",
    "y = Gemm (rows, m, bias5)",
    "y = Gemm <transA = 1> (turned, k4)",
    "y = Softmax <axis = -1> (x)",
    "y = LogSoftmax <axis = 1> (x)",
    "y = LayerNormalization (x, one6)",
    "y = LayerNormalization <axis = 1> (x, w)",
    "y = RMSNormalization (x, one6)",
    "y = LpNormalization (x)",
    "y = Conv (image, kernel)",
    "y = MaxPool <kernel_shape = [2, 2]> (image)",
    "y = GlobalAveragePool (image)",
    "y = BatchNormalization (image, scale3, bias3, bias3, var3)",
    "y = InstanceNormalization (image, scale3, bias3)",
    "y = AveragePool <kernel_shape = [2, 2]> (image)",
    "y = GlobalMaxPool (image)",
    "y = LpPool <kernel_shape = [2, 2]> (image)",
    "y = ConvTranspose (image, kernel3)",
    "y = SpaceToDepth <blocksize = 2> (image)",
    "y = DepthToSpace <blocksize = 1> (image)",
    "y = Transpose <perm = [2, 0, 1]> (x)",
    "y = Transpose (rows)",
    "y = Reshape (x, split6)",
    "y = Reshape (x, heads)",
    "y = Reshape (x, deep)",
    "y = Flatten (x)",
    "s = Shape (x)  n = Gather (s, zero)  e = Concat <axis = 0> (n, minus)"
    "  y = Reshape (x, e)",
    "y = Unsqueeze (x, zero)",
    "u = Unsqueeze (x, first)  y = Squeeze (u, first)",
    "s = Shape (x)  y = Expand (w, s)",
    "s = Shape (rows)  o = ConstantOfShape (s)  y = Add (o, rows)",
    "y = Concat <axis = 1> (x, x2)",
    "y = Split <axis = 2, num_outputs = 1> (x)",
    "y = Slice (x, zero, first, last)",
    "y = Gather (table, ids)",
    "y = Gather <axis = 1> (x, zero)",
    "y = Gather <axis = 1> (x, index0)",
    "e = Transpose <perm = [1, 0, 2]> (x)  y = Gather <axis = 0> (e, index1)",
    "y = ReduceMean (x, first)",
    "y = ReduceSum <keepdims = 0> (x, both)",
    "e = Transpose <perm = [1, 0, 2]> (x)  y = ReduceMax <keepdims = 0> (e, zero)",
    "y = ArgMax <axis = 1, keepdims = 0> (x)",
    "y = Pad (x, pads)",
    "q = QuantizeLinear (x, half)  y = DequantizeLinear (q, half)",
    "y = QuantizeLinear <axis = 1> (x, one4)",
    "a = Erf (x)  b = Mul (a, x)  c3 = Tanh (b)  y = Neg (c3)",
    "r = Relu (w)  y = Add (x, r)",
    *(
        f"y = {operator} (x)"
        for operator in (
            "Abs Ceil Celu Cos Elu Exp Gelu HardSigmoid HardSwish Identity IsInf IsNaN "
            "LeakyRelu Mish Reciprocal Round Selu Shrink Sign Softplus ThresholdedRelu"
        ).split()
    ),
    *(f"y = {operator} (x, x2)" for operator in "Max Mean Min Sum".split()),
    *(
        f"y = {operator} <keepdims = 0> (x, last)"
        for operator in "ReduceL1 ReduceL2 ReduceMin ReduceProd ReduceSumSquare".split()
    ),
    # each position has a stretch of an axis
    "r = Reshape (x, merged)  s = Softmax (r)  h = Shape (x)  y = Reshape (s, h)",
    "r = Reshape (x, merged)  t1 = Transpose <perm = [1, 0]> (r)"
    "  u = Transpose <perm = [1, 0]> (t1)  q = MatMul (u, m)  y = Reshape (q, apart)",
    "r = Reshape (x, heads3)  q = MatMul (r, third)  y = Reshape (q, wide)",
    "i = Reshape (ids, minus)  g0 = Gather (table, i)  y = Reshape (g0, three)",
    # what is at the place of their own numbers
    f"{NUMBERS} y = Gather (x, r)",
    f"{NUMBERS} u = Unsqueeze (r, first)  g0 = Gather (x, u)  y = Squeeze (g0, first)",
    f"{NUMBERS} c2 = Cast <to = 6> (r)  i = Identity (c2)  y = Gather (rows, i)",
    f"{NUMBERS} u = Unsqueeze (r, first)  k = Shape <start = 0, end = 1> (x)"
    "  e = Concat <axis = 0> (k, first)  z0 = ConstantOfShape (e)"
    "  z1 = Cast <to = 7> (z0)  p = Concat <axis = 1> (u, z1)  y = GatherND (rows, p)",
    f"{NUMBERS} u = Unsqueeze (r, first)  o = Add (u, u)  e = Shape (o)"
    "  w1 = Expand (half, e)  y = Add (rows, w1)",
]

MIXED = [
    # numbers are others where positions are joined
    f"{NUMBERS} y = Identity (r)",
    f"{NUMBERS} f = Cast <to = 1> (r)  u = Unsqueeze (f, first)  y = Add (rows, u)",
    f"{NUMBERS} e = Add (r, r)  y = Gather (table, e)",
    f"{NUMBERS} y = Gather (table, r)",
    f"{NUMBERS} u = Unsqueeze (r, first)  p = Concat <axis = 1> (u, u)"
    "  y = GatherND (table, p)",
    f"{NUMBERS} u = Unsqueeze (r, first)  k = Shape <start = 0, end = 1> (x)"
    "  e = Concat <axis = 0> (k, first)  z0 = ConstantOfShape (e)"
    "  z1 = Cast <to = 7> (z0)  p = Concat <axis = 1> (z1, u)"
    "  y = GatherND (turned2, p)",
    "s = Shape (x)  n = Gather (s, index0)  r = Range (index1, n, index1)"
    "  y = Gather (x, r)",
    "s = Shape (x)  n = Gather (s, index0)  t1 = Add (n, n)"
    "  r = Range (index0, t1, index1)  y = Identity (r)",
    # of which stretches are not in the order of positions
    "t1 = Transpose <perm = [1, 0, 2]> (x)  r = Reshape (t1, merged)"
    "  y = Reshape (r, apart)",
    "r = Reshape (x, merged)  y = Identity (r)",
    "r = Reshape (x, merged)  y = ReduceMean (r, zero)",
    "r = Reshape (x, merged)  y = Softmax <axis = 0> (r)",
    "r = Reshape (x, merged)  q = Reshape (r, crosswise)  y = Transpose"
    " <perm = [1, 0, 2]> (q)",
    "y = ReduceMean (x, zero)",
    "y = ReduceSum (x)",
    "r = ReduceMean (x, zero)  y = Sub (x, r)",
    "y = Softmax <axis = 0> (x)",
    "y = LayerNormalization <axis = 0> (rows, norm2)",
    "y = LayerNormalization (rows, norm2)",
    "y = CumSum (x, index0)",
    "y = MatMul (turned, rows)",
    "xt = Transpose <perm = [1, 0]> (rows)  y = MatMul (rows, xt)",
    "y = Gemm <transA = 1> (rows, rows)",
    "y = Concat <axis = 0> (x, x2)",
    "y = Concat <axis = 0> (rows, w)",
    "s = Shape (x)  f = Cast <to = 1> (s)  y = ReduceSum (f)",
    "s = Shape (x)  n = Gather (s, zero)  f = Cast <to = 1> (n)  y = Div (x, f)",
    "y = Shape (x)",
    "s = Shape (x)  n = Gather (s, zero)  e = Sub (n, first)  y = Gather (x, e)",
    "s = Shape (x)  n = Gather (s, zero)  h = Div (n, last)  e = Concat <axis = 0> (h,"
    " last, tail)  y = Reshape (x, e)",
    "y = Reshape (x, minus)",
    # sizes that follow from how many there are in ways that no expression has
    "s = Shape (x)  n = Gather (s, zero)  k = BitwiseAnd (n, first)"
    "  e = Concat <axis = 0> (n, k, minus)  y = Reshape (x, e)",
    "s = Shape (x)  n = Gather (s, zero)  k = Gather (both, n)"
    "  e = Concat <axis = 0> (n, k, minus)  r = Reshape (x, e)  y = Neg (r)",
    "o = ReduceSum (rows, first)  s = Shape (x)  n = Gather (s, zero)"
    "  k = BitwiseAnd (n, first)  e = Concat <axis = 0> (n, k)  y = Expand (o, e)",
    "y = Flatten <axis = 2> (x)",
    "y = Slice (x, zero, first)",
    "y = Slice (x, zero, first, zero)",
    "y = Split <axis = 0, num_outputs = 2> (x)",
    "y = Gather (x, zero)",
    "y = Gather (rows, ids)",
    "y = ArgMax (x)",
    "y = TopK (x, first)",
    "y = Pad (x, wrong_pads)",
    "y, s, z0 = DynamicQuantizeLinear (x)",
    "y = NonZero (x)",
    "y = Unique (rows)",
    "y = local.Custom (x)",
    "y = BatchNormalization <training_mode = 1> (image, scale3, bias3, bias3, var3)",
    "y = Dropout (x, half, t)",
    "y = Add (rows, turned2)",
    "e = MatMul (rows, turned2)  y = Softmax (e)",
    "y = If (c1) <then_branch = a () => (p) { p = Neg (x) },"
    " else_branch = b () => (q) { q = Abs (x) }>",
]

MORE_INPUTS = """g (float[N,4,6] x, float[N,4,6] x2, float[4,6] w, float[6,5] m,
    bool[N,1,1] c, float[N,6,2] z, float[4,3] k4, bool c1, bool t, float[6,N] turned2,
    float[3,2,3,3] kernel3,"""


def whole(parse, node):
    text = INPUTS.replace(INPUTS[: INPUTS.index("\n")], MORE_INPUTS) + node + "}"
    graph = parse(text, opset=23).graph
    infer_types(graph, every_size=True)
    return GraphPartition(graph, graph.nodes)


def proven(partition):
    graph = partition.for_shapes({}).graph
    return axes_of_positions(graph, partition.inputs, partition.outputs, "N")


def fed(partition, sizes, rng):
    feed = {}
    for name in partition.inputs:
        type = partition.value(name).type
        shape = [sizes if size == "N" else size for size in type.shape]
        if type.dtype.numpy == np.int64:
            feed[name] = rng.integers(0, 6, shape)
        elif type.dtype.numpy == np.bool_:
            feed[name] = rng.integers(0, 2, shape).astype(bool)
        else:
            feed[name] = rng.standard_normal(shape).astype(np.float32)
    return feed


@pytest.mark.parametrize("node", PROVEN)
def test_what_is_added_changes_nothing(parse, node):
    partition = whole(parse, node)
    axes = proven(partition)
    assert axes.keys() == {*partition.outputs, *(axes.keys() & {*partition.inputs})}
    model = partition.to_model().model
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    evaluator = ReferenceEvaluator(model)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        longer = fed(partition, 5, rng)
        joined = evaluator.run(None, longer)
        for part in (range(3), range(2, 5)):  # those behind it, and before it
            feed = {
                name: np.take(array, part, axes[name]) if name in axes else array
                for name, array in longer.items()
            }
            alone = evaluator.run(None, feed)
            for name, found, together in zip(
                partition.outputs, alone, joined, strict=True
            ):
                assert together.shape[axes[name]] == 5
                cut = np.take(together, part, axes[name])
                np.testing.assert_allclose(cut, found, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("node", MIXED)
def test_what_may_mix_positions_is_not_proven(parse, node):
    with pytest.raises(Mixed):
        proven(whole(parse, node))


def test_the_node_and_the_reason_are_named(parse):
    with pytest.raises(Mixed, match=r"^Softmax giving 'y': it computes along it$"):
        proven(whole(parse, "y = Softmax <axis = 0> (x)"))


def test_sizes_computed_from_the_dimension_in_inputs(parse):
    graph = parse(
        "g (float[N,3] x) => (y, z) {"
        " w = Concat <axis = 0> (x, x) y = Neg (x) z = Sub (w, w) }"
    ).graph
    infer_types(graph)
    partition = GraphPartition(graph, graph.nodes[1:])
    assert partition.value("w").shape == ("2*N", 3)
    with pytest.raises(Mixed, match="not one dimension"):
        proven(partition)


def test_names_that_the_model_gives_its_outputs_do_not_matter(parse):
    model = parse("g (float[N,3] x) => (float[M,3] y) { y = Neg (x) }")
    infer_types(model.graph)
    assert proven(GraphPartition(model.graph, model.graph.nodes)) == {"x": 0, "y": 0}


def test_operators_that_broadcast_by_attributes(parse):
    model = parse("g (float[N,3] x) => (float[N,3] y) { y = Neg (x) }", opset=6)
    infer_types(model.graph)
    with pytest.raises(Mixed):
        proven(GraphPartition(model.graph, model.graph.nodes))


def test_every_operator_is_one_of_onnx():
    from onnxplug.specialise.positions import _RULES

    for name in _RULES:
        onnx.defs.get_schema(name)
