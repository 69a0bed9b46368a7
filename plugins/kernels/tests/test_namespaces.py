"""Kernels and namespaces on several array libraries, beside numpy's results."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from onnxplug.ep import DataType
from onnxplug_kernels import find_kernel
from onnxplug_kernels.families import FAMILIES
from onnxplug_kernels.namespaces import namespace_of
from onnxplug_kernels.registry import FLOATS

from .libraries import assert_close, library_named
from .node_cases import NodeCase, numeric_cases

LEAST: Final = {"numpy": 1184, "array_api_strict": 1147, "torch": 1184}
"""How many cases of the suite have to run; the others have dtypes that it lacks."""

RANDOM: Final = ("Bernoulli", "RandomUniform")
"""Operators whose results ONNX leaves open."""

# torch's sums of float32 differ from numpy's in the last bits, also next to zero
NEAR_ZERO: Final = {"DFT": 1e-6}


def test_operators_of_the_suite(
    library: Any, xp: Any, record_property: Callable[[str, object], None]
) -> None:
    ran, failed, lacking = 0, [], []
    for case in numeric_cases():
        kernel = find_kernel(case.domain, case.op_type, case.version)
        if kernel is None or kernel.host_only or case.op_type in RANDOM:
            continue
        try:
            inputs = [None if x is None else xp.from_numpy(x) for x in case.inputs]
        except TypeError:
            lacking.append(case.name)
            continue
        try:
            check(case, library, xp, inputs)
        except Exception as error:  # noqa: BLE001  all are reported together
            failed.append(f"{case}: {type(error).__name__}: {str(error).strip()[:200]}")
        else:
            ran += 1
    record_property(f"cases on {library.__name__}", ran)
    assert not failed, "\n".join(failed)
    assert ran >= LEAST[library.__name__], f"{ran} ran; no dtype for {lacking}"


def check(case: NodeCase, library: Any, xp: Any, inputs: list[Any]) -> None:
    kernel = find_kernel(case.domain, case.op_type, case.version)
    assert kernel is not None
    bound = kernel.bind(library, case.attributes, output_count=len(case.outputs))
    with np.errstate(all="ignore"):
        results = bound(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    kind = type(xp.from_numpy(np.zeros(1, np.float32)))
    for result, expected in zip(results, case.outputs, strict=False):
        if expected is None:
            continue
        assert isinstance(result, kind)
        assert_close(
            xp.to_numpy(result),
            expected,
            case.rtol,
            max(case.atol, NEAR_ZERO.get(case.op_type, 0)),
        )


HOST_INPUTS: Final[list[tuple[str, int, tuple[Any, ...]]]] = [
    ("Reshape", 14, ([6, 4],)),
    ("Expand", 13, ([2, 6, 4],)),
    ("Slice", 13, ([-1], [-9], [1], [-2])),
    ("ReduceSum", 13, ([1],)),
    ("Squeeze", 13, ([0],)),
    ("Unsqueeze", 13, ([0, 2],)),
    ("Tile", 13, ([2, 1, 2],)),
    ("TopK", 11, ([2],)),
    ("Pad", 18, ([1, 0, 2, 0, 1, 1],)),
    ("CumSum", 14, (1,)),
    ("Split", 18, ([1],)),
    ("Trilu", 14, (-1,)),
    ("Resize", 19, (None, None, [1, 3, 8])),
]


@pytest.mark.parametrize(("op_type", "version", "numbers"), HOST_INPUTS)
def test_sizes_and_axes_may_stay_on_the_host(
    library: Any, xp: Any, op_type: str, version: int, numbers: tuple[Any, ...]
) -> None:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    x = np.arange(24, dtype=np.float32).reshape(1, 6, 4)
    given = [None if n is None else np.array(n, np.int64) for n in numbers]
    found = kernel.bind(library, {}, output_count=1)(xp.from_numpy(x), *given)
    expected = kernel.bind(np, {}, output_count=1)(x, *given)
    found = found[0] if isinstance(found, tuple) else found
    expected = expected[0] if isinstance(expected, tuple) else expected
    np.testing.assert_array_equal(xp.to_numpy(found), expected)


DTYPES: Final = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
)


def numbers_of(rng: np.random.Generator, dtype: str, shape: Any) -> Any:
    """Numbers of all the range of an integer type, or around zero."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        return rng.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_come_back_as_they_went(xp: Any, dtype: str, rng: Any) -> None:
    for shape in ((), (3,), (2, 0, 3), (2, 3)):
        x = numbers_of(rng, dtype, shape)
        for given in (x, x.T, x[..., ::-1] if shape else x):
            given.flags.writeable = False
            back = xp.to_numpy(xp.from_numpy(given))
            assert (back.dtype, back.shape) == (given.dtype, given.shape)
            np.testing.assert_array_equal(back, given)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
@pytest.mark.parametrize(
    ("op_type", "version", "count"),
    [
        ("Add", 14, 2),
        ("Sub", 14, 2),
        ("Mul", 14, 2),
        ("Max", 13, 2),
        ("Min", 13, 2),
        ("Less", 13, 2),
        ("GreaterOrEqual", 16, 2),
        ("Equal", 13, 2),
        ("Abs", 13, 1),
        ("Sign", 13, 1),
        ("Concat", 13, 2),
        ("Transpose", 13, 1),
        ("ReduceMax", 18, 1),
        ("ReduceMin", 18, 1),
        ("ArgMax", 13, 1),
    ],
)
def test_every_number_type(
    library: Any, xp: Any, dtype: str, op_type: str, version: int, count: int, rng: Any
) -> None:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    attributes = {"Concat": {"axis": 0}, "ArgMax": {"axis": 1}}.get(op_type, {})
    inputs = [numbers_of(rng, dtype, (5, 7)) for _ in range(count)]
    with np.errstate(all="ignore"):
        expected = kernel.bind(np, attributes, output_count=1)(*inputs)
        bound = kernel.bind(library, attributes, output_count=1)
        found = xp.to_numpy(bound(*map(xp.from_numpy, inputs)))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


OF_NARROW_FLOATS: Final[list[tuple[str, int, dict[str, Any]]]] = [
    ("Cast", 19, {"to": 7}),
    ("Transpose", 13, {}),
    ("Relu", 14, {}),
    ("Clip", 13, {}),
    ("Sigmoid", 13, {}),
    ("Neg", 13, {}),
    ("ReduceSum", 13, {}),
    ("ReduceMax", 18, {}),
    ("Softmax", 13, {}),
    ("MaxPool", 12, {"kernel_shape": (3,), "pads": (1, 1)}),
    ("TopK", 1, {"k": 2}),
]
"""Operators of floats of 16 bits; those of 8 bits only the first two take."""


@pytest.mark.parametrize(
    ("dtype", "op_type", "version", "attributes"),
    [
        (dtype, *operator)
        for dtype, operators in (
            ("bfloat16", OF_NARROW_FLOATS),
            ("float16", OF_NARROW_FLOATS),
            ("float8_e5m2", OF_NARROW_FLOATS[:2]),
        )
        for operator in operators
    ],
)
def test_narrow_floats(
    dtype: str, op_type: str, version: int, attributes: dict[str, Any], rng: Any
) -> None:
    library = library_named("torch")
    xp = namespace_of(library)
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    x = (4 * rng.normal(size=(2, 3, 5))).astype(DataType(dtype).numpy)
    if op_type == "ReduceMax":
        x = x[:, :0]  # minus infinity, and no truth
        attributes = {"noop_with_empty_axes": 0}
    expected = kernel.bind(np, attributes, output_count=1)(x)
    found = kernel.bind(library, attributes, output_count=1)(xp.from_numpy(x))
    expected = expected[0] if isinstance(expected, tuple) else expected
    found = xp.to_numpy(found[0] if isinstance(found, tuple) else found)
    assert found.dtype == expected.dtype
    # both round the same number of float32, of which the last bits may differ
    np.testing.assert_allclose(
        found.astype(np.float32), expected.astype(np.float32), rtol=2**-7
    )


@pytest.mark.parametrize("dtype", [d for d in DTYPES if "int" in d])
def test_division_of_integers(library: Any, xp: Any, dtype: str, rng: Any) -> None:
    a, b = (numbers_of(rng, dtype, 50) for _ in range(2))
    b[b == 0] = 1
    for op_type, version, attributes in (
        ("Div", 14, {}),
        ("Mod", 13, {}),
        ("Mod", 13, {"fmod": 1}),
    ):
        kernel = find_kernel("", op_type, version)
        assert kernel is not None
        expected = kernel.bind(np, attributes, output_count=1)(a, b)
        bound = kernel.bind(library, attributes, output_count=1)
        found = xp.to_numpy(bound(xp.from_numpy(a), xp.from_numpy(b)))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if "int" in d])
def test_shifts_by_any_amount(xp: Any, dtype: str, left: bool, rng: Any) -> None:
    x = numbers_of(rng, dtype, 60)
    least = -3 if dtype.startswith("i") else 0
    y = rng.integers(least, 70, 60).astype(dtype)
    bits = x.dtype.itemsize * 8
    expected = []
    for number, places in zip(x.tolist(), y.tolist(), strict=True):
        places = bits if not 0 <= places < bits else places
        shifted = number << places if left else number >> places
        expected.append(shifted & (1 << bits) - 1)
    found = xp.to_numpy(xp.shifted(xp.from_numpy(x), xp.from_numpy(y), left=left))
    assert found.dtype == x.dtype
    assert found.view(f"u{x.dtype.itemsize}").tolist() == expected


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_and_gather(xp: Any, reduction: str, rng: Any) -> None:
    x = rng.integers(-9, 9, (3, 4, 2))
    first = rng.integers(-3, 3, (5, 1))
    second = np.arange(-4, 0)
    # of updates of one place any may stay, so there each has a place of its own
    first = np.arange(-3, 0)[:, None] if reduction == "none" else first
    updates = rng.integers(-9, 9, (len(first), 4, 2))
    expected = x.copy()
    ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    if reduction == "none":
        expected[first, second] = updates
    else:
        ufunc[reduction].at(expected, (first, second), updates)
    index = (xp.from_numpy(first), xp.from_numpy(second))
    given = xp.from_numpy(x)
    found = xp.scatter(given, index, xp.from_numpy(updates), reduction)
    np.testing.assert_array_equal(xp.to_numpy(found), expected)
    np.testing.assert_array_equal(xp.to_numpy(given), x)
    gathered = xp.to_numpy(xp.gather(given, index))
    np.testing.assert_array_equal(gathered, x[first, second])


def test_take_counts_from_the_back_and_checks(xp: Any, rng: Any) -> None:
    x = rng.normal(size=(4, 5, 3))
    indices = np.array([[0, -1, 4], [-5, 2, 1]])
    given = xp.from_numpy(x), xp.from_numpy(indices)
    for function in (xp.take, xp.take_checked):
        found = xp.to_numpy(function(*given, axis=1))
        np.testing.assert_array_equal(found, x[:, indices])
    for wrong in (5, -6):
        with pytest.raises(IndexError):
            xp.take_checked(given[0], xp.from_numpy(np.array([0, wrong])), axis=1)


@pytest.mark.parametrize(
    "part",
    [
        slice(1, 4, 2),
        slice(-99, 99, 1),
        slice(99, -99, -1),
        slice(4, 0, -2),
        slice(None, None, -3),
        slice(3, 3, 1),
        slice(0, 3, -1),
    ],
)
def test_slices_as_python_has_them(xp: Any, part: slice) -> None:
    x = np.arange(30).reshape(5, 6)
    found = xp.to_numpy(xp.slices(xp.from_numpy(x), (part, slice(None))))
    np.testing.assert_array_equal(found, x[part])
    found = xp.to_numpy(xp.slices(xp.from_numpy(x), (slice(1, 3), part)))
    np.testing.assert_array_equal(found, x[1:3, part])


@pytest.mark.parametrize("largest", [True, False])
def test_top_indices_take_the_first_of_equal_ones(xp: Any, largest: bool) -> None:
    x = np.array([[3.0, 1, 3, np.nan, 2, 1], [0, 0, -0.0, np.inf, -np.inf, 0]])
    keys = np.where(np.isnan(x), np.inf, x), np.isnan(x)
    order = np.lexsort(
        (
            np.broadcast_to(np.arange(6), x.shape),
            -keys[0] if largest else keys[0],
            -keys[1].astype(int) if largest else keys[1],
        )
    )
    for k in (0, 1, 4, 6):
        found = xp.to_numpy(xp.top_indices(xp.from_numpy(x), k, largest=largest))
        np.testing.assert_array_equal(found, order[:, :k])


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique_says_where_and_how_often(xp: Any, axis: int | None, rng: Any) -> None:
    x = rng.integers(0, 2, (6, 3))
    expected = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    found = xp.unique(xp.from_numpy(x), axis)
    for have, want in zip(found, expected[1:], strict=True):
        np.testing.assert_array_equal(xp.to_numpy(have).ravel(), want.ravel())
    np.testing.assert_array_equal(xp.to_numpy(xp.distinct(xp.from_numpy(x))), [0, 1])


def test_windows_over_several_axes(xp: Any, rng: Any) -> None:
    x = rng.normal(size=(2, 7, 9))
    kernel, dilations, strides, count = (2, 3), (2, 1), (1, 3), (5, 3)
    found = xp.to_numpy(xp.windows(xp.from_numpy(x), kernel, dilations, strides, count))
    assert found.shape == (2, *kernel, *count)
    for i, j, k, m in np.ndindex(*kernel, *count):
        source = x[:, i * 2 + k, j + m * 3]
        np.testing.assert_array_equal(found[:, i, j, k, m], source)


def test_spectrum_and_complex_numbers(xp: Any, rng: Any) -> None:
    real, imaginary = rng.normal(size=(2, 3, 8))
    made = xp.complex_of(xp.from_numpy(real), xp.from_numpy(imaginary))
    for given, expected in ((xp.from_numpy(real), real), (made, real + 1j * imaginary)):
        for length in (None, 5, 12):
            found = xp.to_numpy(xp.spectrum(given, length, -1))
            np.testing.assert_allclose(found, np.fft.fft(expected, length), atol=1e-12)


def test_which_kernels_look_at_elements_for_a_shape() -> None:
    marked = set()
    for domain, op_type in FAMILIES:
        module = importlib.import_module(
            f"onnxplug_kernels.{FAMILIES[domain, op_type]}"
        )
        assert module
        kernel = find_kernel(domain, op_type, 28)
        if kernel is not None and kernel.data_dependent:
            marked.add(op_type)
    assert marked == {"Compress", "NonMaxSuppression", "NonZero", "Unique"}


TOLERANCES: Final = {"float16": 4e-3, "bfloat16": 3e-2}


def test_kernels_that_say_so_are_portable() -> None:
    """What torch makes of the suite's inputs, in each type that a kernel names."""
    torch = library_named("torch")
    xp = namespace_of(torch)
    compared: dict[str, set[str]] = {}
    for case in numeric_cases():
        kernel = find_kernel(case.domain, case.op_type, case.version)
        if kernel is None or not case.inputs or case.inputs[0] is None:
            continue
        own = case.inputs[0].dtype
        for name in sorted(kernel.portable & FLOATS if own.kind == "f" else ()):
            dtype = DataType(name).numpy
            inputs = [
                x.astype(dtype) if x is not None and x.dtype == own else x
                for x in case.inputs
            ]
            given = [None if x is None else xp.from_numpy(x) for x in inputs]
            count = len(case.outputs)
            bound = [
                kernel.bind(library, case.attributes, output_count=count)
                for library in (np, torch)
            ]
            with np.errstate(all="ignore"):
                expected, found = bound[0](*inputs), bound[1](*given)
            if not isinstance(expected, tuple):
                expected, found = (expected,), (found,)
            for ours, right in zip(found, expected, strict=True):
                ours, tolerance = xp.to_numpy(ours), TOLERANCES.get(name, 1e-5)
                message = f"{case.name} in {name}"
                assert (ours.dtype, ours.shape) == (right.dtype, right.shape), message
                wide = ours.astype(np.float64), right.astype(np.float64)
                np.testing.assert_allclose(*wide, tolerance, tolerance, err_msg=message)
            compared.setdefault(case.op_type, set()).add(name)
    assert len(compared) >= 14
    assert all(found == FLOATS for found in compared.values())


def test_torch_makes_arrays_on_one_device() -> None:
    torch = library_named("torch")
    # a device that needs no hardware: its arrays have shapes and no elements
    xp = namespace_of(torch, device="meta")
    made = [
        xp.arange(3),
        xp.zeros((2,), dtype=xp.float32),
        xp.eye(2, 2),
        xp.asarray([1.0]),
        xp.full((2,), 1),
        xp.tri(2, 3, 0),
        xp.from_numpy(np.ones(2)),
        *xp.extremes(xp.float32),
    ]
    assert {str(array.device) for array in made} == {"meta"}


def test_a_namespace_is_its_own() -> None:
    xp = namespace_of(np)
    assert namespace_of(np) is xp
    assert namespace_of(xp) is xp
