"""Operators and graphs are decoded, checked and computed by the stand-in."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .. import definitions
from ..standin import GPU, Windows, decoding, schema
from ..standin.driving import (
    OWNED,
    UNORDERED_ACCESS,
    Answer,
    Program,
    bind,
    create,
    operator_desc,
    tensor,
)
from ..standin.operators import OPERATORS
from .product import E_INVALIDARG, EXPECTED, A, C, Run, fails_late, gemm, sum_and_relu


def test_an_operator_with_owned_weights_is_computed(program: Program) -> None:
    run = Run(program)
    run.initialize()
    run.execute()
    np.testing.assert_array_equal(run.result(), EXPECTED)
    assert program.windows.counts.initializations == 1


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


def test_what_the_adapter_does_not_compute_with_is_rejected() -> None:
    adapter = dataclasses.replace(GPU, data_types=frozenset({"FLOAT16"}))
    with Windows([adapter]) as windows:
        program = Program(windows)
        with windows.expected("which the device does not have"), pytest.raises(Answer):
            gemm(program)
        program.close()


def broken(desc: Any, **fields: Any) -> Any:
    """A description of a tensor with fields changed, of which ``Type`` is its own."""
    kind = definitions.find("DML_BUFFER_TENSOR_DESC")
    for name, value in fields.items():
        buffer = kind.from_address(desc.contents.Desc)
        setattr(desc.contents if name == "Type" else buffer, name, value)
    return desc


def test_broken_structures_are_rejected(program: Program) -> None:
    for words, wrong in {
        "no DML_TENSOR_TYPE_BUFFER": broken(tensor([2, 3]), Type=0),
        "no data type 99": broken(tensor([2, 3]), DataType=99),
    }.items():
        with program.windows.expected(words), pytest.raises(Answer):
            program.operator(
                "ACTIVATION_RELU", InputTensor=wrong, OutputTensor=tensor([2, 3])
            )
    with program.windows.expected("InputTensors is null"), pytest.raises(Answer):
        program.operator("JOIN", InputCount=2, OutputTensor=tensor([4, 3]))
    desc = operator_desc("ACTIVATION_RELU")
    for words, field, value in (
        ("has no description", "Desc", None),
        ("there is no operator 999", "Type", 999),
    ):
        setattr(desc, field, value)
        with program.windows.expected(words), pytest.raises(Answer):
            program.dml.make("IDMLOperator", "CreateOperator", ctypes.pointer(desc))
    with program.windows.expected("flags 0x8"), pytest.raises(Answer):
        program.compiled(gemm(program), 8)


def test_broken_arrays_of_graphs_are_rejected(program: Program) -> None:
    changes: dict[str, Callable[[Any], None]] = {
        "is no operator": lambda d: setattr(d.Nodes[1], "Type", 0),
        "has the type 2": lambda d: setattr(d.InputEdges[1], "Type", 2),
        "of which the array is null": lambda d: setattr(d, "InputEdges", None),
        "at least one output": lambda d: setattr(d, "OutputCount", 0),
        "leads to the graph's output 5": lambda d: _set(d.OutputEdges, 5),
    }
    for words, change in changes.items():
        desc = sum_and_relu(program)
        change(desc)
        with program.windows.expected(words), pytest.raises(Answer):
            program.compiled_graph(desc)


def _set(edges: Any, output: int) -> None:
    kind = definitions.find("DML_OUTPUT_GRAPH_EDGE_DESC")
    kind.from_address(edges[0].Desc).GraphOutputIndex = output


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


def test_objects_of_two_devices_do_not_mix(program: Program) -> None:
    other = create(
        program.windows, "DMLCreateDevice1", "IDMLDevice1", program.device, 0, 0x2000
    )
    operator = gemm(program)
    with program.windows.expected("of another device"), pytest.raises(Answer):
        other.make("IDMLCompiledOperator", "CompileOperator", operator, 0)
    other.Release()


def test_what_operators_return_is_looked_at(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OPERATORS["GEMM"], "evaluate", lambda desc, inputs: [A])
    run = Run(program)
    run.initialize()
    run.execute()
    fails_late(program, "the meaning of the operator returned")


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
