"""Operators in every element type, and of sizes that do not fit each other."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.ep import DataType
from onnxplug.errors import NodeError
from onnxplug_kernels import find_kernel
from onnxplug_torch.arrays import to_numpy, to_tensor
from onnxplug_torch.dtypes import data_type
from onnxplug_torch.operators import Operator, find_operator

Parse = Callable[..., onnx.ModelProto]
Alone = Callable[..., onnxplug.InferenceSession]

CASES = Path(__file__).parents[2] / "kernels" / "tests" / "node_cases.py"

TYPED_HOST_INPUTS = ("Clip", "Pad", "Range")
"""Operators of which host arguments have the type of the others."""

TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2}


def numeric_cases() -> Any:
    specification = importlib.util.spec_from_file_location("node_cases", CASES)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["node_cases"] = module
    specification.loader.exec_module(module)
    return module.numeric_cases()


def retyped(case: Any, operator: Operator, dtype: np.dtype[Any]) -> list[Any]:
    """The inputs of *case*, of *dtype* those that have the type of the first."""
    return [
        x.astype(dtype)
        if x is not None
        and x.dtype == case.inputs[0].dtype
        and position not in operator.other
        and (position not in operator.host or case.op_type in TYPED_HOST_INPUTS)
        else x
        for position, x in enumerate(case.inputs)
    ]


@pytest.mark.filterwarnings("ignore")
def test_every_operator_in_every_type_that_it_takes(torch: Any) -> None:
    compared, wrong = 0, []
    for case in numeric_cases():
        operator = find_operator(case.domain, case.op_type, case.version)
        kernel = find_kernel(case.domain, case.op_type, case.version)
        # a check refuses some types, and is not asked here
        if operator is None or kernel is None or operator.check is not None:
            continue
        if not case.inputs or case.inputs[0] is None:
            continue
        for name in sorted(operator.types):
            with np.errstate(all="ignore"):
                inputs = retyped(case, operator, DataType(name).numpy)
                count = len(case.outputs)
                bound = kernel.bind(np, case.attributes, output_count=count)
                try:
                    expected = bound(*inputs)
                except (TypeError, ValueError, OverflowError):
                    continue  # such as a negative bound of unsigned numbers
            if not isinstance(expected, tuple):
                expected = (expected,)
            compared += 1
            try:
                found = results(torch, case, operator, inputs, name)
                for one, other in zip(found, expected, strict=False):
                    check_close(one, np.asarray(other), TOLERANCES.get(name, 1e-4))
            except Exception as error:  # noqa: BLE001  all are reported together
                wrong.append(f"{case.name} of {name}: {' '.join(str(error).split())}")
    assert not wrong, "\n".join(wrong)
    assert compared > 7000


def results(
    torch: Any, case: Any, operator: Operator, inputs: list[Any], name: str
) -> list[np.ndarray[Any, Any]]:
    given = [
        x
        if x is None
        else x.tolist()
        if position in operator.host
        else to_tensor(torch, np.array(x))
        for position, x in enumerate(inputs)
    ]
    function = operator.kernel.bind_to(
        torch, case.attributes, output_count=len(case.outputs)
    )
    if case.op_type == "Range":
        found = function(*given, dtype=getattr(torch, name))
    else:
        found = function(*given)
    tensors = found if isinstance(found, tuple) else (found,)
    return [to_numpy(tensor, data_type(tensor.dtype)) for tensor in tensors]


def check_close(found: Any, expected: Any, tolerance: float) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        found.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance
    )


def test_sizes_wrap_as_their_type_does(alone: Alone, parse: Parse) -> None:
    model = parse(
        """
        narrow = Cast <to = 6> (n)
        more = Add (narrow, one)
        wide = Cast <to = 7> (more)
        sizes = Unsqueeze (wide, zeros)
        y = Expand (x, sizes)
        """,
        "float[1] x, int64 n",
        "float[k] y",
        weights="int64[1] zeros = {0}, int32 one = {1}",
    )
    x = np.ones(1, np.float32)
    (found,) = alone(model).run(None, {"x": x, "n": np.array(2**32 + 1)})
    assert found.shape == (2,)


def test_sizes_that_are_squeezed_and_stay_several(alone: Alone, parse: Parse) -> None:
    model = parse(
        "shape = Shape (x)\n same = Squeeze (shape)\n y = Reshape (x, same)",
        "float[3, 4, 5] x",
        "float[a, b, c] y",
    )
    x = np.ones((3, 4, 5), np.float32)
    assert alone(model).run(None, {"x": x})[0].shape == (3, 4, 5)


def test_a_range_that_is_no_shape_is_refused(alone: Alone, parse: Parse) -> None:
    model = parse(
        "sizes = Range (zero, n, one)\n y = Reshape (x, sizes)",
        "float[1] x, int64 n",
        "float[a] y",
        weights="int64 zero = {0}, int64 one = {1}",
    )
    with pytest.raises(MemoryError, match="wanted as sizes"):
        feed = {"x": np.ones(1, np.float32), "n": np.array(2**40)}
        alone(model).run(None, feed)


def test_padding_keeps_all_bits_of_its_value(alone: Alone, parse: Parse) -> None:
    model = parse(
        "y = Pad (x, pads, value)", "int64[1] x", "int64[2] y",
        weights="int64[2] pads = {0, 1}, int64 value = {1152921504606846977}",
    )  # fmt: skip
    (found,) = alone(model).run(None, {"x": np.array([5])})
    assert found.tolist() == [5, 2**60 + 1]


@pytest.mark.parametrize(
    ("bias", "right"),
    [(0.0, [2**24 + 1, 0, -(2**30) - 1]), (2.5, [2**24 - 2, 0, -(2**30) + 2])],
)
def test_shrinking_keeps_all_digits_of_whole_numbers(
    alone: Alone, parse: Parse, bias: float, right: list[int]
) -> None:
    model = parse(
        f"y = Shrink <bias = {bias}, lambd = 1.5> (x)", "int32[3] x", "int32[3] y"
    )
    x = np.array([2**24 + 1, 1, -(2**30) - 1], np.int32)
    assert alone(model).run(None, {"x": x})[0].tolist() == right


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64"])
@pytest.mark.parametrize("beta", [1, 3])
def test_products_of_whole_numbers_keep_all_digits_and_wrap(
    alone: Alone, parse: Parse, dtype: str, beta: int
) -> None:
    model = parse(
        f"y = Gemm <beta = {beta}.0> (a, b, c)",
        f"{dtype}[2, 2] a, {dtype}[2, 2] b, {dtype}[2] c", f"{dtype}[2, 2] y",
    )  # fmt: skip
    most = np.iinfo(dtype).max
    a = np.array([[most, most // 2 + 1], [most // 3, 1]], dtype)
    b, c = np.array([[1, 3], [1, 1]], dtype), np.array([1, most - 2], dtype)
    with np.errstate(over="ignore"):
        right = a @ b + np.array(beta, dtype) * c
    found = alone(model).run(None, {"a": a, "b": b, "c": c})[0]
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("shape", [(3, 2000), (3, 20)])
def test_axes_are_resampled_in_matrices_and_by_taps(
    alone: Alone, parse: Parse, mode: str, antialias: int, shape: tuple[int, int]
) -> None:
    if antialias and mode == "nearest":
        pytest.skip("which ONNX has not")
    model = parse(
        f'y = Resize <mode = "{mode}", antialias = {antialias},'
        'coordinate_transformation_mode = "asymmetric"> (x, , scales)',
        "float[a, b] x",
        "float[c, d] y",
        weights="float[2] scales = {2.0, 0.3}",
    )
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    kernel = find_kernel("", "Resize", 21)
    assert kernel is not None
    resize = kernel.bind(
        np,
        {
            "mode": mode,
            "antialias": antialias,
            "coordinate_transformation_mode": "asymmetric",
        },
        output_count=1,
    )
    expected = resize(x, None, np.array([2.0, 0.3], np.float32))
    (found,) = alone(model).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


SIZES = {"x": (5, 2, 3), "w": (1, 16, 3), "r": (1, 16, 4), "b": (1, 32)}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [
        {"x": (5, 2, 1)},
        {"w": (1, 16, 2)},
        {"b": (1, 8)},
        {"r": (1, 16, 2)},
        {"h": (1, 3, 4)},
        {"w": (2, 16, 3), "r": (2, 16, 4), "b": (2, 32)},
    ],
    ids=str,
)
def test_recurrent_layers_read_nothing_beyond_their_weights(
    alone: Alone, parse: Parse, wrong: dict[str, tuple[int, ...]], constant: bool
) -> None:
    sizes = {**SIZES, "h": (1, 2, 4), **wrong}
    arrays = {name: np.ones(size, np.float32) for name, size in sizes.items()}
    held = ("w", "r", "b") if constant else ()
    fed = [name for name in arrays if name not in held]
    ranks = {name: array.ndim for name, array in arrays.items()}
    model = parse(
        "y = LSTM <hidden_size = 4> (x, w, r, b, , h)",
        ", ".join(
            f"float[{', '.join(f'{name}{n}' for n in range(ranks[name]))}] {name}"
            for name in fed
        ),
        "float[s, d, n, m] y",
    )
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(arrays[name], name) for name in held
    )
    with pytest.raises(NodeError, match=r"expected|hidden_size"):
        alone(model).run(None, {name: arrays[name] for name in fed})


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", ["w r", "w r b", "w r b h c"])
def test_layers_that_keep_their_weights_give_what_others_do(
    torch: Any, alone: Alone, parse: Parse, direction: str, given: str
) -> None:
    count, hidden, features = 1 + (direction == "bidirectional"), 5, 3
    sizes = {
        "w": (count, 4 * hidden, features),
        "r": (count, 4 * hidden, hidden),
        "b": (count, 8 * hidden),
    }
    inputs = ["x", *given.split()]
    states = {"h": "float[d, n, m] h", "c": "float[d, n, m] c"}
    draw = np.random.default_rng(0)
    weights = {
        name: draw.normal(size=sizes[name]).astype(np.float32)
        for name in sizes.keys() & set(inputs)
    }
    named = ["x", "w", "r", "b", "", "h", "c"]
    node = ", ".join(name if name in inputs else "" for name in named).rstrip(", ")
    fed = ["float[s, n, i] x", *(states[each] for each in states if each in inputs)]
    fed_weights = [
        f"float[{', '.join(map(str, sizes[name]))}] {name}" for name in weights
    ]
    body = f'y, yh, yc = LSTM <hidden_size = 5, direction = "{direction}"> ({node})'
    outputs = "float[s, d, n, m] y, float[d, n, m] yh, float[d, n, m] yc"
    kept = parse(body, ", ".join(fed), outputs)
    kept.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    keeping = alone(kept)
    by_torch = alone(parse(body, ", ".join(fed + fed_weights), outputs))
    called = []
    layer = torch.mkldnn_rnn_layer

    def count_layer(*arguments: Any) -> Any:
        called.append(arguments)
        return layer(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "mkldnn_rnn_layer", count_layer)
        # later ones are of other sizes than those that the weights were laid out for
        for steps, batch in ((4, 1), (1, 1), (6, 3), (2, 0), (4, 1)):
            feed = {"x": draw.normal(size=(steps, batch, features))}
            feed |= {
                name: draw.normal(size=(count, batch, hidden))
                for name in states.keys() & set(inputs)
            }
            feed = {name: array.astype(np.float32) for name, array in feed.items()}
            wanted = by_torch.run(None, feed | weights)
            for ours, right in zip(keeping.run(None, feed), wanted, strict=True):
                np.testing.assert_allclose(ours, right, rtol=1e-5, atol=1e-6)
    if platform.machine() in ("x86_64", "AMD64"):
        assert len(called) == 4 * count
    with pytest.raises(NodeError, match=r"steps|length"):
        keeping.run(None, feed | {"x": np.zeros((0, 1, features), np.float32)})


@pytest.mark.parametrize(("keys", "values"), [(3, 5), (5, 3), (3, 100_000)])
def test_attention_reads_nothing_beyond_its_values(
    alone: Alone, parse: Parse, keys: int, values: int
) -> None:
    model = parse(
        "y = Attention (q, k, v)",
        "float[a, b, c, d] q, float[a, b, e, d] k, float[a, b, f, d] v",
        "float[a, b, c, d] y",
        opset=23,
    )
    feed = {
        name: np.ones((1, 1, count, 64), np.float32)
        for name, count in (("q", 4), ("k", keys), ("v", values))
    }
    with pytest.raises(NodeError, match="as many"):
        alone(model).run(None, feed)


@pytest.mark.parametrize(
    ("keys", "mask"),
    [(3, (1, 1, 2, 3)), (3, (3, 1, 2, 3)), (3, (1, 1, 7, 3)), (1, (1, 1, 2, 3))],
)
def test_masks_that_make_the_scores_larger(
    alone: Alone, parse: Parse, keys: int, mask: tuple[int, ...]
) -> None:
    model = parse(
        """
        product = MatMul (q, k)
        scores = Mul (product, half)
        masked = Add (scores, mask)
        weights = Softmax <axis = -1> (masked)
        y = MatMul (weights, v)
        """,
        "float[a, b, c, d] q, float[e, f, g, h] k, float[i, j, l, o] v, "
        "float[m1, m2, m3, m4] mask",
        "float[y1, y2, y3, y4] y",
        weights="float half = {0.5}",
    )
    draw = np.random.default_rng(0)
    rows = 7 if mask[2] == 7 else 2
    sizes = {
        "q": (1, 1, 1 if rows == 7 else 2, 4),
        "k": (1, 1, 4, keys),
        "v": (1, 1, 3, 5),
        "mask": mask,
    }
    feed = {name: draw.normal(size=s).astype(np.float32) for name, s in sizes.items()}
    (expected,) = ReferenceEvaluator(model).run(None, feed)
    (found,) = alone(model).run(None, feed)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("start", [-10, -4, -1, 2, 10])
@pytest.mark.parametrize("end", [-(2**63), -2, 0, 2**63 - 1])
@pytest.mark.parametrize("step", [-2, -1, 1, 3])
def test_slices_of_tensors_and_of_sizes(
    alone: Alone, parse: Parse, start: int, end: int, step: int
) -> None:
    model = parse(
        """
        y = Slice (x, start, end, axis, step)
        shape = Shape (x)
        part = Slice (shape, start, end, axis, step)
        z = ConstantOfShape (part)
        """,
        "float[3, 4, 5, 6] x",
        "float[a, b, c, d] y, float z",
        weights=f"int64[1] start = {{{start}}}, int64[1] end = {{{end}}}, "
        f"int64[1] axis = {{0}}, int64[1] step = {{{step}}}",
    )
    x = np.arange(360, dtype=np.float32).reshape(3, 4, 5, 6)

    def numbers(size: int) -> list[int]:
        # the formula of ONNX's text
        first = start + size if start < 0 else start
        last = end + size if end < 0 else end
        if step < 0:
            return list(
                range(min(max(first, 0), size - 1), min(max(last, -1), size - 1), step)
            )
        return list(range(min(max(first, 0), size), min(max(last, 0), size), step))

    y, z = alone(model).run(None, {"x": x})
    np.testing.assert_array_equal(y, x[numbers(3)])
    assert z.shape == tuple(x.shape[n] for n in numbers(4))


def test_no_rows_are_reshaped(alone: Alone, parse: Parse) -> None:
    model = parse(
        "y = Reshape (x, sizes)", "float[a, 2, 4] x", "float[a, b] y",
        weights="int64[2] sizes = {0, -1}",
    )  # fmt: skip
    x = np.ones((0, 2, 4), np.float32)
    assert alone(model).run(None, {"x": x})[0].shape == (0, 8)


def test_normalisation_of_no_images(alone: Alone, parse: Parse) -> None:
    model = parse(
        "y = InstanceNormalization (x, s, s)", "float[n, 4, l] x", "float[n, 4, l] y",
        weights="float[4] s = {1, 2, 3, 4}",
    )  # fmt: skip
    x = np.ones((0, 4, 5), np.float32)
    assert alone(model).run(None, {"x": x})[0].shape == (0, 4, 5)


def test_indices_of_nothing_are_refused_on_devices_too(torch: Any) -> None:
    from onnxplug_torch.operators.computing import guarded, within

    # a device without elements of its own
    some = torch.zeros(3, dtype=torch.int64, device="meta")
    for function in (guarded, within):
        with pytest.raises(IndexError, match="without elements"):
            function(torch, some, 0)
        assert function(torch, some[:0], 0).shape == (0,)
