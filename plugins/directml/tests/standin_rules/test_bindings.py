"""Bindings, descriptors and initialisation follow DirectML's rules on the stand-in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..standin.driving import (
    COPY_DEST,
    UNORDERED_ACCESS,
    Answer,
    Program,
    Reference,
    array_binding,
    bind,
    check,
    structure,
)
from .product import (
    E_INVALIDARG,
    EXPECTED,
    A,
    B,
    C,
    Run,
    fails_late,
    gemm,
    loses,
    refused,
    run_result,
    sum_and_relu,
)

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
    "2 bindings for 1 outputs": lambda run: {"outputs": [run.source, None]},
    "output 0 of": lambda run: {"outputs": [None]},
    "0 of 3 inputs are bound": lambda run: {"inputs": None},
    "0 of 1 outputs are bound": lambda run: {"outputs": None},
    "as the type 2, not as a buffer": lambda run: {
        "inputs": [array_binding([None]), None, None]
    },
    "24 bytes of no buffer": lambda run: {
        "inputs": [(Reference("ID3D12Resource", 0), 0, 24), None, None]
    },
    "is bound for two purposes": lambda run: {"outputs": [(run.persistent, 256, 32)]},
    "needs a persistent resource": lambda run: {"persistent": None},
    "the temporary resource: nothing is": lambda run: {
        "temporary": run.program.buffer(256)
    },
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


def test_a_persistent_resource_is_bound_at_initialisation(program: Program) -> None:
    run = Run(program)

    def action() -> None:
        bind(run.table, outputs=[None])
        program.dispatch(run.initializer, run.table)

    loses(program, "the persistent resource of", action)


def test_an_empty_table_binds_nothing(program: Program) -> None:
    run = Run(program)
    check(run.table.Reset(None))
    loses(program, "for no dispatchable", lambda: bind(run.table, outputs=[None]))


def test_an_initializer_is_used_again(program: Program) -> None:
    run = Run(program)
    program.dispatch(run.initializer, run.table)
    program.submit()
    with program.windows.expected("is reset while the GPU may execute it"):
        assert run.initializer.Reset(0, None) == E_INVALIDARG
    program.wait()
    check(run.initializer.Reset(0, None))
    assert run.initializer.GetBindingProperties().RequiredDescriptorCount == 0


def test_a_temporary_resource_is_as_large_as_asked_for(program: Program) -> None:
    compiled = program.compiled_graph(sum_and_relu(program))
    size = compiled.GetBindingProperties().TemporaryResourceSize
    table = program.table(compiled)
    scratch = program.buffer(size)
    loses(
        program,
        f"{size - 4} bytes are bound, and {size} are needed",
        lambda: bind(table, temporary=(scratch, 0, size - 4)),
    )


def test_a_temporary_resource_has_to_be_bound(program: Program) -> None:
    compiled = program.compiled_graph(sum_and_relu(program))
    table = program.table(compiled)
    whole = [program.buffer(24), program.buffer(24)]
    bind(table, inputs=whole, outputs=[program.buffer(48)])
    loses(program, "a temporary", lambda: program.dispatch(compiled, table))


def test_nothing_is_bound_for_inputs_that_are_null(program: Program) -> None:
    operator = gemm(program, owned=False, CTensor=None)
    compiled = program.compiled(operator)
    table = program.table(compiled)
    buffers = [program.buffer(48) for _ in range(3)]
    loses(program, "input 2: nothing is", lambda: bind(table, inputs=buffers))


def test_a_table_is_for_one_dispatchable(program: Program) -> None:
    run = Run(program)
    loses(
        program,
        "the binding table is for",
        lambda: program.dispatch(run.compiled, run.table),
    )


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


def test_descriptors_may_be_copied_to_where_shaders_see_them(program: Program) -> None:
    run = Run(program)
    run.initialize()
    count = run.compiled.GetBindingProperties().RequiredDescriptorCount
    plain, visible = program.heap(count, 0), program.heap(count)
    desc = structure(
        "DML_BINDING_TABLE_DESC",
        Dispatchable=run.compiled.address,
        SizeInDescriptors=count,
        CPUDescriptorHandle=plain.GetCPUDescriptorHandleForHeapStart(),
        GPUDescriptorHandle=visible.GetGPUDescriptorHandleForHeapStart(),
    )
    table = program.keep(
        program.dml.make("IDMLBindingTable", "CreateBindingTable", ctypes.pointer(desc))
    )
    run.source, run.target = program.resident(A), program.buffer(C.nbytes)
    bind(
        table,
        inputs=[run.source, None, None],
        outputs=[run.target],
        persistent=run.persistent,
    )
    program.set_heap(visible)
    program.dispatch(run.compiled, table)
    program.device.CopyDescriptorsSimple(
        count,
        visible.GetCPUDescriptorHandleForHeapStart(),
        plain.GetCPUDescriptorHandleForHeapStart(),
        0,
    )
    np.testing.assert_array_equal(run.result(), EXPECTED)
    with program.windows.expected("visible to shaders and cannot be copied from"):
        program.device.CopyDescriptorsSimple(
            1,
            plain.GetCPUDescriptorHandleForHeapStart(),
            visible.GetCPUDescriptorHandleForHeapStart(),
            0,
        )


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


def test_an_operator_is_initialised_exactly_once(program: Program) -> None:
    run = Run(program)
    run.execute()
    fails_late(program, "before it is initialised")


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
    fails_late(program, "initialised twice")


def test_a_persistent_resource_is_left_alone(program: Program) -> None:
    run = Run(program)
    run.initialize()
    program.list.CopyBufferRegion(run.persistent, 256, program.uploaded(A), 0, 4)
    program.transition(run.persistent, COPY_DEST, UNORDERED_ACCESS)
    run.execute()
    fails_late(program, "was changed")


def test_a_persistent_resource_is_not_moved(program: Program) -> None:
    run = Run(program)
    run.initialize()
    size = run.compiled.GetBindingProperties().PersistentResourceSize
    run.execute(persistent=program.buffer(size))
    fails_late(program, "cannot be moved")


def test_what_nobody_has_written_is_not_read(program: Program) -> None:
    run = Run(program)
    run.initialize()
    run.execute(inputs=[program.buffer(24, heap_flags=0x1000), None, None])
    fails_late(program, "24 bytes that nobody has written")
