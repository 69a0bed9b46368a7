"""The stand-in for Windows does what is right and notes what is wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from . import definitions
from .standin import GPU, NPU, SOFTWARE, Violation, Windows, decoding, schema
from .standin.driving import (
    COMMON,
    COPY_DEST,
    OWNED,
    READBACK,
    UNORDERED_ACCESS,
    UPLOAD,
    Answer,
    Program,
    Reference,
    array_binding,
    bind,
    check,
    create,
    graph_desc,
    guid,
    operator_desc,
    structure,
    tensor,
)
from .standin.operators import OPERATORS, Meaning, Rejected

E_INVALIDARG = 0x80070057 - 2**32
E_OUTOFMEMORY = 0x8007000E - 2**32
DEVICE_REMOVED = 0x887A0005 - 2**32
DEVICE_HUNG = 0x887A0006 - 2**32
UNSUPPORTED = 0x887A0004 - 2**32
NOT_FOUND = 0x887A0002 - 2**32


class Add:
    support = """
        3.0  ATensor       input   1-8  FLOATS SIGNED UINT8
             BTensor       input   1-8  FLOATS SIGNED UINT8
             OutputTensor  output  1-8  FLOATS SIGNED UINT8
        1.0  ATensor       input   4-5  FLOATS
             BTensor       input   4-5  FLOATS
             OutputTensor  output  4-5  FLOATS
    """

    @staticmethod
    def check(desc: Any, tensors: Any) -> None:
        if len({t.sizes for t in tensors.values()}) != 1:
            raise Rejected("sizes differ")

    @staticmethod
    def evaluate(desc: Any, inputs: list[Any]) -> list[Any]:
        return [inputs[0] + inputs[1]]


class Relu:
    support = """
        1.0  InputTensor   input   1-8  FLOATS
             OutputTensor  output  1-8  FLOATS
    """

    @staticmethod
    def apply(desc: Any, values: Any) -> Any:
        return np.maximum(values, 0)

    @classmethod
    def evaluate(cls, desc: Any, inputs: list[Any]) -> list[Any]:
        return [cls.apply(desc, inputs[0])]


class Gemm:
    support = """
        1.0  ATensor       input   4  FLOATS
             BTensor       input   4  FLOATS
             CTensor       input?  4  FLOATS
             OutputTensor  output  4  FLOATS
    """

    @staticmethod
    def evaluate(desc: Any, inputs: list[Any]) -> list[Any]:
        a, b, c = inputs
        a = a.swapaxes(2, 3) if desc.TransA == "TRANSPOSE" else a
        b = b.swapaxes(2, 3) if desc.TransB == "TRANSPOSE" else b
        product = desc.Alpha * (a.astype(np.float64) @ b)
        if c is not None:
            product = product + desc.Beta * c
        if desc.FusedActivation is not None:
            product = Relu.apply(desc.FusedActivation, product)
        return [product.astype(a.dtype)]


class Join:
    support = """
        1.0  InputTensors  input   1-8  FLOATS
             OutputTensor  output  1-8  FLOATS
    """

    @staticmethod
    def evaluate(desc: Any, inputs: list[Any]) -> list[Any]:
        return [np.concatenate(inputs, desc.Axis)]


@pytest.fixture(autouse=True)
def few_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of these tests, whatever those of the package are."""
    decoding.load()
    for name, meaning in {
        "ELEMENT_WISE_ADD": Add,
        "ACTIVATION_RELU": Relu,
        "GEMM": Gemm,
        "JOIN": Join,
    }.items():
        monkeypatch.setitem(OPERATORS, name, Meaning(name, meaning))


@pytest.fixture
def windows() -> Iterator[Windows]:
    """A machine, on which nothing must have gone wrong, and nothing be left."""
    with Windows() as found:
        yield found


@pytest.fixture
def program(windows: Windows) -> Iterator[Program]:
    """A program on it."""
    found = Program(windows)
    yield found
    found.close()


A = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3) - 2
B = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4) / 4 - 1
C = np.ones((1, 1, 2, 4), np.float32)


def gemm(program: Program, *, owned: bool = True, **fields: Any) -> Reference:
    """Relu(A·B + C), in which B and C are DirectML's if ``owned``."""
    flags = OWNED if owned else 0
    relu = operator_desc("ACTIVATION_RELU")
    return program.operator(
        "GEMM",
        **{
            "ATensor": tensor(A.shape),
            "BTensor": tensor(B.shape, flags=flags),
            "CTensor": tensor(C.shape, flags=flags),
            "OutputTensor": tensor(C.shape),
            "Alpha": 1.0,
            "Beta": 1.0,
            "FusedActivation": ctypes.pointer(relu),
        }
        | fields,
    )


class Run:
    """A product whose weights DirectML owns, ready to be executed."""

    def __init__(self, program: Program, flags: int = 0) -> None:
        self.program = program
        self.compiled = program.compiled(gemm(program), flags)
        properties = self.compiled.GetBindingProperties()
        self.persistent = program.buffer(properties.PersistentResourceSize)
        self.initializer = program.initializer(self.compiled)
        self.table = program.table(self.initializer)
        owned = [None, program.uploaded(B), program.uploaded(C)]
        self.scratch = program.buffer(
            self.initializer.GetBindingProperties().TemporaryResourceSize
        )
        bind(
            self.table,
            inputs=[array_binding(owned)],
            outputs=[self.persistent],
            temporary=self.scratch,
        )

    def initialize(self) -> None:
        """On a list of its own."""
        self.program.dispatch(self.initializer, self.table)
        self.program.submit()
        self.program.wait()
        self.program.again()

    def bound(self, **changes: Any) -> Reference:
        """A table for the execution."""
        program = self.program
        self.source = program.resident(A)
        self.target = program.buffer(C.nbytes)
        table = program.table(self.compiled)
        bindings: dict[str, Any] = {
            "inputs": [self.source, None, None],
            "outputs": [self.target],
            "persistent": self.persistent,
        }
        bind(table, **bindings | changes)
        return table

    def execute(self, **changes: Any) -> None:
        """Recorded only."""
        self.program.dispatch(self.compiled, self.bound(**changes))

    def result(self) -> np.ndarray[Any, Any]:
        """What was computed, in a list that goes on."""
        self.program.transition(self.target, UNORDERED_ACCESS, 0x800)
        return self.program.read(self.target, C)


EXPECTED = np.maximum(A.astype(np.float64) @ B + C, 0).astype(np.float32)


def test_an_operator_with_owned_weights_is_computed(program: Program) -> None:
    run = Run(program)
    run.initialize()
    run.execute()
    np.testing.assert_array_equal(run.result(), EXPECTED)
    assert program.windows.counts.initializations == 1


def test_a_recorded_list_is_executed_again(program: Program) -> None:
    run = Run(program)
    run.initialize()
    run.execute()
    program.submit()
    program.wait()
    program.execute()
    program.wait()
    program.again()
    assert program.windows.counts.dispatches == 2
    np.testing.assert_array_equal(run_result(run), EXPECTED)


def run_result(run: Run) -> np.ndarray[Any, Any]:
    """What was computed by an earlier list: buffers have decayed to COMMON."""
    return run.program.read(run.target, C)


def sum_and_relu(program: Program, **changes: Any) -> Any:
    """Join(x + y, Relu(x + y)) as a graph of three nodes."""
    whole = tensor([2, 3])
    add = program.operator(
        "ELEMENT_WISE_ADD",
        **{"ATensor": whole, "BTensor": whole, "OutputTensor": whole}
        | changes.pop("add", {}),
    )
    relu = program.operator(
        "ACTIVATION_RELU",
        **{"InputTensor": whole, "OutputTensor": whole} | changes.pop("relu", {}),
    )
    parts = (type(whole.contents) * 2)(whole.contents, whole.contents)
    join = program.operator(
        "JOIN",
        InputCount=2,
        InputTensors=parts,
        OutputTensor=tensor([4, 3]),
        Axis=0,
    )
    edges: dict[str, Any] = {
        "nodes": [join, add, relu],
        "inputs": [(0, 1, 0), (1, 1, 1)],
        "between": [(1, 0, 2, 0), (1, 0, 0, 0), (2, 0, 0, 1)],
        "outputs": [(0, 0, 0)],
    }
    return graph_desc(**edges | changes)


def test_a_graph_is_computed_in_the_order_of_its_edges(program: Program) -> None:
    compiled = program.compiled_graph(sum_and_relu(program))
    properties = compiled.GetBindingProperties()
    assert properties.PersistentResourceSize == 0
    assert properties.TemporaryResourceSize > 0
    initializer = program.initializer(compiled)
    program.dispatch(initializer, program.table(initializer))
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    y = np.full((2, 3), 0.5, np.float32)
    out = program.buffer(48)
    table = program.table(compiled)
    bind(
        table,
        inputs=[program.resident(x), program.resident(y)],
        outputs=[out],
        temporary=program.buffer(properties.TemporaryResourceSize),
    )
    program.dispatch(compiled, table)
    program.transition(out, UNORDERED_ACCESS, 0x800)
    found = program.read(out, np.zeros((4, 3), np.float32))
    np.testing.assert_array_equal(found, np.r_[x + y, np.maximum(x + y, 0)])


def test_strides_broadcast_and_pad(program: Program) -> None:
    """A row for all rows, and an output whose rows are apart."""
    row = tensor([2, 3], strides=[0, 1], size=12)
    spaced = tensor([2, 3], strides=[4, 1])
    operator = program.operator(
        "ELEMENT_WISE_ADD", ATensor=row, BTensor=tensor([2, 3]), OutputTensor=spaced
    )
    compiled = program.compiled(operator)
    initializer = program.initializer(compiled)
    program.dispatch(initializer, program.table(initializer))
    a = np.array([1, 2, 3], np.float32)
    b = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = program.buffer(28)
    table = program.table(compiled)
    bind(table, inputs=[program.resident(a), program.resident(b)], outputs=[out])
    program.dispatch(compiled, table)
    program.transition(out, UNORDERED_ACCESS, 0x800)
    found = program.read(out, np.zeros(7, np.float32))
    np.testing.assert_array_equal(found[[0, 1, 2, 4, 5, 6]], (a + b).ravel())
    assert np.isnan(found[3])  # what is between is not kept


def test_adapters_are_listed_by_dxgi_and_by_dxcore(windows: Windows) -> None:
    dxgi = create(windows, "CreateDXGIFactory2", "IDXGIFactory6", 0)
    adapter = Reference("IDXGIAdapter4", 0)
    names = []
    for i in range(3):
        place = (ctypes.c_void_p * 1)()
        kind = definitions.methods("IDXGIFactory6")[12].arguments[1]
        result = dxgi.EnumAdapters1(i, ctypes.cast(place, kind))
        if result:
            assert result == NOT_FOUND
            break
        adapter = Reference("IDXGIAdapter4", place[0] or 0)
        desc = definitions.find("DXGI_ADAPTER_DESC1")()
        check(adapter.GetDesc1(ctypes.pointer(desc)))
        names.append(bytes(desc.Description).decode("utf-16-le").rstrip("\0"))
        assert (desc.Flags == 2) == (names[-1] == SOFTWARE.name)
        adapter.Release()
    assert names == [GPU.name, SOFTWARE.name]
    dxgi.Release()
    dxcore = create(windows, "DXCoreCreateAdapterFactory", "IDXCoreAdapterFactory")
    npus = definitions.module("dxcore").DXCORE_HARDWARE_TYPE_ATTRIBUTE_NPU
    found = dxcore.make(
        "IDXCoreAdapterList", "CreateAdapterList", 1, ctypes.pointer(npus)
    )
    assert found.GetAdapterCount() == 1
    npu = found.make("IDXCoreAdapter", "GetAdapter", 0)
    with pytest.raises(Answer) as error:
        create(windows, "D3D12CreateDevice", "ID3D12Device", npu, 0xB000)
    assert error.value.result == UNSUPPORTED
    program = Program(windows, adapter=npu)
    luid = program.device.GetAdapterLuid()
    assert luid.HighPart << 32 | luid.LowPart == NPU.luid
    assert not supports(program, "FLOAT64")
    assert supports(program, "FLOAT16")
    program.close()
    for each in (npu, found, dxcore):
        each.Release()


def supports(program: Program, data_type: str) -> bool:
    """Whether the device computes with a data type."""
    types = definitions.members("DML_TENSOR_DATA_TYPE")
    query = structure(
        "DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT",
        DataType=types[f"DML_TENSOR_DATA_TYPE_{data_type}"],
    )
    data = definitions.find("DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT")()
    sizes = ctypes.sizeof(query), ctypes.sizeof(data)
    where = ctypes.addressof(query), ctypes.addressof(data)
    check(program.dml.CheckFeatureSupport(0, sizes[0], where[0], sizes[1], where[1]))
    return bool(data.IsSupported)


def test_a_device_says_its_feature_level() -> None:
    with Windows(directml_level=(5, 1)) as windows:
        program = Program(windows)
        levels = (ctypes.c_int32 * 3)(0x1000, 0x5100, 0x6200)
        query = structure(
            "DML_FEATURE_QUERY_FEATURE_LEVELS", RequestedFeatureLevelCount=3
        )
        query.RequestedFeatureLevels = levels
        data = definitions.find("DML_FEATURE_DATA_FEATURE_LEVELS")()
        check(
            program.dml.CheckFeatureSupport(
                1,
                ctypes.sizeof(query),
                ctypes.addressof(query),
                4,
                ctypes.addressof(data),
            )
        )
        assert data.MaxSupportedFeatureLevel == 0x5100
        with pytest.raises(Answer) as error:
            create(windows, "DMLCreateDevice1", "IDMLDevice", program.device, 0, 0x6000)
        assert error.value.result == UNSUPPORTED
        program.close()


def test_libraries_are_those_that_the_machine_has() -> None:
    path = r"C:\program\DirectML.dll"
    with Windows(
        lacking=("dxcore.dll", "CreateDXGIFactory2"),
        directml_level=(2, 0),
        files={path: (6, 3)},
    ) as windows:
        with pytest.raises(OSError, match=r"lacks DXCore\.dll"):
            windows.load("DXCore.dll")
        with pytest.raises(OSError, match="no file"):
            windows.load(path.replace("program", "elsewhere"))
        with pytest.raises(OSError, match=r"no nvcuda\.dll"):
            windows.load("nvcuda.dll")
        for place in (windows, windows.load("dxgi.dll")):
            assert not hasattr(place, "CreateDXGIFactory2")
        assert callable(windows.D3D12CreateDevice)
        device = create(windows, "D3D12CreateDevice", "ID3D12Device", None, 0xB000)
        place_of_it = ctypes.c_void_p()
        wanted = guid("IDMLDevice"), ctypes.byref(place_of_it)
        for name, result in {"DirectML.dll": UNSUPPORTED, path: 0}.items():
            make = windows.load(name).DMLCreateDevice1
            assert make(device.address, 0, 0x6300, *wanted) == result
        Reference("IDMLDevice", place_of_it.value or 0).Release()
        device.Release()


def test_a_device_is_the_only_one_of_its_adapter(program: Program) -> None:
    again = create(program.windows, "D3D12CreateDevice", "ID3D12Device", None, 0xB000)
    assert again.address == program.device.address
    again.Release()


# what is wrong with tensors and operators: words that are noted, and what is done

TENSORS = {
    "dimensions": lambda: tensor([1] * 9),
    "with a zero": lambda: tensor([2, 0], size=4),
    "need 24": lambda: tensor([2, 3], size=20),
    "no multiple of 4": lambda: tensor([2, 3], size=26),
    "power of 2": lambda: tensor([2, 3], alignment=24),
    "flags 0x2": lambda: tensor([2, 3], flags=2),
    "more than 2^32": lambda: tensor([2, 3], strides=[2**32 - 1, 1], size=2**35),
    "it may be": lambda: tensor([2, 3], "FLOAT64"),
    "sizes differ": lambda: tensor([3, 2]),
    "lie on one another": None,
    "cannot be OWNED_BY_DML": None,
}


@pytest.mark.parametrize("words", TENSORS)
def test_a_wrong_tensor_is_rejected(program: Program, words: str) -> None:
    good = tensor([2, 3])
    make = TENSORS[words]
    output = good
    if words == "lie on one another":
        output = tensor([2, 3], strides=[2, 1])
    elif words == "cannot be OWNED_BY_DML":
        output = tensor([2, 3], flags=OWNED)
    with program.windows.expected(words), pytest.raises(Answer) as error:
        program.operator(
            "ELEMENT_WISE_ADD",
            ATensor=make() if make else good,
            BTensor=good,
            OutputTensor=output,
        )
    assert error.value.result == E_INVALIDARG


def test_wrong_operators_are_rejected(program: Program) -> None:
    full = operator_desc(
        "ACTIVATION_RELU", InputTensor=tensor(C.shape), OutputTensor=tensor(C.shape)
    )
    identity = operator_desc("ACTIVATION_IDENTITY")
    wrong: dict[str, dict[str, Any]] = {
        "BTensor is null": {"BTensor": None},
        "DML_MATRIX_TRANSFORM has no 7": {"TransA": 7},
        "of a fused activation is null": {"FusedActivation": ctypes.pointer(full)},
        "ATensor has 2 dimensions": {"ATensor": tensor([2, 3])},
    }
    for words, fields in wrong.items():
        with program.windows.expected(words), pytest.raises(Answer):
            gemm(program, **fields)
    OPERATORS.pop("ACTIVATION_IDENTITY", None)
    with program.windows.expected("cannot be fused"), pytest.raises(Answer):
        gemm(program, FusedActivation=ctypes.pointer(identity))
    with program.windows.expected("knows nothing"), pytest.raises(Answer):
        program.operator("ACTIVATION_IDENTITY")


def test_an_operator_is_of_a_feature_level() -> None:
    with Windows(directml_level=(2, 1)) as windows:
        program = Program(windows)
        flat = tensor([2, 3])
        with windows.expected("at feature level 2.1"), pytest.raises(Answer):
            program.operator(
                "ELEMENT_WISE_ADD", ATensor=flat, BTensor=flat, OutputTensor=flat
            )
        program.close()


GRAPHS: dict[str, Callable[[], dict[str, Any]]] = {
    "no edge leads to input 1 of node 1": lambda: {"inputs": [(0, 1, 0)]},
    "two edges lead to input 0 of node 1": lambda: {
        "inputs": [(0, 1, 0), (1, 1, 1), (1, 1, 0)]
    },
    "a cycle": lambda: {"inputs": [(0, 1, 0)], "between": [
        (1, 0, 2, 0), (1, 0, 0, 0), (2, 0, 0, 1), (2, 0, 1, 1)
    ]},
    "TotalTensorSizeInBytes": lambda: {
        "relu": {"InputTensor": tensor([2, 3], size=28)}
    },
    "OWNED_BY_DML and not connected": lambda: {
        "relu": {"InputTensor": tensor([2, 3], flags=OWNED)}
    },
    "for some operators and not for": lambda: {
        "add": {"BTensor": tensor([2, 3], flags=OWNED)},
        "inputs": [(0, 1, 0), (0, 1, 1)],
    },
    "no edge leads to the graph's output 1": lambda: {"output_count": 2},
    "two edges lead to the graph's output 0": lambda: {
        "outputs": [(0, 0, 0), (1, 0, 0)]
    },
    "no edge comes from output 0 of node 0": lambda: {"outputs": [(1, 0, 0)]},
    "from output 1 of node 0": lambda: {"outputs": [(0, 1, 0)]},
    "leads to input 2 of node 0": lambda: {"between": [(1, 0, 2, 0), (1, 0, 0, 2)]},
    "leads to node 9": lambda: {"between": [(1, 0, 9, 0)]},
    "comes from the graph's input 1": lambda: {"input_count": 1},
    "at least one node": lambda: {"nodes": []},
}  # fmt: skip


@pytest.mark.parametrize("words", GRAPHS)
def test_a_wrong_graph_is_rejected(program: Program, words: str) -> None:
    desc = sum_and_relu(program, **GRAPHS[words]())
    with program.windows.expected(words), pytest.raises(Answer) as error:
        program.compiled_graph(desc)
    assert error.value.result == E_INVALIDARG


def loses(program: Program, words: str, action: Callable[[], Any]) -> None:
    """Invalid use of a method without an HRESULT removes the device of DirectML."""
    with program.windows.expected(words):
        action()
    assert program.dml.GetDeviceRemovedReason() == E_INVALIDARG
    assert program.device.GetDeviceRemovedReason() == 0
    with pytest.raises(Answer) as error:
        gemm(program)
    assert error.value.result == DEVICE_REMOVED


BINDINGS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "2 bindings for 3 inputs": lambda run: {"inputs": [run.source, None]},
    "input 0 of": lambda run: {"inputs": [None, None, None]},
    "bound at initialisation": lambda run: {
        "inputs": [run.source, run.program.buffer(48), None]
    },
    "D3D12_HEAP_TYPE_DEFAULT": lambda run: {
        "inputs": [run.program.uploaded(A), None, None]
    },
    "no multiple of 16": lambda run: {
        "inputs": [(run.program.buffer(64), 8, 24), None, None]
    },
    "20 bytes are bound, and 24": lambda run: {
        "inputs": [(run.source, 0, 20), None, None]
    },
    "bytes are no multiple of 4": lambda run: {
        "inputs": [(run.program.buffer(64), 0, 26), None, None]
    },
    "40 bytes at 0 of 24": lambda run: {"inputs": [(run.source, 0, 40), None, None]},
    "does not allow unordered": lambda run: {
        "outputs": [run.program.buffer(32, flags=0)]
    },
    "for input and for output": lambda run: {
        "inputs": [(wide := run.program.buffer(128), 0, 24), None, None],
        "outputs": [(wide, 64, 32)],
    },
    "the persistent resource: 16 bytes": lambda run: {
        "persistent": (run.persistent, 0, 16)
    },
    "no multiple of 256": lambda run: {
        "persistent": (run.program.buffer(4096), 16, 4000)
    },
    "needs a persistent resource": lambda run: {"persistent": None},
}


@pytest.mark.parametrize("words", BINDINGS)
def test_a_wrong_binding_is_noted(program: Program, words: str) -> None:
    run = Run(program)
    run.source = program.buffer(A.nbytes)
    changes = BINDINGS[words](run)
    loses(program, words, lambda: run.execute(**changes))


INITIAL: dict[str, Callable[[Run], list[Any]]] = {
    "is OWNED_BY_DML and not bound": lambda run: [array_binding([None] * 3)],
    "is not OWNED_BY_DML": lambda run: [
        array_binding([run.program.uploaded(A), None, None])
    ],
    "2 buffers for 3 inputs": lambda run: [array_binding([None, None])],
    "are arrays of buffers": lambda run: [run.program.buffer(16)],
    "2 bindings for 1 operators": lambda run: [None, None],
}


@pytest.mark.parametrize("words", INITIAL)
def test_a_wrong_initial_binding_is_noted(program: Program, words: str) -> None:
    run = Run(program)

    def action() -> None:
        bind(run.table, inputs=INITIAL[words](run))
        program.dispatch(run.initializer, run.table)

    loses(program, words, action)


def test_descriptor_heaps_are_set_and_large_enough(program: Program) -> None:
    run = Run(program)
    count = run.compiled.GetBindingProperties().RequiredDescriptorCount
    with program.windows.expected("descriptors, not"), pytest.raises(Answer):
        program.table(run.compiled, count=count - 1)
    heap = program.heap(count)
    with program.windows.expected("descriptors from 1 on"), pytest.raises(Answer):
        program.table(run.compiled, heap, first=1)
    table = program.table(run.compiled, heap)
    bind(
        table,
        inputs=[program.resident(A), None, None],
        outputs=[program.buffer(32)],
        persistent=run.persistent,
    )
    loses(program, "SetDescriptorHeaps", lambda: program.dispatch(run.compiled, table))


def refused(program: Program, words: str, action: Callable[[], Any]) -> None:
    """A submission that breaks a rule is dropped, and removes the device."""
    with program.windows.expected(words):
        action()
    assert program.device.GetDeviceRemovedReason() == 0x887A0001 - 2**32


def test_dependent_dispatches_need_a_barrier(program: Program) -> None:
    run = Run(program)
    program.dispatch(run.initializer, run.table)
    run.execute()  # reads the persistent resource
    refused(program, "a UAV barrier is missing", program.submit)


def test_a_barrier_between_makes_it_right(program: Program) -> None:
    run = Run(program)
    program.dispatch(run.initializer, run.table)
    program.uav_barrier(run.persistent)
    run.execute()
    np.testing.assert_array_equal(run.result(), EXPECTED)


STATES: dict[str, Callable[[Program], Any]] = {
    "a transition barrier is missing": lambda p: p.list.CopyBufferRegion(
        p.buffer(32), 0, p.resident(A), 0, 4
    ),
    "as the barrier says": lambda p: p.transition(p.resident(A), 0x800, COPY_DEST),
    "to the same state": lambda p: p.transition(p.buffer(4), 8, 8),
    "no buffer can be in the state 0x808": lambda p: p.transition(
        p.buffer(4), COMMON, 0x808
    ),
    "cannot leave the state": lambda p: p.transition(
        p.buffer(4, UPLOAD), 0xAC3, COPY_DEST
    ),
    "does not allow unordered": lambda p: p.transition(
        p.buffer(4, flags=0), COMMON, UNORDERED_ACCESS
    ),
}


@pytest.mark.parametrize("words", STATES)
def test_states_of_buffers_are_looked_at(program: Program, words: str) -> None:
    STATES[words](program)
    refused(program, words, program.submit)


def test_inputs_are_in_the_state_for_unordered_access(program: Program) -> None:
    run = Run(program)
    run.initialize()
    source = program.buffer(A.nbytes)
    program.list.CopyBufferRegion(source, 0, program.uploaded(A), 0, A.nbytes)
    run.execute(inputs=[source, None, None])
    refused(program, "is used as 0x8: a transition barrier", program.submit)


def test_what_nobody_has_written_is_not_read(program: Program) -> None:
    run = Run(program)
    run.initialize()
    run.execute(inputs=[program.buffer(24, heap_flags=0x1000), None, None])
    program.submit()
    with program.windows.expected("24 bytes that nobody has written"):
        program.wait()


def test_an_operator_is_initialised_exactly_once(program: Program) -> None:
    run = Run(program)
    run.execute()
    program.submit()
    with program.windows.expected("before it is initialised"):
        program.wait()


def test_an_operator_is_not_initialised_twice(program: Program) -> None:
    run = Run(program)
    run.initialize()
    program.set_heap(program.heap(1))
    run.table = program.table(run.initializer)
    bind(
        run.table,
        inputs=[array_binding([None, program.uploaded(B), program.uploaded(C)])],
        outputs=[run.persistent],
        temporary=run.scratch,
    )
    program.dispatch(run.initializer, run.table)
    program.submit()
    with program.windows.expected("initialised twice"):
        program.wait()


def test_a_persistent_resource_is_left_alone(program: Program) -> None:
    run = Run(program)
    run.initialize()
    program.list.CopyBufferRegion(run.persistent, 256, program.uploaded(A), 0, 4)
    program.transition(run.persistent, COPY_DEST, UNORDERED_ACCESS)
    run.execute()
    program.submit()
    with program.windows.expected("was changed"):
        program.wait()


def test_a_persistent_resource_is_not_moved(program: Program) -> None:
    run = Run(program)
    run.initialize()
    size = run.compiled.GetBindingProperties().PersistentResourceSize
    run.execute(persistent=program.buffer(size))
    program.submit()
    with program.windows.expected("cannot be moved"):
        program.wait()


def test_nothing_is_released_that_the_gpu_uses(program: Program) -> None:
    run = Run(program)
    run.initialize()
    table = run.bound()
    program.dispatch(run.compiled, table)
    program.submit()
    for unused in (program.list, table, run.table, run.initializer):
        program.release(unused)  # none of which the GPU uses now
    for used in (run.source, run.compiled, program.allocator):
        with program.windows.expected("while the GPU may still use it"):
            program.release(used)
    program.wait()


def test_descriptors_are_not_overwritten_in_flight(program: Program) -> None:
    run = Run(program)
    run.initialize()
    table = run.bound()
    program.dispatch(run.compiled, table)
    program.submit()
    with program.windows.expected("while the GPU may still read it"):
        bind(table, outputs=[program.buffer(32)])
    program.wait()


def test_descriptors_are_not_overwritten_before_execution(program: Program) -> None:
    run = Run(program)
    run.initialize()
    table = run.bound()
    program.dispatch(run.compiled, table)
    bind(table, outputs=[program.buffer(32)])
    refused(program, "were overwritten", program.submit)


def test_volatile_descriptors_may_be_bound_late(program: Program) -> None:
    run = Run(program, flags=4)
    run.initialize()
    table = run.bound()
    program.dispatch(run.compiled, table)
    run.target = program.buffer(32)
    bind(table, outputs=[run.target])
    program.submit()
    program.wait()
    program.again()
    np.testing.assert_array_equal(run_result(run), EXPECTED)


def test_lists_and_allocators_follow_their_rules(program: Program) -> None:
    windows = program.windows
    with windows.expected("records with"), pytest.raises(Answer):
        program.again()  # the list is open
    with windows.expected("before it was closed"):
        assert program.list.Reset(program.allocator, None) < 0
    run = Run(program)
    run.initialize()
    run.execute()
    program.submit()
    with windows.expected("is reset while the GPU may execute"):
        assert program.allocator.Reset() < 0
    with windows.expected("before its last execution"):
        program.execute()


def test_what_an_allocator_lost_is_not_executed(program: Program) -> None:
    check(program.list.Close())
    check(program.allocator.Reset())
    refused(program, "its allocator was reset", program.execute)


def test_a_list_with_an_error_never_closes_well(program: Program) -> None:
    small = program.buffer(4)
    with program.windows.expected("32 bytes at 0"):
        program.list.CopyBufferRegion(small, 0, program.buffer(32), 0, 32)
    assert program.list.Close() == E_INVALIDARG
    assert program.list.Reset(program.allocator, None) == E_INVALIDARG


def test_a_released_buffer_is_not_executed_with(program: Program) -> None:
    source, target = program.buffer(4), program.buffer(4)
    program.list.CopyBufferRegion(target, 0, source, 0, 4)
    program.release(source)
    refused(program, "which was released", program.submit)


def test_a_released_object_is_not_called(program: Program) -> None:
    heap = program.heap(3)
    program.release(heap)
    with program.windows.expected("which was released"):
        heap.GetDesc()


def test_read_back_waits_for_the_copy(program: Program) -> None:
    back = program.buffer(24, READBACK)
    program.list.CopyBufferRegion(back, 0, program.uploaded(A), 0, 24)
    program.submit()
    with program.windows.expected("before the copy into it"):
        assert back.Map(0, None, ctypes.pointer(ctypes.c_void_p())) == E_INVALIDARG
    program.wait()
    with program.windows.expected("default heap"):
        assert program.buffer(4).Map(0, None, None) == E_INVALIDARG
    with program.windows.expected("is not mapped"):
        back.Unmap(0, None)


def test_wrong_descriptions_of_buffers_are_refused(program: Program) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "at least one byte": {"size": 0},
        "Format of a buffer is 0": {"size": 4, "Format": 2},
        "flags 0x8": {"size": 4, "flags": 8},
        "only a buffer on a default heap": {"size": 4, "kind": UPLOAD, "flags": 4},
        "heaps of type 7": {"size": 4, "kind": 7},
    }
    for words, fields in wrong.items():
        with program.windows.expected(words), pytest.raises(Answer):
            program.buffer(**fields)


def test_buffers_are_placed_in_heaps(program: Program) -> None:
    desc = structure("D3D12_HEAP_DESC", SizeInBytes=131072, Flags=0x44)
    desc.Properties.Type = 1
    heap = program.new("ID3D12Heap", "CreateHeap", ctypes.pointer(desc))
    buffer = ctypes.pointer(Program.described(1024))
    placed = "ID3D12Resource", "CreatePlacedResource"
    program.new(*placed, heap, 65536, buffer, 0, None)
    for words, offset in {"no multiple of 65536": 16, "of a heap of": 131072}.items():
        with program.windows.expected(words), pytest.raises(Answer):
            program.new(*placed, heap, offset, buffer, 0, None)


# what goes wrong though the program does nothing wrong


def test_a_device_is_removed_at_a_call(program: Program) -> None:
    windows = program.windows
    windows.faults.remove_at_call = windows.counts.calls + 1
    with pytest.raises(Answer) as error:
        program.buffer(4)
    assert error.value.result == DEVICE_REMOVED
    assert program.device.GetDeviceRemovedReason() == DEVICE_HUNG
    assert program.dml.GetDeviceRemovedReason() == DEVICE_HUNG
    with pytest.raises(Answer) as error:
        create(windows, "D3D12CreateDevice", "ID3D12Device", None, 0xB000)
    assert error.value.result == DEVICE_HUNG


def test_a_device_is_removed_while_it_works(program: Program) -> None:
    run = Run(program)
    program.windows.faults.remove_at_submission = 1
    program.dispatch(run.initializer, run.table)
    program.submit()
    event = program.kernel32.CreateEventW(None, 0, 0, None)
    # either the signal finds the device removed, or its fence is set by the removal
    result = program.queue.Signal(program.fence, 1)
    assert result in (0, DEVICE_REMOVED)
    check(program.fence.SetEventOnCompletion(1, event))
    assert program.kernel32.WaitForSingleObject(event, 10_000) == 0
    program.kernel32.CloseHandle(event)
    assert program.fence.GetCompletedValue() == 2**64 - 1
    assert program.device.GetDeviceRemovedReason() == DEVICE_HUNG


def test_a_fence_may_never_come(program: Program) -> None:
    windows = program.windows
    windows.faults.stall_at_signal = 1
    check(program.list.Close())
    program.execute()
    check(program.queue.Signal(program.fence, 1))
    event = program.kernel32.CreateEventW(None, 0, 0, None)
    check(program.fence.SetEventOnCompletion(1, event))
    assert program.kernel32.WaitForSingleObject(event, 30) == 0x102
    assert program.fence.GetCompletedValue() == 0
    windows.resume()
    assert program.kernel32.WaitForSingleObject(event, 10_000) == 0
    program.kernel32.CloseHandle(event)


def test_memory_runs_out(program: Program) -> None:
    windows = program.windows
    windows.faults.no_memory_at = windows.counts.allocations + 2
    program.buffer(4)
    for size in (4, 8 << 30):
        with pytest.raises(Answer) as error:
            program.buffer(size)
        assert error.value.result == E_OUTOFMEMORY
    program.buffer(4)


def test_a_compilation_fails(program: Program) -> None:
    program.windows.faults.compile_at = 1
    operator = gemm(program)
    with pytest.raises(Answer) as error:
        program.compiled(operator)
    assert error.value.result == E_OUTOFMEMORY
    program.compiled(operator)


def test_what_is_left_is_counted() -> None:
    windows = Windows()
    program = Program(windows)
    left = program.buffer(4)
    left.AddRef()
    program.close()
    program.kernel32.CreateEventW(None, 0, 0, None)
    with pytest.raises(Violation) as error:
        windows.check()
    assert "ID3D12Resource" in str(error.value)
    assert "ID3D12Device" in str(error.value)  # to which the buffer refers
    assert "is open" in str(error.value)


def test_what_operators_return_is_looked_at(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OPERATORS["GEMM"], "evaluate", lambda desc, inputs: [A])
    run = Run(program)
    run.initialize()
    run.execute()
    program.submit()
    with program.windows.expected("the meaning of the operator returned"):
        program.wait()


def test_interfaces_are_those_of_the_chain(program: Program) -> None:
    place = ctypes.c_void_p()
    for name, known in {
        "IUnknown": True,
        "IDMLObject": True,
        "IDMLDevice": True,
        "IDMLDevice1": True,
        "ID3D12Device": False,
    }.items():
        iid = ctypes.pointer(definitions.find(name)._iid_)
        result = program.dml.QueryInterface(iid, ctypes.pointer(place))
        assert (result == 0) == known, name
        assert place.value == (program.dml.address if known else None)
        if known:
            program.dml.Release()


def test_every_structure_is_known() -> None:
    names = schema.operator_names()
    assert len(names) == 177 and names[164] == "MULTIHEAD_ATTENTION"
    for name in names.values():
        found = schema.schema(name)
        assert found.tensors
        for field, kind in found.fields.items():
            if kind.startswith("DML_"):
                assert schema.members(kind)
            if kind in ("tensors", "operators", "uints", "ints", "floats"):
                assert found.count_of(field) in found.fields, (name, field)


def test_tables_of_support_have_the_fields_of_the_structures() -> None:
    for name, meaning in decoding.load().items():
        for level, table in meaning.support.items():
            assert tuple(table) == schema.schema(name).tensors, (name, level)
