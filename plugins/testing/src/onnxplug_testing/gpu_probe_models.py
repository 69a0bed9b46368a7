"""Small models by which kernels of GPUs are probed, beside those of
:mod:`onnxplug_testing.probe_models`, which says what they are."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_WAVE: Final = np.sin(np.arange(756) * 1.3)


def _codes(*shape: int) -> np.ndarray[Any, Any]:
    """Bytes of which all bits vary."""
    count = int(np.prod(shape))
    return (np.arange(count) * 37 % 251).astype(np.uint8).reshape(shape)


def _eighths(*shape: int) -> np.ndarray[Any, Any]:
    """Multiples of 1/8 between -1 and 1."""
    return (
        ((np.arange(int(np.prod(shape))) * 7 % 17 - 8) / 8)
        .astype(np.float32)
        .reshape(shape)
    )


_F16: Final = np.float16
_TWO_HEADS: Final = (
    "a = Pad (x, wide)\n q = Cast <to = {to}> (a)\n r = Reshape (q, long)\n"
    "k = Slice (r, from, until, axis)\n p = Attention (r, k, k)\n"
    "s = Attention <softcap = 3.0> (r, k, k)\n"
    "y = Cast <to = 1> (p)\n z = Cast <to = 1> (s)"
)
_LARGE: Final = (
    "r = Reshape (x, rows)\n w = Cast <to = {to}> (r)\n a = MatMul (w, m)\n"
    "p = Gemm <transB = 1> (a, a, b)\n q = Relu (p)\n y = Cast <to = {out}> (q)"
)
_IN_BLOCKS: Final = (
    "{y} = com.microsoft.MatMulNBits <K = 126, N = 9, bits = {bits}, block_size = 32> "
    "(r, b{bits}, s)\n"
)
_TREES: Final = (
    "nodes_treeids = [0, 0, 0, 0, 0, 1, 1, 1], "
    "nodes_nodeids = [0, 1, 2, 3, 4, 0, 1, 2], "
    "nodes_featureids = [2, 0, 5, 0, 0, 6, 0, 0], "
    "nodes_values = [0.25, 0.0, -0.5, 0.0, 0.0, 0.125, 0.0, 0.0], "
    'nodes_modes = ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ", '
    '"LEAF", "LEAF"], nodes_truenodeids = [1, 0, 3, 0, 0, 1, 0, 0], '
    "nodes_falsenodeids = [2, 0, 4, 0, 0, 2, 0, 0], "
)


def _votes(kind: str) -> str:
    return (
        f"{kind}_treeids = [0, 0, 0, 1, 1], {kind}_nodeids = [1, 3, 4, 1, 2], "
        f"{kind}_ids = [0, 1, 2, 1, 0], "
        f"{kind}_weights = [0.75, -1.5, 0.375, 2.25, -0.625]"
    )


MODELS: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "few_rows": (
        "r = Reshape (x, rows)\n t = Transpose (r)\n y = MatMul (r, t)",
        "float[7, 7] y",
        {"rows": [7, 108]},
    ),
    "codes": (
        "r = Reshape (x, few)\n"
        + "".join(
            _IN_BLOCKS.format(y=f"c{bits}", bits=bits) for bits in (2, 4, 8)
        )
        + "y = Concat <axis = 0> (c2, c4, c8)\n t = Reshape (x, many)\n"
        "z = com.microsoft.MatMulNBits <K = 42, N = 11, bits = 4, block_size = 16> "
        "(t, b, u)",
        "float[18, 9] y, float[18, 11] z",
        {"few": [6, 126], "b2": _codes(9, 4, 8), "b4": _codes(9, 4, 16),
         "b8": _codes(9, 4, 32), "s": (36,), "many": [18, 42],
         "b": _codes(11, 3, 8), "u": (33,)},
    ),
    "depthwise": (
        "y = Conv <group = 6, pads = [1, 0, 1, 2], strides = [1, 2]> (x, f, b)",
        "float[2, 6, 9, 4] y",
        {"f": (6, 1, 3, 3), "b": (6,)},
    ),
    "moments": (
        "a = InstanceNormalization (x, s, o)\n"
        "t = Transpose <perm = [0, 2, 3, 1]> (x)\n e = Mul (t, t)\n"
        "c = Transpose <perm = [0, 3, 1, 2]> (e)\n"
        "g = GroupNormalization <num_groups = 3> (c, s, o)\n"
        "h = GroupNormalization <num_groups = 2> (x, s, o)\n d = Add (a, g)\n"
        "y = Add (d, h)",
        "float[2, 6, 9, 7] y",
        {"s": (6,), "o": (6,)},
    ),
    "linear_attention": (
        "t = Transpose <perm = [0, 2, 1, 3]> (x)\n q = Reshape (t, packed)\n"
        "v = Slice (q, zero, half, last)\n w = Slice (q, half, all, last)\n"
        "k = Mul (w, m)\n a = Abs (v)\n d = Neg (a)\n c = Slice (q, zero, few, last)\n"
        "b = Sigmoid (c)\n"
        "y, s = LinearAttention <q_num_heads = 6, kv_num_heads = 3> (q, k, v, , d, b)",
        "float[2, 9, 42] y, float[2, 3, 7, 7] s",
        {"packed": [2, 9, 42], "zero": [0], "few": [3], "half": [21], "all": [42],
         "last": [2], "m": np.float32(0.375)},
    ),
    "cumulative": (
        "a = CumSum <reverse = 1> (x, last)\n c = CumProd <exclusive = 1> (x, last)\n"
        "y = Add (a, c)\n z = Trilu <upper = 0> (y, k)",
        "float[2, 6, 9, 7] y, float[2, 6, 9, 7] z",
        {"last": np.int64(2), "k": np.int64(-1)},
    ),
    "places": (
        "y = GatherElements <axis = 2> (x, i)\n z = GatherND <batch_dims = 1> (x, n)",
        "float[2, 6, 4, 7] y, float[2, 2, 7] z",
        {"i": np.arange(2 * 6 * 4 * 7).reshape(2, 6, 4, 7) * 5 % 17 - 8,
         "n": [[[0, 8], [5, 3]], [[-1, -2], [2, 0]]]},
    ),
    # one update for each place, as of several any is right
    "scattering": (
        "f = Reshape (x, flat)\n t = Reshape (x, rows)\n c = Slice (f, some, more)\n"
        "y = ScatterElements (f, i, c)\n e = Slice (t, zero, few)\n"
        "z = ScatterND (t, n, e)\n"
        "w = ScatterElements <axis = 1, reduction = \"max\"> (t, d, e)",
        "float[756] y, float[63, 12] z, float[63, 12] w",
        {"flat": [-1], "rows": [63, 12], "zero": [0], "some": [100], "more": [200],
         "few": [20], "i": np.arange(100) * 11 % 756 - 378,
         "n": np.arange(20).reshape(20, 1) * 5 % 63,
         "d": np.arange(240).reshape(20, 12) * 7 % 12 // 2},
    ),
    # for engines that add nothing to what is there
    "placing": (
        "f = Reshape (x, flat)\n t = Reshape (x, rows)\n c = Slice (f, some, more)\n"
        "y = ScatterElements (f, i, c)\n e = Slice (t, zero, few)\n"
        "z = ScatterND (t, n, e)",
        "float[756] y, float[63, 12] z",
        {"flat": [-1], "rows": [63, 12], "zero": [0], "some": [100], "more": [200],
         "few": [4], "i": np.arange(100) * 7 % 756, "n": [[3], [-1], [60], [0]]},
    ),
    "extremes": (
        "r = Reshape (x, long)\n y = ArgMax <axis = 1> (r)\n z = ArgMin <axis = 1> (x)",
        "int64[4, 1] y, int64[2, 1, 9, 7] z",
        {"long": [4, 189]},
    ),
    "long_lines": (
        "r = Reshape (x, flat)\n a = Mul (r, m)\n l = Concat <axis = 0> (r, a)\n"
        "y, i = TopK <axis = 0> (l, k)",
        "float[900] y, int64[900] i",
        {"flat": [-1], "m": np.float32(-0.7109375), "k": [900]},
    ),
    "compaction": (
        "c = Greater (x, w)\n y = NonZero (c)\n f = Reshape (c, flat)\n"
        "z = Compress (x, f)\n e = Reshape (x, flat)\n g = Mul (e, m)\n"
        "r = Round (g)\n u, j, v, n = Unique (r)",
        "int64[4, k] y, float[q] z, float[p] u, int64[p] j, int64[s] v, int64[p] n",
        {"w": (6, 1, 7), "flat": [-1], "m": np.float32(100)},
    ),
    "suppression": (
        "r = Reshape (x, boxes)\n y = NonMaxSuppression (r, s, most, limit, least)",
        "int64[n, 3] y",
        {"boxes": [1, 189, 4], "s": np.float32(np.cos(np.arange(378) * 0.9)).reshape(
            1, 2, 189), "most": [20], "limit": np.array([0.3], np.float32),
         "least": np.array([-0.8], np.float32)},
    ),
    "spatial": (
        "y = GridSample <mode = \"linear\"> (x, p)\n"
        "z = RoiAlign <output_height = 3, output_width = 2, sampling_ratio = 2> "
        "(x, r, b)",
        "float[2, 6, 5, 4] y, float[3, 6, 3, 2] z",
        {"p": _WAVE[:80].reshape(2, 5, 4, 2).astype(np.float32),
         "r": np.array([[0.5, 1, 5, 7.5], [1, 2, 4, 4], [0, 0, 6, 8]], np.float32),
         "b": np.array([1, 0, 1], np.int64)},
    ),
    "window_places": (
        "a, i = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)\n"
        "u = MaxUnpool <kernel_shape = [3, 3], strides = [2, 2]> (a, i)\n"
        "r = Reshape (x, columns)\n c = Col2Im <pads = [1, 0, 0, 1]> (r, size, block)\n"
        "o = Slice (x, zero, deep, one)\n t = Tile (o, twice)\n"
        "d = DeformConv <pads = [1, 0, 1, 1], kernel_shape = [3, 2]> (x, f, t)\n"
        "y = Identity (u)\n z = Identity (c)\n v = Identity (d)",
        "float[2, 6, h, w] y, float[2, 7, 4, 3] z, float[2, 4, 9, 7] v",
        {"columns": [2, 42, 9], "size": [4, 3], "block": [3, 2],
         "zero": [0], "deep": [6], "one": [1], "twice": [1, 2, 1, 1],
         "f": (4, 6, 3, 2)},
    ),
    "minifloats": (
        "".join(
            f"a{to} = Cast <to = {to}> (x)\n e{to} = Cast <to = 1> (a{to})\n"
            for to in (17, 18, 19, 20, 23)
        )
        + "y = Concat <axis = 0> (e17, e18, e19, e20, e23)",
        "float[10, 6, 9, 7] y",
        {},
    ),
    "narrow": (
        "m = Mul (x, w)\n a = Cast <to = 10> (m)\n c = Cast <to = 16> (m)\n"
        "h = Mul (a, a)\n b = Mul (c, c)\n"
        "i = Cast <to = 3> (m)\n j = Cast <to = 5> (m)\n k = Cast <to = 6> (i)\n"
        "l = Cast <to = 6> (j)\n z = Add (k, l)",
        # results, which are rounded also where values between calls are not
        "float16[2, 6, 9, 7] h, bfloat16[2, 6, 9, 7] b, int32[2, 6, 9, 7] z",
        {"w": np.float32(90.5)},
    ),
    "wide_integers": (
        "a = Mul (x, w)\n c = Cast <to = 6> (a)\n i = Cast <to = 7> (c)\n"
        "j = Mul (i, i)\n t = Transpose <perm = [0, 1, 3, 2]> (j)\n y = MatMul (j, t)\n"
        "z = ReduceSum (j, last)\n v = ReduceMin (j, last)",
        "int64[2, 6, 9, 9] y, int64[2, 6, 9, 1] z, int64[2, 6, 9, 1] v",
        {"w": np.float32(90000), "last": [-1]},
    ),
    "integer_products": (
        "q = QuantizeLinear (x, s, o)\n p = MatMulInteger (q, w, o)\n"
        "y = Cast <to = 1> (p)\n"
        "f = Reshape (x, flat)\n c = Slice (f, from, until)\n r = Reshape (c, rows)\n"
        "a = QuantizeLinear (r, s, o)\n l = MatMulInteger (a, v, o, e)\n"
        "z = Cast <to = 1> (l)",
        "float[2, 6, 9, 5] y, float[15, 12] z",
        {"s": np.float32(0.0625), "o": np.uint8(131),
         "w": np.arange(-17, 18, dtype=np.int8).reshape(7, 5),
         "flat": [-1], "from": [0], "until": [720], "rows": [15, 48],
         "v": _codes(48, 12).view(np.int8), "e": np.arange(-6, 6, dtype=np.int8)},
    ),
    # all are multiples of 1/8 of few bits: nothing is rounded, whatever rounds factors
    "exact_products": (
        "i = Mul (x, d)\n n = Round (i)\n e = Div (n, d)\n"
        "r = Reshape (e, wide)\n y = MatMul (r, m)\n"
        "f = Reshape (e, flat)\n c = Slice (f, from, until)\n s = Reshape (c, rows)\n"
        "z = MatMul (s, k)\n v = Conv <pads = [1, 0, 1, 1]> (e, t)",
        "float[84, 40] y, float[18, 24] z, float[2, 8, 9, 6] v",
        {"d": np.float32(8), "wide": [84, 9], "flat": [-1], "from": [0],
         "until": [720], "rows": [18, 40], "m": _eighths(9, 40), "k": _eighths(40, 24),
         "t": _eighths(8, 6, 3, 3)},
    ),
    "trees": (
        "r = Reshape (x, rows)\n"
        f"y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 3, {_TREES}"
        f"{_votes('target')}> (r)\n"
        f"z, v = ai.onnx.ml.TreeEnsembleClassifier <classlabels_int64s = [4, 9, 7], "
        f"{_TREES}{_votes('class')}> (r)",
        "float[108, 3] y, int64[108] z, float[108, 3] v",
        {"rows": [108, 7]},
    ),
    "predictors": (
        "r = Reshape (x, rows)\n"
        "a = ai.onnx.ml.Scaler <offset = [0.5, -0.25, 0.0, 1.0, 0.125, 2.0, -1.0], "
        "scale = [2.0, 0.5, 1.0, 3.0, -1.0, 0.75, 4.0]> (r)\n"
        "n = ai.onnx.ml.Normalizer <norm = \"L2\"> (a)\n"
        "y = ai.onnx.ml.LinearRegressor <targets = 2, intercepts = [0.5, -2.0], "
        "coefficients = [1.0, -2.0, 0.5, 0.25, 3.0, -1.5, 0.125, "
        "-0.5, 2.0, 1.5, -3.0, 0.75, 1.0, -1.0]> (n)\n"
        "z, v = ai.onnx.ml.LinearClassifier <classlabels_ints = [3, 1, 8], "
        "intercepts = [0.25, -0.5, 0.0], post_transform = \"SOFTMAX\", "
        "coefficients = [1.0, -2.0, 0.5, 0.25, 3.0, -1.5, 0.125, -0.5, 2.0, 1.5, -3.0, "
        "0.75, 1.0, -1.0, 0.5, 0.0, -0.75, 2.5, -1.25, 0.375, 1.0]> (n)",
        "float[108, 2] y, int64[108] z, float[108, 3] v",
        {"rows": [108, 7]},
    ),
    # scales of results are no powers of two, so that few quotients are near a tie
    "linear_quantization": (
        "m = Add (x, b)\n q = QuantizeLinear (m, s, o)\n l = QuantizeLinear (x, s, o)\n"
        "a = com.microsoft.QLinearAdd (q, s, o, q, s, o, t, o)\n"
        "c = com.microsoft.QLinearMul (a, t, o, l, s, o, i, o)\n"
        "e = com.microsoft.QLinearLeakyRelu <alpha = 0.3> (c, i, o, t, o)\n"
        "g = com.microsoft.QLinearSigmoid (e, t, o, s, o)\n"
        "h = com.microsoft.QLinearGlobalAveragePool <channels_last = 0> "
        "(e, t, o, s, o)\n"
        "r = Reshape (e, rows)\n"
        "k = com.microsoft.QGemm <transB = 1> (r, t, o, w, s, v, n, s, o)\n"
        "y = DequantizeLinear (g, s, o)\n z = DequantizeLinear (h, s, o)\n"
        "u = DequantizeLinear (k, s, o)",
        "float[2, 6, 9, 7] y, float[2, 6, 1, 1] z, float[108, 5] u",
        {"s": np.float32(0.015625), "t": np.float32(0.0317),
         "i": np.float32(0.0293), "o": np.uint8(131),
         "b": np.linspace(-0.5, 0.5, 6, dtype=np.float32).reshape(6, 1, 1),
         "w": np.arange(-17, 18, dtype=np.int8).reshape(5, 7), "v": np.int8(3),
         "n": np.arange(-3, 2, dtype=np.int32) * 50, "rows": [108, 7]},
    ),
    "narrow_recurrent": (
        "r = Reshape (x, steps)\n h = Cast <to = 10> (r)\n"
        "a, e = GRU <hidden_size = 5> (h, w, k, b)\n y = Cast <to = 1> (a)",
        "float[12, 1, 9, 5] y",
        {"steps": [12, 9, 7], "w": _WAVE[:105].reshape(1, 15, 7).astype(_F16),
         "k": _WAVE[105:180].reshape(1, 15, 5).astype(_F16),
         "b": _WAVE[180:210].reshape(1, 30).astype(_F16)},
    ),
    "caches": (
        "r = Reshape (x, tokens)\n q, k, v, e = Split <axis = 2> (r, parts)\n"
        "y, g, h = com.microsoft.GroupQueryAttention <num_heads = 4, "
        "kv_num_heads = 1, do_rotary = 1> (q, k, v, p, p, n, t, c, s)\n"
        "u = Reshape (k, rows)\n z = TensorScatter <axis = 2> (p, u, i)",
        "float[2, 3, 64] y, float[2, 1, 8, 16] g, float[2, 1, 8, 16] h, "
        "float[2, 1, 5, 16] z",
        {"tokens": [2, 3, 126], "parts": [64, 16, 16, 30],
         "p": _WAVE[:160].reshape(2, 1, 5, 16).astype(np.float32),
         "n": np.array([7, 7], np.int32), "t": np.array([8], np.int32),
         "rows": [2, 1, 3, 16],
         "c": np.cos(np.arange(80) * 0.3).reshape(10, 8).astype(np.float32),
         "s": np.sin(np.arange(80) * 0.3).reshape(10, 8).astype(np.float32),
         "i": np.array([1, 2], np.int64)},
    ),
    "half_attention": (
        _TWO_HEADS.format(to=10),
        "float[2, 3, 18, 8] y, float[2, 3, 18, 8] z",
        {"wide": [0, 0, 0, 0, 0, 0, 0, 1], "long": [2, 3, 18, 8], "from": [1],
         "until": [18], "axis": [2]},
    ),
    "bfloat16_attention": (
        _TWO_HEADS.format(to=16),
        "float[2, 3, 18, 8] y, float[2, 3, 18, 8] z",
        {"wide": [0, 0, 0, 0, 0, 0, 0, 1], "long": [2, 3, 18, 8], "from": [1],
         "until": [18], "axis": [2]},
    ),
    "bfloat16": (
        "r = Reshape (x, rows)\n a = Cast <to = 16> (r)\n t = Transpose (a)\n"
        "p = MatMul (a, t)\n y = Cast <to = 1> (p)",
        "float[36, 36] y",
        {"rows": [36, 21]},
    ),
    "half_convolution": (
        "a = Cast <to = 10> (x)\n c = Conv <pads = [1, 0, 1, 1]> (a, f, b)\n"
        "y = Cast <to = 1> (c)",
        "float[2, 8, 9, 6] y",
        {"f": _WAVE[:432].reshape(8, 6, 3, 3).astype(_F16),
         "b": _WAVE[:8].astype(_F16)},
    ),
    **{
        name: (
            _LARGE.format(to=to, out=out),
            f"{'double' if out == 11 else 'float'}[108, 108] y",
            {"rows": [108, 7], "b": bias,
             "m": (_WAVE[:700] / 8).reshape(7, 100).astype(bias.dtype)},
        )
        for name, to, out, bias in (
            ("large_product", 1, 1, _WAVE[:108].astype(np.float32)),
            ("large_half_product", 10, 1, _WAVE[:108].astype(_F16)),
            ("large_double_product", 11, 11, _WAVE[:108]),
        )
    },
}  # fmt: skip

OPSETS: Final = {
    "linear_attention": 27, "moments": 21, "cumulative": 26, "spatial": 20,
    "window_places": 19, "minifloats": 24, "caches": 24, "half_attention": 23,
    "bfloat16_attention": 23,
}  # fmt: skip
"""Of ONNX, where another one is needed than what all have."""
