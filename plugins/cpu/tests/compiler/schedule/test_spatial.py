"""Resampling against ONNX's reference, and ONNX Runtime where that is wrong."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ..differential import session
from ..lowered import Array, lowered, random
from ..rarely import crossed

MODES: list[dict[str, Any]] = [
    {"mode": "nearest", "nearest_mode": "round_prefer_floor"},
    {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    {"mode": "nearest", "nearest_mode": "floor"},
    {"mode": "nearest", "nearest_mode": "ceil"},
    {"mode": "linear"},
    {"mode": "linear", "exclude_outside": 1},
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic"},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "cubic", "antialias": 1},
]
TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric")


def model_of(
    op_type: str,
    feeds: dict[str, Array],
    inputs: list[str | Array | None],
    *,
    opset: int = 20,
    channels_last: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    """A node of an image *x*, which may be between transpositions from and to channels
    last; arrays among *inputs* are constants."""
    constants: list[onnx.TensorProto] = []

    def named(value: str | Array | None) -> str:
        if not isinstance(value, np.ndarray):
            return value or ""
        constants.append(numpy_helper.from_array(value, f"c{len(constants)}"))
        return constants[-1].name

    names = [named(value) for value in inputs]
    nodes = [helper.make_node(op_type, names, ["y"], **attributes)]
    if channels_last:
        rank = feeds["x"].ndim
        last, first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
        nodes = [
            helper.make_node("Transpose", ["x"], ["moved"], perm=first),
            helper.make_node(op_type, ["moved", *names[1:]], ["back"], **attributes),
            helper.make_node("Transpose", ["back"], ["y"], perm=last),
        ]
        feeds["x"] = np.ascontiguousarray(feeds["x"].transpose(last))
    graph = helper.make_graph(
        nodes,
        "spatial",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9
    )


def compiled(model: onnx.ModelProto, feeds: dict[str, Array]) -> Any:
    """The result of a session in which nothing runs on arrays."""
    found = session(model, compiled=True, threads=2)
    (partition,) = found.explain().partitions
    assert set(partition.tiers) == {"compiled"}
    (result,) = found.run(None, feeds)
    assert result.dtype == np.float32
    return result


def reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> Any:
    return ReferenceEvaluator(model).run(None, feeds)[0]  # type: ignore[index]


def onnx_runtime(model: onnx.ModelProto, feeds: dict[str, Array]) -> Any:
    runner = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return runner.run(None, feeds)[0]


def floats(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


# Resize


@pytest.mark.parametrize(
    ("scales", "transform", "attributes"),
    crossed([(1, 1, 2, 2), (1, 1, 0.6, 1.7), (2, 1, 0.4, 3)], TRANSFORMS, MODES),
)
def test_resize_by_scales(
    attributes: dict[str, Any], transform: str, scales: tuple[float, ...]
) -> None:
    for shape, last in itertools.product([(2, 3, 7, 6), (1, 9, 5, 19)], (False, True)):
        feeds = {"x": random(shape)[0]}
        model = model_of(
            "Resize",
            feeds,
            ["x", None, floats(*scales)],
            channels_last=last,
            **attributes,
            coordinate_transformation_mode=transform,
        )
        expected = reference(model, feeds)
        np.testing.assert_allclose(compiled(model, feeds), expected, 1e-4, 2e-5)


@pytest.mark.parametrize("attributes", MODES[::3])
@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("sizes", [(3, 9), (12, 4), (7, 7)])
def test_resize_to_sizes(
    attributes: dict[str, Any], policy: str, sizes: tuple[int, ...]
) -> None:
    feeds = {"x": random((1, 2, 5, 6))[0]}
    model = model_of(
        "Resize",
        feeds,
        ["x", None, None, np.array(sizes)],
        axes=[2, 3],
        keep_aspect_ratio_policy=policy,
        **attributes,
    )
    expected = reference(model, feeds)
    np.testing.assert_allclose(compiled(model, feeds), expected, 1e-4, 2e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(4, 3), (8, 9), (1, 5)])
@pytest.mark.parametrize("roi", [(0.2, -0.3, 0.7, 1.4), (0.91, 0.13, 0.23, 0.8)])
@pytest.mark.parametrize("last", [False, True])
def test_resize_of_a_crop(
    mode: str, sizes: tuple[int, int], roi: tuple[float, ...], last: bool
) -> None:
    feeds = {"x": random((1, 5, 6, 5))[0]}
    model = model_of(
        "Resize",
        feeds,
        ["x", floats(*roi), None, np.array(sizes)],
        channels_last=last,
        mode=mode,
        axes=[2, 3],
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=9.0,
    )
    expected = reference(model, feeds)
    np.testing.assert_allclose(compiled(model, feeds), expected, 1e-4, 2e-5)


@pytest.mark.parametrize("dtype", "uint8 int8 int32 int64 float64 bool".split())
def test_other_elements_are_resized_as_on_arrays(dtype: str) -> None:
    """To the bit, as halves between integers are rounded to even."""
    rng = np.random.default_rng(4)
    x = rng.integers(0, 256, (2, 5, 7)).astype(np.uint8).view(np.int8).astype(dtype)
    sizes = numpy_helper.from_array(np.array([2, 10, 4]), "sizes")
    region = numpy_helper.from_array(floats(0, -0.2, 0, 1, 0.8, 1.3), "region")
    crop = {
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 2.5,
    }
    cases = [*MODES, *({**attributes, **crop} for attributes in MODES[::4])]
    names = [f"y{number}" for number in range(len(cases))]
    nodes = [
        helper.make_node("Resize", ["x", "region", "", "sizes"], [name], **attributes)
        for name, attributes in zip(names, cases, strict=True)
    ]
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes,
        "resized",
        [helper.make_tensor_value_info("x", element, x.shape)],
        [helper.make_tensor_value_info(name, element, None) for name in names],
        [sizes, region],
    )
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    found, expected = (
        session(model, compiled=compiles, threads=1) for compiles in (True, False)
    )
    (partition,) = found.explain().partitions
    assert set(partition.tiers) == {"compiled"}
    outputs = zip(found.run(None, {"x": x}), expected.run(None, {"x": x}), strict=True)
    for (ours, theirs), attributes in zip(outputs, cases, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs, str(attributes))


def test_nearest_elements_are_found_on_integers() -> None:
    """Of lengths and sizes where floats end up one beside."""
    for transform, rounding, length, size in (
        ("asymmetric", "floor", 14, 18),
        ("asymmetric", "floor", 20, 44),
        ("half_pixel", "floor", 7, 9),
        ("half_pixel", "ceil", 10, 14),
    ):
        feeds = {"x": np.arange(length, dtype=np.float32)}
        model = model_of(
            "Resize",
            feeds,
            ["x", None, None, np.array([size])],
            coordinate_transformation_mode=transform,
            nearest_mode=rounding,
        )
        half = Fraction(transform == "half_pixel", 2)
        rounded = {"floor": math.floor, "ceil": math.ceil}[rounding]
        expected = [
            rounded((n + half) * Fraction(length, size) - half) for n in range(size)
        ]
        found = compiled(model, feeds)
        np.testing.assert_array_equal(found, np.clip(expected, 0, length - 1))


@pytest.mark.parametrize("shape", [(5,), (4, 70), (4, 3, 5), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_of_other_ranks(shape: tuple[int, ...], mode: str) -> None:
    feeds = {"x": random(shape)[0]}
    scales = floats(*[1.5] * len(shape))
    model = model_of("Resize", feeds, ["x", None, scales], mode=mode)
    expected = reference(model, feeds)
    np.testing.assert_allclose(compiled(model, feeds), expected, 1e-4, 1e-4)


@pytest.mark.parametrize("transform", ["pytorch_half_pixel", "tf_half_pixel_for_nn"])
def test_transforms_of_opset_11(transform: str) -> None:
    for sizes in [(1, 1, 1, 9), (1, 1, 4, 1)]:
        feeds = {"x": random((1, 1, 3, 6))[0]}
        model = model_of(
            "Resize",
            feeds,
            ["x", floats(), floats(), np.array(sizes)],
            opset=12,
            mode="nearest" if transform.startswith("tf") else "linear",
            coordinate_transformation_mode=transform,
        )
        expected = onnx_runtime(model, feeds)
        np.testing.assert_allclose(compiled(model, feeds), expected, 1e-5, 1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 1.5, 2.5), (1, 1, 0.6, 0.5)])
def test_versions_before_11(mode: str, scales: tuple[float, ...]) -> None:
    feeds = {"x": random((2, 3, 5, 4))[0]}
    model = model_of("Resize", feeds, ["x", floats(*scales)], opset=10, mode=mode)
    expected = onnx_runtime(model, feeds)
    np.testing.assert_allclose(compiled(model, feeds), expected, 1e-5, 1e-6)
    factors = [float(scale) for scale in scales]
    for older in (
        model_of("Upsample", feeds, ["x", floats(*scales)], opset=9, mode=mode),
        model_of("Upsample", feeds, ["x"], opset=7, mode=mode, scales=factors),
    ):
        np.testing.assert_allclose(compiled(older, feeds), expected, 1e-5, 1e-6)


def test_sizes_follow_from_the_shape_of_another_value() -> None:
    """As exporters write the resampling of one map to the size of another."""
    text = """<ir_version: 9, opset_import: ["": 20]>
    tested (float[n, 4, h, w] x, float[n, 2, H, W] like) => (float[n, 4, H, W] y)
    <int64[1] two = {2}, int64[1] four = {4}, float[0] none = {}> {
        shape = Shape (like)
        size = Slice (shape, two, four)
        front = Shape <start = 0, end = 2> (x)
        sizes = Concat <axis = 0> (front, size)
        y = Resize <mode = "linear"> (x, none, none, sizes)
    }"""
    model = onnx.parser.parse_model(text)
    tested = lowered(model)
    for batch, small, large in [(1, (3, 5), (6, 20)), (2, (4, 4), (2, 3))]:
        x, like = random((batch, 4, *small), (batch, 2, *large))
        (found,) = tested.check(x, like)
        expected = reference(model, {"x": x, "like": like})
        np.testing.assert_allclose(found, expected, 1e-4, 2e-5)
    assert tested.tiers() == {"compiled": 5}


def test_infinities_and_no_numbers_reach_their_neighbours() -> None:
    x = random((1, 1, 4, 40))[0]
    x[0, 0, 1, 3], x[0, 0, 2, 20] = math.inf, math.nan
    model = model_of("Resize", {"x": x}, ["x", None, floats(1, 1, 2, 2)], mode="linear")
    expected = reference(model, {"x": x})
    found = compiled(model, {"x": x})
    # the reference cuts off what is infinite
    large = np.abs(expected, where=~np.isnan(expected), out=expected) > 3e38
    np.testing.assert_array_equal(np.isinf(found), large)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


def test_resize_to_the_same_size_is_a_view() -> None:
    feeds = {"x": random((1, 3, 4, 5))[0]}
    model = model_of("Resize", feeds, ["x", None, floats(1, 1, 1, 1)], mode="linear")
    model.graph.node[0].output[0] = "same"
    model.graph.node.append(helper.make_node("Neg", ["same"], ["y"]))
    tested = lowered(model)
    np.testing.assert_array_equal(*tested.check(feeds["x"]), -feeds["x"])
    assert tested.labels() == ["Neg"]
    model = model_of("Resize", feeds, ["x", None, floats(1, 1, 1, 1)], mode="linear")
    np.testing.assert_array_equal(compiled(model, feeds), feeds["x"])


@pytest.mark.parametrize(
    ("scales", "dtype"),
    [
        ((2, 2), np.uint8),
        ((3, 0.5), np.float32),
        ((0.25, 4), np.float64),
        ((0.5, 1), np.int32),
    ],
)
def test_nearest_elements_that_are_repeated_are_copied(
    scales: tuple[float, float], dtype: Any
) -> None:
    x = (10 * random((1, 3, 8, 36))[0]).astype(dtype)
    model = model_of(
        "Resize",
        {"x": x},
        ["x", None, floats(1, 1, *scales)],
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    model.graph.output[0].type.tensor_type.elem_type = element
    tested = lowered(model)
    np.testing.assert_array_equal(*tested.check(x), reference(model, {"x": x}))
    (command,) = tested.commands()
    # with an axis more for each, along which elements are repeated
    assert command.count("×") == 3 + sum(scale != 1 for scale in scales)


def test_what_is_not_known_is_left_to_arrays() -> None:
    feeds = {"x": random((1, 1, 4, 4))[0], "s": floats(1, 1, 2, 2)}
    tested = lowered(model_of("Resize", feeds, ["x", None, "s"], mode="linear"))
    tested.check(*feeds.values())
    assert tested.notes() == ["input 2 of Resize does not follow from shapes"]


# GridSample


@pytest.mark.parametrize(
    ("spatial", "align", "padding", "mode"),
    crossed(
        [(4, 5), (3, 4, 3), (6,)],
        [0, 1],
        ["zeros", "border", "reflection"],
        ["linear", "nearest", "cubic"],
    ),
)
def test_grid_sample(
    mode: str, padding: str, align: int, spatial: tuple[int, ...]
) -> None:
    rank = len(spatial)
    x, grid = random((2, 9, *spatial), (2, *[3] * rank, rank), seed=1)
    feeds = {"x": x, "grid": 1.5 * grid}
    model = model_of(
        "GridSample",
        feeds,
        ["x", "grid"],
        mode=mode,
        padding_mode=padding,
        align_corners=align,
    )
    if mode == "cubic" and padding == "border":
        if rank != 2:
            return  # which nobody has right: the reference moves the points
        expected = onnx_runtime(model, feeds)
    else:
        expected = reference(model, feeds)
    np.testing.assert_allclose(compiled(model, feeds), expected, 1e-3, 1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_of_opset_16(mode: str) -> None:
    x, grid = random((1, 2, 4, 5), (1, 3, 3, 2))
    feeds = {"x": x, "grid": grid}
    model = model_of("GridSample", feeds, ["x", "grid"], opset=16, mode=mode)
    expected = onnx_runtime(model, feeds)
    np.testing.assert_allclose(compiled(model, feeds), expected, 1e-4, 1e-5)


def test_grid_sample_of_nothing() -> None:
    for image, grid in [
        ((0, 2, 3, 4), (0, 3, 3, 2)),
        ((1, 0, 3, 4), (1, 3, 3, 2)),
        ((1, 2, 3, 4), (1, 0, 3, 2)),
    ]:
        x, places = random(image, grid)
        feeds = {"x": x, "grid": places}
        model = model_of("GridSample", feeds, ["x", "grid"])
        assert compiled(model, feeds).shape == (*image[:2], *grid[1:3])


# RoiAlign


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("channels", [3, 40])
def test_roi_align(opset: int, samples: int, channels: int) -> None:
    """The reference computes the mode ``max`` otherwise than ONNX says."""
    generator = np.random.default_rng(samples)
    regions = generator.uniform(0, 12, (5, 4)).astype(np.float32)
    regions[:, 2:] += regions[:, :2]
    feeds = {
        "x": random((2, channels, 11, 13))[0],
        "regions": regions,
        "images": np.array([0, 1, 1, 0, 1]),
    }
    model = model_of(
        "RoiAlign",
        feeds,
        ["x", "regions", "images"],
        opset=opset,
        output_height=3,
        output_width=5,
        sampling_ratio=samples,
        spatial_scale=0.75,
    )
    expected = onnx_runtime(model, feeds)
    np.testing.assert_allclose(compiled(model, feeds), expected, 1e-4, 2e-5)


# Pad


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16])
def test_pad(mode: str, dtype: Any) -> None:
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(dtype)
    pads = [0, 0, 2, 1, 0, 0, 1, 3]
    model = model_of("Pad", {"x": x}, ["x", np.array(pads)], opset=19, mode=mode)
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    model.graph.output[0].type.tensor_type.elem_type = number
    tested = lowered(model)
    assert tested.tiers() == {"compiled": 1}
    (found,) = tested.check(x)
    widths = list(zip(pads[:4], pads[4:], strict=True))
    np.testing.assert_array_equal(found, np.pad(x, widths, mode))  # type: ignore[call-overload]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad_that_takes_away(mode: str) -> None:
    x = random((5, 6))[0]
    pads = np.array([-1, 3, 2, -2])
    model = model_of("Pad", {"x": x}, ["x", pads], opset=19, mode=mode)
    np.testing.assert_array_equal(
        compiled(model, {"x": x}),
        np.pad(x[1:, :-2], [(0, 2), (3, 0)], mode),  # type: ignore[call-overload]
    )
