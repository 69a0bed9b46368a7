"""Compares the compiled tier with the array tier on a model, and shrinks the model."""

from __future__ import annotations

import math
import os
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import helper

import onnxplug
from onnxplug_compiler import segmentation
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.ir.target import Support
from onnxplug_cpu.compiler import partition

from .random_graphs import MAX_MAGNITUDE, Array, Case

COMPILE = "ONNXPLUG_CPU_COMPILE"


@contextmanager
def refusing(share: float, seed: int) -> Iterator[None]:
    """A context in which some nodes of new sessions are not compiled."""
    analyse = segmentation.analyse

    def analyse_less(
        calls: Sequence[Call],
        dtypes: Any,
        constants: Any,
        refused: Mapping[int, str],
        target: Support,
    ) -> segmentation.Analysis:
        choose = random.Random(seed)
        more = {
            node: "chosen by the test"
            for call in calls
            for node in call.nodes
            if choose.random() < share
        }
        return analyse(calls, dtypes, constants, {**more, **refused}, target)

    with mock.patch.object(partition, "analyse", analyse_less):
        yield


@contextmanager
def refusing_nothing_more() -> Iterator[None]:
    """A context in which new sessions may not find out that a call is not compiled."""
    analyse = partition.analyse

    def analyse_once(
        calls: Sequence[Call],
        dtypes: Any,
        constants: Any,
        refused: Mapping[int, str],
        target: Support,
    ) -> segmentation.Analysis:
        assert not refused, f"a call is not compiled: {refused}"
        return analyse(calls, dtypes, constants, refused, target)

    with mock.patch.object(partition, "analyse", analyse_once):
        yield


@contextmanager
def tier(*, compiled: bool) -> Iterator[None]:
    """A context in which sessions compile, or do not."""
    before = os.environ.get(COMPILE)
    os.environ[COMPILE] = "1" if compiled else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[COMPILE]
        else:
            os.environ[COMPILE] = before


def session(
    model: onnx.ModelProto, *, compiled: bool, threads: int = 1, **given: Any
) -> onnxplug.InferenceSession:
    """Of the CPU EP; *given* are its options."""
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    with tier(compiled=compiled):
        return onnxplug.InferenceSession(
            model, options, providers=[("CPUExecutionProvider", given)]
        )


def difference(expected: Array, found: Array, error: float) -> str | None:
    """How *found* differs by more than it may; ``None`` if it does not."""
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return (
            f"{found.dtype}{list(found.shape)} instead of "
            f"{expected.dtype}{list(expected.shape)}"
        )
    if expected.dtype.kind in "iub":
        return None if np.array_equal(expected, found) else "other integers"
    a, b = expected.astype(np.float64), found.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    # whether sums of numbers near the largest are infinite depends on the order
    if same.all() or (np.isfinite(a) & (np.abs(a) > 1e30)).any():
        return None
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)[~same]
    # what is special may make numbers larger than was thought
    largest = np.abs(a, where=np.isfinite(a), out=np.zeros_like(a)).max()
    if (apart <= error * max(1, largest / MAX_MAGNITUDE)).all():
        return None
    place = np.unravel_index(np.argmax(~same), same.shape)
    return (
        f"apart by {apart.max()}, and {error} is allowed; {(~same).sum()} of {a.size} "
        f"elements differ, the first at {place}: {b[place]} instead of {a[place]}"
    )


def outcome(
    runner: onnxplug.InferenceSession, feeds: Mapping[str, Array]
) -> list[Any] | Exception:
    try:
        with warnings.catch_warnings():
            # with other sizes a rank may be another one, which Gemm lets pass
            warnings.simplefilter("ignore", onnxplug.errors.ModelWarning)
            return list(runner.run(None, dict(feeds)))
    except onnxplug.errors.OnnxplugError as error:
        return error


def disagreement(
    case: Case,
    feeds: Mapping[str, Array],
    expected: onnxplug.InferenceSession,
    found: onnxplug.InferenceSession,
    slack: float = 1,
) -> str | None:
    """How the two tiers differ on *feeds*."""
    one, two = outcome(expected, feeds), outcome(found, feeds)
    if isinstance(one, Exception) or isinstance(two, Exception):
        if isinstance(one, Exception) and isinstance(two, Exception):
            return None
        tolerated = "out of range", "division or modulo by zero"
        if isinstance(one, Exception) and any(text in str(one) for text in tolerated):
            return None  # of a value that nobody reads, or by which nothing is taken
        failed = one if isinstance(one, Exception) else two
        name = "array" if isinstance(one, Exception) else "compiled"
        return f"only the {name} tier fails: {failed}"
    for name, a, b in zip(case.errors, one, two, strict=True):
        problem = difference(a, b, case.errors[name] * slack)
        if problem is not None:
            return f"{name}: {problem}"
    return None


def of_any_size(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inputs of unknown sizes."""
    dynamic = onnx.ModelProto()
    dynamic.CopyFrom(model)
    for value in dynamic.graph.input:
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            size.dim_param = f"{value.name}_{axis}"
    return dynamic


def other_sizes(case: Case, seed: int) -> dict[str, Array]:
    """Inputs with other sizes, equal ones where they were equal before.

    Mostly not of sizes that constants have or name, which the model hardly runs with.
    """
    choose, feeds = random.Random(seed), case.feeds
    sizes = {n: n for array in feeds.values() for n in array.shape if n > 1}
    kept: set[int] = set()
    for tensor in case.model.graph.initializer:
        kept.update(tensor.dims)
        if tensor.data_type == onnx.TensorProto.INT64:
            kept.update(onnx.numpy_helper.to_array(tensor).reshape(-1).tolist())
    free = [size for size in sizes if size not in kept or choose.random() < 0.1]
    for size in free:
        if choose.random() < 0.6:
            sizes[size] = choose.choice([1, 2, size + 1, size - 1, 2 * size, 0])
    numbers = np.random.default_rng(seed)
    other: dict[str, Array] = {}
    for name, array in feeds.items():
        shape = tuple(sizes.get(n, n) for n in array.shape)
        flat = array.reshape(-1)
        if not flat.size:
            flat = np.zeros(1, array.dtype)
        other[name] = flat[numbers.integers(0, flat.size, shape)]
    return other


SPECIAL = (-0.0, 1e-40, -1e-45, math.nan, math.inf, -math.inf)


def special(case: Case, seed: int) -> dict[str, Array]:
    """Inputs with some numbers that are not normal, or not finite."""
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    which = choose.sample(SPECIAL[:3] if case.hides else SPECIAL, 2)
    other: dict[str, Array] = {}
    for name, array in case.feeds.items():
        other[name] = array
        if array.dtype.kind not in "fV":
            continue
        # a sum that is 0 or nearly so, depending on roundings, makes NaN or infinity of
        # infinity: no sum is to be 0
        array = (array * numbers.uniform(0.98, 1, array.shape)).astype(array.dtype)
        # few, so that not all is NaN in the end
        share = choose.choice([0, 1.5 / (array.size + 1), 0.05])
        places = numbers.random(array.shape) < share
        values = numbers.choice(which, array.shape).astype(array.dtype)
        other[name] = np.where(places, values, array)
    return other


def shrunk(case: Case, threads: int = 1) -> str:
    """A text of the smallest part of the model in which the tiers still differ."""

    def differs(smaller: Case) -> str | None:
        try:
            one = session(smaller.model, compiled=False)
            two = session(smaller.model, compiled=True, threads=threads)
        except onnxplug.errors.InvalidModel:
            return None
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        return disagreement(smaller, smaller.feeds, one, two)

    problem = differs(case)
    if problem is None:
        return (
            f"no difference with shapes as given:\n{onnx.printer.to_text(case.model)}"
        )
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(case):
            found = differs(smaller)
            if found is not None:
                case, problem, changed = smaller, found, True
                break
    return f"{problem}\n{_text(case)}"


def _text(case: Case) -> str:
    """The model with the contents of small constants only, and its inputs' shapes."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for tensor in model.graph.initializer:
        if np.prod(tensor.dims) > 16:
            empty = np.zeros(0, onnx.numpy_helper.to_array(tensor).dtype)
            sizes = "x".join(map(str, tensor.dims))
            name = f"{tensor.name}_of_{sizes}"
            tensor.CopyFrom(onnx.numpy_helper.from_array(empty, name))
    shapes = ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in case.feeds.items())
    return f"{onnx.printer.to_text(model)}\n{shapes}"


def _smaller(case: Case) -> Iterator[Case]:
    """Models with one output less, or with a value that is fed instead of computed."""
    graph = case.model.graph
    if len(graph.output) > 1:
        for value in graph.output:
            kept = [other for other in graph.output if other.name != value.name]
            yield _part(case, kept, None, None)
    values = _computed(case)
    wanted = {value.name for value in graph.output}
    for node in graph.node:
        for name in node.output:
            if name in wanted or name not in values:
                continue
            yield _part(case, list(graph.output), name, values[name])


def _computed(case: Case) -> dict[str, Array]:
    """All values, by the array tier."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    names = [name for node in model.graph.node for name in node.output]
    del model.graph.output[:]
    types = onnx.shape_inference.infer_shapes(case.model).graph
    known = {value.name: value for value in (*types.value_info, *types.output)}
    names = [name for name in names if name in known]
    model.graph.output.extend(known[name] for name in names)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    results = session(model, compiled=False).run(None, case.feeds)
    return dict(zip(names, results, strict=True))


def _part(
    case: Case,
    outputs: list[onnx.ValueInfoProto],
    fed: str | None,
    array: Array | None,
) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    feeds = dict(case.feeds)
    if fed is not None and array is not None:
        feeds[fed] = array
        graph.input.append(
            helper.make_tensor_value_info(
                fed, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
        )
    needed = {value.name for value in outputs}
    nodes = []
    for node in reversed(graph.node):
        made = [name for name in node.output if name != fed]
        if needed.intersection(made) and fed not in node.output:
            nodes.append(node)
            needed.update(node.input)
    kept = nodes[::-1]
    inputs = [value for value in graph.input if value.name in needed]
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    smaller = helper.make_graph(kept, "part", inputs, outputs, constants)
    return Case(
        helper.make_model(smaller, opset_imports=model.opset_import, ir_version=10),
        {value.name: feeds[value.name] for value in inputs},
        {value.name: case.errors[value.name] for value in outputs},
        case.hides,
    )
