"""Models to begin with, of more than a node: branches, functions, parts of networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .seeds import Seed

RANDOM: Final = np.random.default_rng(5)


def floats(*shape: int) -> Any:
    """Numbers from -1 to 1 that are the same in each process, drawn in turn."""
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def _text(name: str, text: str, **feeds: Any) -> Seed:
    model = onnx.parser.parse_model(text)
    return Seed(name, model, feeds)


def nested_if() -> Seed:
    """A branch within a branch, with values of both graphs around."""
    return _text(
        "nested_if",
        """<ir_version: 10, opset_import: ["" : 21]>
        nested (float[N, 4] x, bool c, bool d) => (float[N, 4] y)
        <float[4] w = {1, 2, 3, 4}> {
            h = Mul (x, w)
            y = If (c) <
                then_branch = outer_then () => (float[N, 4] a) {
                    t = Add (h, w)
                    a = If (d) <
                        then_branch = inner_then () => (float[N, 4] i) {
                            i = Sub (t, h) },
                        else_branch = inner_else () => (float[N, 4] j) {
                            j = Neg (t) }
                    >
                },
                else_branch = outer_else () => (float[N, 4] b) { b = Relu (h) }
            >
        }""",
        x=floats(2, 4),
        c=np.array(True),
        d=np.array(False),
    )


def loop() -> Seed:
    """A loop with a carried value, a scanned output and a condition."""
    return _text(
        "loop",
        """<ir_version: 10, opset_import: ["" : 21]>
        looped (int64 n, bool go, float[3] x) => (float[3] y, float[M, 3] all)
        <float[3] w = {0.5, 0.25, 2.0}, float top = {100.0}> {
            y, all = Loop (n, go, x) <
                body = step (int64 i, bool c, float[3] h) =>
                    (bool more, float[3] next, float[3] out) {
                    next = Mul (h, w)
                    out = Softmax <axis = 0> (next)
                    sum = ReduceSum <keepdims = 0> (next)
                    more = Less (sum, top)
                }
            >
        }""",
        n=np.array(4),
        go=np.array(True),
        x=floats(3),
    )


def scan() -> Seed:
    """A scan over two axes with a state."""
    return _text(
        "scan",
        """<ir_version: 10, opset_import: ["" : 21]>
        scanned (float[2] s, float[5, 2] x) => (float[2] last, float[5, 2] y) {
            last, y = Scan (s, x) <
                num_scan_inputs = 1,
                body = step (float[2] h, float[2] e) => (float[2] n, float[2] o) {
                    n = Add (h, e)
                    o = Mul (n, e)
                }
            >
        }""",
        s=floats(2),
        x=floats(5, 2),
    )


def functions() -> Seed:
    """Functions of the model, one with attributes, that call each other."""
    return _text(
        "functions",
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        calls (float[2, 6] x) => (float[2, 6] y) {
            h = local.norm <axis = -1, alpha = 0.5> (x)
            y = local.twice (h)
        }
        <domain: "local", opset_import: ["" : 21]>
        norm <axis, alpha: float = 1.0> (x) => (y) {
            s = Softmax <axis : int = @axis> (x)
            y = LeakyRelu <alpha : float = @alpha> (s)
        }
        <domain: "local", opset_import: ["" : 21, "local" : 1]>
        twice (x) => (y) {
            one = Constant <value_float = 2.0> ()
            h = Mul (x, one)
            y = local.norm <axis = 0> (h)
        }""",
        x=floats(2, 6),
    )


def sequences() -> Seed:
    """Sequences and optional values, of which the last ones are tensors again."""
    return _text(
        "sequences",
        """<ir_version: 10, opset_import: ["" : 21]>
        listed (float[4, 3] x, int64 i) => (float[N, 3] y, int64 n, float[A, B] z) {
            parts = SplitToSequence <axis = 0> (x)
            part = SequenceAt (parts, i)
            more = SequenceInsert (parts, part)
            less = SequenceErase (more, i)
            y = ConcatFromSequence <axis = 0> (less)
            n = SequenceLength (more)
            maybe = Optional (part)
            has = OptionalHasElement (maybe)
            z = OptionalGetElement (maybe)
        }""",
        x=floats(4, 3),
        i=np.array(1),
    )


def sparse() -> Seed:
    """A sparse initializer that a product reads."""
    seed = _text(
        "sparse",
        """<ir_version: 10, opset_import: ["" : 21]>
        thin (float[2, 3] x) => (float[2, 4] y) { y = MatMul (x, w) }""",
        x=floats(2, 3),
    )
    values = numpy_helper.from_array(np.array([1, -2, 3], np.float32), "w")
    places = numpy_helper.from_array(np.array([[0, 1], [1, 3], [2, 0]]), "w_at")
    seed.model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, places, [3, 4])
    )
    return seed


def quantized() -> Seed:
    """Quantized products: with QDQ, with dynamic scales, with integers."""
    return _text(
        "quantized",
        """<ir_version: 10, opset_import: ["" : 21]>
        quantized (float[3, 4] x) => (float[3, 2] y, float[3, 2] z, int32[3, 2] k)
        <float s = {0.02}, int8 p = {3}, float[2] ws = {0.1, 0.05}, int8[2] wp = {0, 1},
         int8[4, 2] w = {1, -2, 3, 4, 5, -6, 7, 8}, uint8 zero = {1}> {
            q = QuantizeLinear (x, s, p)
            d = DequantizeLinear (q, s, p)
            wd = DequantizeLinear <axis = 1> (w, ws, wp)
            y = MatMul (d, wd)
            u, us, up = DynamicQuantizeLinear (x)
            k = MatMulInteger (u, w, up)
            kf = Cast <to = 1> (k)
            z = Mul (kf, us)
        }""",
        x=floats(3, 4),
    )


def overridable() -> Seed:
    """Initializers that are inputs with defaults."""
    return _text(
        "overridable",
        """<ir_version: 10, opset_import: ["" : 21]>
        defaults (float[2, 3] x, float[3] w, int64[1] axes) => (float[A, B] y)
        <float[3] w = {1, 2, 3}, int64[1] axes = {1}> {
            h = Add (x, w)
            y = ReduceSum <keepdims = 1> (h, axes)
        }""",
        x=floats(2, 3),
    )


def external() -> Seed:
    """Weights in a file beside the model."""
    seed = _text(
        "external",
        """<ir_version: 10, opset_import: ["" : 21]>
        filed (float[2, 4] x) => (float[2, 4] y) {
            h = MatMul (x, w)
            y = Add (h, b)
        }""",
        x=floats(2, 4),
    )
    content = floats(4, 5).tobytes()
    for name, shape, offset, length in (("w", [4, 4], 0, 64), ("b", [4], 64, 16)):
        tensor = seed.model.graph.initializer.add(
            name=name,
            data_type=TensorProto.FLOAT,
            dims=shape,
            data_location=TensorProto.EXTERNAL,
        )
        for key, value in (
            ("location", "weights.bin"),
            ("offset", offset),
            ("length", length),
        ):
            tensor.external_data.add(key=key, value=str(value))
    return seed._replace(files={"weights.bin": content})


def microsoft() -> Seed:
    """ONNX Runtime's operators."""
    return _text(
        "microsoft",
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        fused (float[1, 3, 4] x, float[1, 3, 4] r) => (float[1, 3, 4] y)
        <float[4] g = {1, 1, 2, 1}, float[4] b = {0, 1, 0, 1},
         float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}> {
            n, , , s = com.microsoft.SkipLayerNormalization (x, r, g, b)
            p = com.microsoft.FusedMatMul <alpha = 0.5, transB = 1> (n, w)
            a = com.microsoft.BiasGelu (p, b)
            q = com.microsoft.QuickGelu (s)
            m = com.microsoft.MultiHeadAttention <num_heads = 2> (a, q, n)
            y = com.microsoft.FastGelu (m, b)
        }""",
        x=floats(1, 3, 4),
        r=floats(1, 3, 4),
    )


def classical() -> Seed:
    """Operators of ``ai.onnx.ml``."""
    return _text(
        "classical",
        """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>
        trees (float[2, 3] x) => (float[2, 1] y, int64[2] label, float[2, 2] p) {
            s = ai.onnx.ml.Scaler <
                offset = [0.5, 0.0, 1.0], scale = [1.0, 2.0, 1.0]> (x)
            y = ai.onnx.ml.TreeEnsembleRegressor <
                n_targets = 1, nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2],
                nodes_featureids = [1, 0, 0], nodes_values = [0.5, 0.0, 0.0],
                nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"],
                nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0],
                nodes_missing_value_tracks_true = [0, 0, 0],
                target_treeids = [0, 0], target_nodeids = [1, 2], target_ids = [0, 0],
                target_weights = [1.0, -1.0]> (s)
            label, p = ai.onnx.ml.LinearClassifier <
                coefficients = [1.0, 2.0, 3.0, -1.0, -2.0, -3.0],
                intercepts = [0.5, -0.5], classlabels_ints = [3, 7],
                multi_class = 0, post_transform = "SOFTMAX"> (s)
        }""",
        x=floats(2, 3),
    )


def transformer(size: int = 8, heads: int = 2, opset: int = 21) -> Seed:
    """A block as exporters write it: attention, norms, and a perceptron with GELU."""
    head = size // heads
    weights = {
        **{f"w{n}": floats(size, size) for n in "qkvo"},
        **{f"b{n}": floats(size) for n in "qkvo"},
        **{f"g{n}": floats(size) for n in "12"},
        **{f"c{n}": floats(size) for n in "12"},
        "w1": floats(size, 2 * size),
        "w2": floats(2 * size, size),
        "f1": floats(2 * size),
        "f2": floats(size),
        "split": np.array([0, 0, heads, head]),
        "whole": np.array([0, 0, size]),
        "scale": np.array(head**-0.5, np.float32),
        "root": np.array(2**0.5, np.float32),
        "one": np.array(1, np.float32),
        "half": np.array(0.5, np.float32),
    }
    lines = ["n1 = LayerNormalization <axis = -1> (x, g1, c1)"]
    for n in "qkv":
        perm = "[0, 2, 3, 1]" if n == "k" else "[0, 2, 1, 3]"
        lines += [
            f"{n}p = MatMul (n1, w{n})",
            f"{n}b = Add ({n}p, b{n})",
            f"{n}r = Reshape ({n}b, split)",
            f"{n}h = Transpose <perm = {perm}> ({n}r)",
        ]
    lines += [
        "scores = MatMul (qh, kh)",
        "scaled = Mul (scores, scale)",
        "masked = Add (scaled, mask)",
        "shares = Softmax <axis = -1> (masked)",
        "mixed = MatMul (shares, vh)",
        "back = Transpose <perm = [0, 2, 1, 3]> (mixed)",
        "flat = Reshape (back, whole)",
        "op = MatMul (flat, wo)",
        "ob = Add (op, bo)",
        "r1 = Add (x, ob)",
        "n2 = LayerNormalization <axis = -1> (r1, g2, c2)",
        "up = MatMul (n2, w1)",
        "ub = Add (up, f1)",
        "ud = Div (ub, root)",
        "ue = Erf (ud)",
        "u1 = Add (ue, one)",
        "um = Mul (ub, u1)",
        "gelu = Mul (um, half)",
        "down = MatMul (gelu, w2)",
        "db = Add (down, f2)",
        "y = Add (r1, db)",
    ]
    text = (
        f'<ir_version: 10, opset_import: ["" : {opset}]>\n'
        f"block (float[B, S, {size}] x, float[B, 1, S, S] mask) => "
        f"(float[B, S, {size}] y) {{\n" + "\n".join(lines) + "\n}"
    )
    mask = np.triu(np.full((5, 5), -1e4, np.float32), 1)[None, None]
    seed = _text("transformer", text, x=floats(1, 5, size), mask=mask)
    seed.model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in weights.items()
    )
    return seed


def convolutions() -> Seed:
    """A net for small images."""
    seed = _text(
        "convolutions",
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[N, 2, 6, 6] x) => (float[N, 3] y) {
            c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [1, 1]>
                (x, w, b)
            n = BatchNormalization <epsilon = 0.001> (c, g, o, m, v)
            r = Relu (n)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            d = ConvTranspose <strides = [2, 2], group = 2> (p, u)
            a = AveragePool <kernel_shape = [2, 2], ceil_mode = 1, strides = [2, 2]> (d)
            i = InstanceNormalization (a, g2, o2)
            s = Resize <mode = "linear"> (i, , scales)
            e = GlobalAveragePool (s)
            f = Flatten (e)
            y = Gemm <transB = 1> (f, k)
        }""",
        x=floats(1, 2, 6, 6),
    )
    weights = {
        "w": floats(4, 2, 3, 3),
        "b": floats(4),
        "g": floats(4),
        "o": floats(4),
        "m": floats(4),
        "v": np.abs(floats(4)),
        "u": floats(4, 1, 2, 2),
        "g2": floats(2),
        "o2": floats(2),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "k": floats(3, 2),
    }
    seed.model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return seed


def shapes() -> Seed:
    """Shapes that are computed: cut, joined, and reshaped and expanded to."""
    return _text(
        "shapes",
        """<ir_version: 10, opset_import: ["" : 21]>
        computed (float[N, M, 4] x, float[N, M, 4] z)
        => (float[A, B] y, float[C, D, E] w, float[F, G, H] v, float[I] u)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2},
         int64[1] minus = {-1}, int64[1] three = {3}> {
            s = Shape (x)
            n = Slice (s, zero, one)
            t = Concat <axis = 0> (n, minus)
            y = Reshape (x, t)
            m = Slice (s, one, three)
            r = ReduceMax <keepdims = 1> (x, zero)
            e = Expand (r, s)
            p = Transpose <perm = [1, 0, 2]> (e)
            q = Unsqueeze (n, zero)
            w = Add (e, z)
            h0, h1 = Split <axis = 2, num_outputs = 2> (p)
            v = Concat <axis = -1> (h1, h0)
            k = Gather <axis = 0> (s, one)
            c = CastLike (k, x)
            i = Range (zs, es, os)
            j = Cast <to = 1> (i)
            u = Mul (j, c)
        }""",
        x=floats(2, 3, 4),
        z=floats(2, 3, 4),
    )


def strings() -> Seed:
    """Tensors of text."""
    return _text(
        "strings",
        """<ir_version: 10, opset_import: ["" : 21]>
        texts (string[N] x) => (string[N] y, bool[N] m, string[A, B] p, int64[C] n) {
            d = StringConcat (x, x)
            y = StringNormalizer <case_change_action = "UPPER"> (d)
            m = RegexFullMatch <pattern = "[a-z]+@[a-z.]+"> (x)
            p, n = StringSplit <delimiter = "@"> (x)
        }""",
        x=np.array(["ab@c.d", "", "ü"], object),
    )


STRUCTURES: Final[tuple[Callable[[], Seed], ...]] = (
    nested_if,
    loop,
    scan,
    functions,
    sequences,
    sparse,
    quantized,
    overridable,
    external,
    microsoft,
    classical,
    transformer,
    convolutions,
    shapes,
    strings,
)


def structures() -> list[Seed]:
    """All of them."""
    seeds = [make() for make in STRUCTURES]
    for seed in seeds:
        if seed.name == "shapes":
            graph = seed.model.graph
            for name, number in (("zs", 0), ("es", 5), ("os", 1)):
                graph.initializer.append(
                    numpy_helper.from_array(np.array(number), name)
                )
    return seeds
