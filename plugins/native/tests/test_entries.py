"""The entries that libraries call, called as a library would, without one."""

from __future__ import annotations

import ctypes
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxplug import ep
from onnxplug.graph.load import load_model
from onnxplug_native import functions
from onnxplug_native.functions.devices import HOST_ACCESSIBLE, MemoryInfo, Place
from onnxplug_native.functions.environment import CustomOpDomain
from onnxplug_native.functions.graph import GraphView, ModelFacts
from onnxplug_native.functions.kernel_context import KernelContext, values_of
from onnxplug_native.functions.kernel_info import KernelInfo
from onnxplug_native.functions.tensor import Value
from onnxplug_native.functions.types import element_number
from onnxplug_native.interface import compiled
from onnxplug_native.interface.arena import Arena
from onnxplug_native.interface.handles import find, live
from onnxplug_native.interface.host import table
from onnxplug_native.interface.readable import is_readable, text_at
from onnxplug_native.interface.status import Status
from onnxplug_native.interface.table import entries

POINTER = ctypes.c_void_p


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    before = {id(handle) for handle in live()}
    yield
    left = [handle for handle in live() if id(handle) not in before]
    assert {type(h).__name__ for h in left} <= {"MemoryInfo", "MemoryDevice"}


def entry(name: str, structure: str = "OrtApi", *, python: bool = False) -> Any:
    """The function that libraries find in the table, or the one written in Python."""
    (found,) = [each for each in entries(structure) if each.name == name]
    functions.load()
    hosted = table(structure)
    pointers = (POINTER * (found.place + 1)).from_address(hosted.address)
    address = hosted.function(found.place) if python else pointers[found.place]
    return found.signature(address)


def told(status: int | None) -> str:
    """What a status says, which is released; empty if all is well."""
    if not status:
        return ""
    found = find(Status, status)
    found.release()
    return found.message


def ask(name: str, *arguments: Any, kind: Any = POINTER) -> Any:
    """What an entry puts where its last argument says."""
    out = kind()
    assert told(entry(name)(*arguments, ctypes.addressof(out))) == ""
    return out.value


def ask_all(name: str, handle: int, kind: Any = POINTER) -> list[Any]:
    """What an entry of several values gives, after that which counts them."""
    stem = name.replace("_Get", "_GetNum")
    count = ask(stem, handle, kind=ctypes.c_size_t)
    out = (kind * count)()
    assert told(entry(name)(handle, ctypes.addressof(out), count)) == ""
    return list(out)


def text(name: str, handle: int) -> str:
    return text_at(ask(name, handle)) or ""


def test_domains_of_operators_are_noted() -> None:
    domain = find(CustomOpDomain, ask("CreateCustomOpDomain", b"acme"))
    operator = (ctypes.c_uint64 * 2)()
    add = entry("CustomOpDomain_Add")
    assert told(add(domain.address, ctypes.addressof(operator))) == ""
    assert "there is no operator" in told(add(domain.address, None))
    assert (domain.name, domain.operators) == ("acme", [ctypes.addressof(operator)])
    entry("ReleaseCustomOpDomain")(domain.address)
    assert "CustomOpDomain" in told(add(domain.address, ctypes.addressof(operator)))


# compiled entries and those in Python


@pytest.fixture
def context() -> Iterator[KernelContext]:
    """A run with a matrix, a scalar and a text, and an output that is expected."""
    pytest.importorskip("llvmlite")
    functions.load()
    made = KernelContext(
        values_of([ep.DataType.FLOAT32, ep.DataType.INT64, ep.DataType.STRING, None]),
        values_of([ep.DataType.FLOAT32, ep.DataType.FLOAT32]),
    )
    given = [np.ones((2, 3), np.float32), np.array(7), np.array(["a"], object)]
    for value, array in zip(made.inputs, given, strict=False):
        assert value is not None
        value.set(array)
    (output, _) = made.outputs
    assert output is not None
    output.set(np.zeros((4, 5), np.float32))
    yield made
    made.release()


def outcome(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, list[int]]:
    """What a function returns, and what it leaves in the rooms it is given."""
    rooms = [(ctypes.c_uint64 * 8)(*[0xABAD1DEA] * 8) for _ in range(3)]
    places = iter(rooms)
    passed = [
        ctypes.addressof(next(places)) if argument == "room" else argument
        for argument in arguments
    ]
    result = function(*passed)
    if function.restype is POINTER:
        result = told(result)
    return result, [word for room in rooms for word in room]


_SHAPE = (ctypes.c_int64 * 3)(4, 5, 6)
_IN = ctypes.addressof(_SHAPE)

OF_CONTEXTS: dict[str, list[tuple[Any, ...]]] = {
    "KernelContext_GetInputCount": [("room",), (None,)],
    "KernelContext_GetOutputCount": [("room",), (None,)],
    "KernelContext_GetInput": [
        *((i, "room") for i in (0, 1, 3, 4, 1 << 40)), (0, None),
    ],
    "KernelContext_GetOutput": [
        (0, _IN, 2, "room"), (0, _IN, 2, None), (0, None, 2, "room"),
        (2, _IN, 2, "room"), (0, _IN, 1 << 20, "room"),
    ],
    "KernelContext_GetPreallocatedOutput": [
        *((i, "room") for i in (0, 1, 2, 1 << 40)), (0, None),
    ],
}  # fmt: skip
OF_VALUES = {
    name: [("room",), (None,)]
    for name in (
        "GetTensorData", "GetTensorMutableData", "GetTensorSizeInBytes",
        "GetTensorMemoryInfo", "IsTensor",
    )
} | {
    "GetTensorElementTypeAndShapeDataReference": [
        ("room", "room", "room"), (None, "room", "room"), ("room", "room", None),
    ],
}  # fmt: skip
OF_INFOS = {
    name: [("room",), (None,)]
    for name in (
        "MemoryInfoGetName", "MemoryInfoGetId", "MemoryInfoGetDeviceType",
        "MemoryInfoGetType", "MemoryInfoGetMemType",
    )
} | {"MemoryInfoGetVendorId": [()]}  # fmt: skip
OF_KERNELS = {
    "KernelInfo_GetNodeName": [("room", "room"), (None, "room"), ("room", None)]
}
OF_SHAPES: dict[str, list[tuple[Any, ...]]] = {
    "GetTensorElementType": [("room",), (None,)],
    "GetDimensionsCount": [("room",), (None,)],
    "GetDimensions": [("room", 8), (None, 0)],
    "GetSymbolicDimensions": [(None, 0)],
    "GetTensorShapeElementCount": [("room",), (None,)],
    "TensorTypeAndShape_HasShape": [()],
}


def same(name: str, handles: list[Any], arguments: list[tuple[Any, ...]]) -> None:
    """Check that both functions of an entry say and write the same."""
    fast, slow = entry(name), entry(name, python=True)
    for handle, rest in itertools.product(handles, arguments):
        found = outcome(fast, (handle, *rest))
        assert found == outcome(slow, (handle, *rest)), (name, handle, rest)


def test_compiled_entries_do_what_those_in_python_do(context) -> None:
    matrix, scalar, strings = (value.address for value in context.inputs[:3])
    info = context.inputs[0].place.address
    devices = [
        MemoryInfo("device", Place(1, kind, 0xACE, 3), 64, 1)
        for kind in (0, HOST_ACCESSIBLE)
    ]
    outside = KernelContext([], [])
    # what is none, what is something else, and what is inside, but no beginning
    wrong = [None, 0x1238, outside.address, matrix + 8, ctypes.addressof(_SHAPE)]
    for name, arguments in OF_CONTEXTS.items():
        same(name, [context.address, matrix, *wrong], arguments)
    for name, arguments in OF_VALUES.items():
        same(name, [matrix, scalar, strings, info, *wrong], arguments)
    for name, arguments in OF_INFOS.items():
        same(name, [info, matrix, *(d.address for d in devices), *wrong], arguments)
    for each in devices:
        each.release()
    outside.release()
    for handle in (matrix, scalar):
        fast, slow = (
            entry("GetTensorTypeAndShape", python=python) for python in (False, True)
        )
        shapes = [POINTER(), POINTER()]
        for function, shape in zip((fast, slow), shapes, strict=True):
            assert told(function(handle, ctypes.addressof(shape))) == ""
        for name, arguments in OF_SHAPES.items():
            for rest in arguments:
                found, expected = (
                    outcome(entry(name, python=python), (shape.value, *rest))
                    for python, shape in zip((False, True), shapes, strict=True)
                )
                # the compiled entry leaves to Python what it refuses: of its own block
                if expected[0]:
                    assert found[0]
                else:
                    assert found == expected, (name, rest)
        for shape in shapes:
            for _ in range(2):
                entry("ReleaseTensorTypeAndShapeInfo")(shape.value)
    for name, arguments in OF_SHAPES.items():
        if name != "TensorTypeAndShape_HasShape":
            same(name, [shapes[0].value, *wrong[:3]], arguments)


def test_more_shapes_than_there_are_blocks_for(context) -> None:
    handle = context.inputs[0].address
    for _ in range(2):
        made = [ask("GetTensorTypeAndShape", handle) for _ in range(4100)]
        assert len(set(made)) == len(made)
        for shape in made:
            assert ask("GetDimensionsCount", shape, kind=ctypes.c_size_t) == 2
            entry("ReleaseTensorTypeAndShapeInfo")(shape)


def test_an_arena_that_is_full_gives_nothing() -> None:
    arena = Arena(64, 2)
    taken = [arena.take() for _ in range(3)]
    assert None not in taken[:2] and taken[2] is None
    arena.give_back(taken[0])
    assert arena.take() == taken[0]


def test_every_compiled_entry_is_compared() -> None:
    tested = {*OF_CONTEXTS, *OF_VALUES, *OF_INFOS, *OF_KERNELS, *OF_SHAPES}
    tested |= {"GetTensorTypeAndShape", "ReleaseTensorTypeAndShapeInfo"}
    assert tested == set(compiled._WRITERS)


def test_what_is_nowhere_is_not_read() -> None:
    buffer = ctypes.create_string_buffer(b"here")
    assert is_readable(ctypes.addressof(buffer), 5)
    assert not is_readable(0x1238)
    assert text_at(ctypes.addressof(buffer)) == "here"
    assert text_at(0x1238) is None


# graphs


@pytest.fixture
def view() -> Iterator[Callable[..., GraphView]]:
    """The view of a model's graph, from the model's text."""
    made: list[GraphView] = []

    def look(source: str, **facts: Any) -> GraphView:
        model = load_model(onnx.parser.parse_model(source))
        made.append(GraphView(model.graph, ModelFacts("", ep.ModelInfo(**facts))))
        return made[-1]

    yield look
    for each in made:
        each.release()


@pytest.mark.parametrize("name", ["a node", "Knoten für alle Fälle", ""])
def test_the_compiled_entry_tells_a_nodes_name(view, name) -> None:
    pytest.importorskip("llvmlite")
    source = '<ir_version: 8, opset_import: ["": 17]> '
    (node,) = view(source + "g (float x) => (float y) { y = Neg(x) }").nodes
    node.name = name
    structure: Any = None
    infos = [
        KernelInfo(node, structure, {}, logging.getLogger("tests"), {}) for _ in "ab"
    ]
    first, stale = (each.address for each in infos)
    infos[1].release()
    for each, arguments in OF_KERNELS.items():
        same(each, [first, stale, None, 0x1238, node.address], arguments)
    room, text = ctypes.c_size_t(2), ctypes.create_string_buffer(40)
    get = entry("KernelInfo_GetNodeName")
    if name:
        said = told(get(first, text, ctypes.addressof(room)))
        assert "there is room for 2" in said and text.value == b""
    room.value = 40
    assert told(get(first, text, ctypes.addressof(room))) == ""
    assert (text.value.decode(), room.value) == (name, len(name.encode()) + 1)
    infos[0].release()


BRANCHES = """
<ir_version: 10, opset_import: ["": 21]>
branches (float[batch, 3] x, bool c) => (float[batch, 3] y)
<float[3] k = {1, 2, 3}>
{
  t = Mul(x, k)
  y = If(c) <
    then_branch = one () => (float[batch, 3] p) { p = Add(t, k) },
    else_branch = other () => (float[batch, 3] q) { q = Neg(t) }
  >
}
"""


def test_bodies_and_what_they_capture(view) -> None:
    graph = view(BRANCHES)
    _, branch = ask_all("Graph_GetNodes", graph.address)
    assert text("Node_GetOperatorType", branch) == "If"
    captured = ask_all("Node_GetImplicitInputs", branch)
    assert {text("GetValueInfoName", each) for each in captured} == {"t", "k"}
    count = ask("Node_GetNumSubgraphs", branch, kind=ctypes.c_size_t)
    bodies, names = (POINTER * count)(), (POINTER * count)()
    get = entry("Node_GetSubgraphs")
    places = map(ctypes.addressof, (bodies, names))
    bodies_at, names_at = places
    assert told(get(branch, bodies_at, count, names_at)) == ""
    assert [text_at(each) for each in names] == ["then_branch", "else_branch"]
    for body, operator, used in zip(bodies, ("Add", "Neg"), ("tk", "t"), strict=True):
        assert ask("Graph_GetParentNode", body) == branch
        (node,) = ask_all("Graph_GetNodes", body)
        assert text("Node_GetOperatorType", node) == operator
        inputs = ask_all("Node_GetInputs", node)
        assert "".join(text("GetValueInfoName", each) for each in inputs) == used
        for each in inputs:
            assert ask("ValueInfo_IsFromOuterScope", each, kind=ctypes.c_bool)
        producer = ask_producer(inputs[0])
        assert text("Node_GetOperatorType", producer) == "Mul"
    users = ask("ValueInfo_GetValueNumConsumers", captured[0], kind=ctypes.c_size_t)
    assert users >= 1


def ask_producer(value: int) -> int:
    out, place = POINTER(), ctypes.c_size_t()
    get = entry("ValueInfo_GetValueProducer")
    assert told(get(value, ctypes.addressof(out), ctypes.addressof(place))) == ""
    assert out.value
    return out.value


def test_shapes_names_and_constants(view) -> None:
    graph = view(BRANCHES)
    x, c = ask_all("Graph_GetInputs", graph.address)
    assert [text("GetValueInfoName", each) for each in (x, c)] == ["x", "c"]
    tensor = ask("CastTypeInfoToTensorInfo", ask("GetValueInfoTypeInfo", x))
    sizes, names = (ctypes.c_int64 * 2)(), (POINTER * 2)()
    assert told(entry("GetDimensions")(tensor, ctypes.addressof(sizes), 2)) == ""
    assert (
        told(entry("GetSymbolicDimensions")(tensor, ctypes.addressof(names), 2)) == ""
    )
    assert (list(sizes), [text_at(each) for each in names]) == ([-1, 3], ["batch", ""])
    (k,) = ask_all("Graph_GetInitializers", graph.address)
    assert ask("ValueInfo_IsConstantInitializer", k, kind=ctypes.c_bool)
    content = find(Value, ask("ValueInfo_GetInitializerValue", k))
    assert content.array.tolist() == [1, 2, 3]
    assert "is no initializer" in told(
        entry("ValueInfo_GetInitializerValue")(x, ctypes.addressof(POINTER()))
    )


def test_what_a_model_says_of_itself(view) -> None:
    graph = view(
        BRANCHES, producer_name="acme", model_version=7, metadata={"key": "value"}
    )
    metadata = ask("Graph_GetModelMetadata", graph.address)
    allocator = ask("GetAllocatorWithDefaultOptions")
    free = entry("AllocatorFree")

    def owned(name: str, *arguments: Any) -> str | None:
        address = ask(name, metadata, allocator, *arguments)
        found = text_at(address) if address else None
        free(allocator, address)
        return found

    assert owned("ModelMetadataGetProducerName") == "acme"
    assert owned("ModelMetadataLookupCustomMetadataMap", b"key") == "value"
    assert owned("ModelMetadataLookupCustomMetadataMap", b"other") is None
    assert ask("ModelMetadataGetVersion", metadata, kind=ctypes.c_int64) == 7
    entry("ReleaseModelMetadata")(metadata)


def test_a_library_is_given_tensors_of_every_element_type() -> None:
    """And what it writes to them is what the run gives."""
    for dtype in ep.DataType:
        if dtype is ep.DataType.STRING or not element_number(dtype):
            continue
        value = Value.of(np.zeros(5, dtype.numpy), dtype)
        kind = ask("GetTensorTypeAndShape", value.address)
        number = ask("GetTensorElementType", kind, kind=ctypes.c_int32)
        entry("ReleaseTensorTypeAndShapeInfo")(kind)
        size = ask("GetTensorSizeInBytes", value.address, kind=ctypes.c_size_t)
        assert (number > 0, size) == (True, -(-5 * dtype.bits // 8)), dtype
        data = ask("GetTensorMutableData", value.address)
        ctypes.memset(data, 0b0101_0101, size)
        result = value.result()
        if dtype.bits >= 8:
            assert result.tobytes() == b"U" * size, dtype
        else:
            one = 0b0101_0101 & ((1 << dtype.bits) - 1)
            assert (result.view(np.uint8) & ((1 << dtype.bits) - 1) == one).all(), dtype
        value.release()


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        (ep.DataType.INT4, [-8, -1, 0, 7, 3]),
        (ep.DataType.UINT4, [0, 15, 8, 7, 3]),
        (ep.DataType.INT2, [-2, -1, 0, 1, 1]),
        (ep.DataType.UINT2, [0, 3, 2, 1, 1]),
        (ep.DataType.FLOAT4_E2M1FN, [0.5, -6, 0, 1.5, -0.5]),
    ],
)
def test_elements_of_less_than_a_byte_are_packed_as_onnx_packs_them(
    dtype, numbers
) -> None:
    array = np.array(numbers, dtype.numpy)
    value = Value.of(array, dtype)
    size = ask("GetTensorSizeInBytes", value.address, kind=ctypes.c_size_t)
    data = ctypes.string_at(ask("GetTensorData", value.address), size)
    packed = onnx.numpy_helper.from_array(array).raw_data
    assert data == packed
    value.result()
    assert array.tolist() == np.array(numbers).astype(array.dtype).tolist()
    value.release()
