"""Nodes whose attributes or constants let them never run."""

from __future__ import annotations

import pytest

from onnxplug.authoring.sizes import MOST_TEXT
from onnxplug.errors import InvalidModel
from onnxplug.prepare.infer import infer_types

INPUTS = """g (float[N,2] x, float[N,3,8,8] image, float[4,3,2,2] k, bool c) => (y)
    <int64[2] twice = {0, 0}, int64[1] far = {7}, int64[1] neg = {-3},
    int64[2] two_open = {-1, -1}, int64[3] no_size = {2, 0, 0},
    int64[2] huge = {4611686018427387904, 4}, int64[2] pair = {1, 1}, int64 one = {1},
    int64[1] zero = {0}, int64 minus = {-1}, int64[3] three = {1, 1, 1},
    float[2] offon = {0, 1}>"""


@pytest.mark.parametrize(
    "node",
    [
        "Transpose <perm = [0, 5]> (x)",
        "Transpose <perm = [0, 0]> (x)",
        "Transpose <perm = [0]> (x)",
        "Softmax <axis = 2> (x)",
        "Concat <axis = -3> (x, x)",
        "Gather <axis = 2> (x, zero)",
        "GatherElements <axis = 2> (x, pair)",
        "ArgMax <axis = 2> (x)",
        "Flatten <axis = 3> (x)",
        "LayerNormalization <axis = -3> (x, offon)",
        "Unsqueeze (x, twice)",
        "Unsqueeze (x, far)",
        "Squeeze (x, far)",
        "ReduceSum (x, twice)",
        "ReduceMax (x, far)",
        "CumSum (x, far)",
        "Reshape (x, two_open)",
        "Reshape (x, neg)",
        "Reshape (x, no_size)",
        "Reshape (x, huge)",
        "Expand (x, neg)",
        "Expand (x, huge)",
        "Tile (x, neg)",
        "Tile (x, three)",
        "ConstantOfShape (neg)",
        "ConstantOfShape (huge)",
        "OneHot (pair, minus, offon)",
        "TopK (x, neg)",
        "Split (x, neg)",
        "Split <num_outputs = 0> (x)",
        "Slice (x, zero, far, far)",
        "Slice (x, pair, pair, twice)",
        "Slice (x, zero, far, zero, zero)",
        "Pad (x, three)",
        "Cast <to = 99> (x)",
        "RandomNormal <shape = [2, -1]> ()",
        "DepthToSpace <blocksize = 0> (image)",
        "Conv <strides = [0, 1]> (image, k)",
        "Conv <strides = [1]> (image, k)",
        "Conv <dilations = [1, -1]> (image, k)",
        "Conv <pads = [0, 0, 0, -1]> (image, k)",
        "Conv <group = 0> (image, k)",
        "Conv <kernel_shape = [2, -2]> (image, k)",
        "MaxPool <kernel_shape = [0, 2]> (image)",
        "MaxPool <kernel_shape = [2]> (image)",
        "MaxPool <kernel_shape = [2]> (c)",
        "ConvTranspose <output_padding = [0, -1]> (image, k)",
    ],
)
def test_a_node_that_cannot_run_is_named(parse, node):
    model = parse(f"{INPUTS} {{ y = {node} }}")
    operator = node.split()[0]
    with pytest.raises(InvalidModel, match=rf"{operator} giving 'y' cannot run: \w+"):
        infer_types(model.graph)


def test_what_is_found_is_told(parse):
    model = parse(f"{INPUTS} {{ y = Transpose <perm = [0, 5]> (x) }}")
    with pytest.raises(InvalidModel, match=r"perm is \[0, 5\].*rank 2.*0 to 1 once"):
        infer_types(model.graph)


def test_in_a_body_it_may_never_run(parse):
    model = parse(
        f"""{INPUTS} {{
            y = If (c) <
                then_branch = t () => (p) {{ p = Transpose <perm = [0, 5]> (x) }},
                else_branch = e () => (q) {{ q = Neg (x) }}>
            z = Neg (x)
        }}"""
    )
    infer_types(model.graph)
    assert model.graph.types["z"].shape == ("N", 2)


@pytest.mark.parametrize(
    "nodes",
    [
        # of another rank than is declared, perhaps
        "a = local.Mystery (x) y = Transpose <perm = [0, 2, 1]> (a)",
        "a = local.Mystery (x) b = Neg (a) y = Squeeze (b, far)",
        "a = local.Mystery (x) s = Shape (a) m = Sub (s, huge) y = Expand (x, m)",
        # of other sizes
        "a = Identity (x) y = Squeeze (a, zero)",
        "y = Reshape (image, pair)",
        "i = Identity (far) y = Gather (pair, i)",
    ],
)
def test_what_depends_on_declarations_is_for_the_run(parse, nodes):
    model = parse(f"{INPUTS[:-1]}, float[5,5] a> {{ {nodes} }}")
    infer_types(model.graph)


@pytest.mark.parametrize("keeps", [2, -1])
def test_whether_dimensions_are_kept_is_a_truth(parse, keeps):
    model = parse(f"{INPUTS} {{ y = ReduceSum <keepdims = {keeps}> (x, zero) }}")
    infer_types(model.graph)
    assert model.graph.types["y"].shape == (1, 2)


def test_sizes_that_no_tensor_has_are_not_stated(parse):
    nodes = "".join(f"a{i + 1} = Concat <axis = 1> (a{i}, a{i}) " for i in range(70))
    model = parse(f"{INPUTS} {{ a0 = Neg (x) {nodes} y = Neg (a70) }}")
    infer_types(model.graph)
    assert model.graph.types["a61"].shape == ("N", 2**62)
    assert model.graph.types["a62"].shape[1].startswith("unk__")


def test_sizes_that_grow_with_every_node_are_given_names(parse):
    nodes = ""
    for i in range(300):  # a third of each, and all of it
        nodes += f"b{i} = MaxPool <kernel_shape = [1], strides = [3]> (a{i}) "
        nodes += f"a{i + 1} = Concat <axis = 2> (b{i}, a{i}) "
    model = parse(f"g (float[1,1,N] a0) => (y) {{ {nodes} y = Neg (a300) }}")
    infer_types(model.graph)
    sizes = [model.graph.types[f"a{i}"].shape[2] for i in range(300)]
    assert sizes[1] == "(N + 2)//3 + N"
    assert max(map(len, sizes)) <= MOST_TEXT


def test_a_product_of_many_sizes_gets_a_name(parse):
    shape = ",".join(f"N{i}" for i in range(200))
    flat = "<int64[1] flat = {-1}>"
    model = parse(f"g (float[{shape}] x) => (y) {flat} {{ y = Reshape (x, flat) }}")
    infer_types(model.graph)
    assert model.graph.types["y"].shape == (None,)
