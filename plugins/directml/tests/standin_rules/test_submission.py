"""States, barriers, lists, fences and lifetimes follow Direct3D 12's rules."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..standin.driving import (
    COMMON,
    COPY_DEST,
    READBACK,
    UNORDERED_ACCESS,
    UPLOAD,
    Answer,
    Program,
    bind,
    check,
    structure,
    tensor,
)
from .product import E_INVALIDARG, EXPECTED, A, Run, refused, run_result, sum_and_relu


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


def test_dependent_dispatches_need_a_barrier(program: Program) -> None:
    run = Run(program)
    program.dispatch(run.initializer, run.table)
    run.execute()  # reads the persistent resource
    refused(program, "a UAV barrier is missing", program.submit)


@pytest.mark.parametrize("named", [True, False])
def test_a_barrier_between_makes_it_right(program: Program, named: bool) -> None:
    run = Run(program)
    program.dispatch(run.initializer, run.table)
    program.uav_barrier(run.persistent if named else None)
    run.execute()
    np.testing.assert_array_equal(run.result(), EXPECTED)


def test_what_is_read_is_written_behind_a_barrier(program: Program) -> None:
    whole = tensor([2, 3])
    operator = program.operator(
        "ELEMENT_WISE_ADD", ATensor=whole, BTensor=whole, OutputTensor=whole
    )
    compiled = program.compiled(operator)
    a, b, c, d = (program.buffer(24) for _ in range(4))
    for inputs, output in (([a, b], c), ([b, d], a)):
        table = program.table(compiled)
        bind(table, inputs=inputs, outputs=[output])
        program.dispatch(compiled, table)
    refused(program, "an earlier dispatch reads", program.submit)


RECORDED: dict[str, Callable[[Program], Any]] = {
    "source and destination at once": lambda p: p.list.CopyBufferRegion(
        same := p.buffer(32), 0, same, 16, 16
    ),
    "32 bytes at 4 of": lambda p: p.list.CopyBufferRegion(
        p.buffer(32), 0, p.buffer(32), 4, 32
    ),
    "one descriptor heap of a type": lambda p: p.set_heap(p.heap(1), p.heap(1)),
    "is not visible to shaders": lambda p: p.set_heap(p.heap(1, 0)),
    "does not allow unordered access": lambda p: p.uav_barrier(p.buffer(4, flags=0)),
    "no split barriers": lambda p: p.barrier(Type=0, Flags=1),
    "no barrier of type 5": lambda p: p.barrier(Type=5),
    "a barrier's buffer is null": lambda p: p.barrier(Type=0),
    "the source is null": lambda p: p.list.CopyResource(p.buffer(4), None),
    "has 4 bytes": lambda p: p.list.CopyResource(p.buffer(4), p.buffer(8)),
    "not ID3D12Resource": lambda p: p.list.CopyResource(p.buffer(4), p.fence),
}


@pytest.mark.parametrize("words", RECORDED)
def test_what_is_recorded_is_looked_at(program: Program, words: str) -> None:
    with program.windows.expected(words):
        RECORDED[words](program)
    assert program.list.Close() == E_INVALIDARG


def test_a_closed_list_records_nothing(program: Program) -> None:
    check(program.list.Close())
    with program.windows.expected("is closed already"):
        assert program.list.Close() < 0
    with program.windows.expected("is closed"):
        program.set_heap(program.heap(1))
    refused(program, "not closed without an error", program.execute)


def test_lists_are_of_the_type_of_their_queue(program: Program) -> None:
    check(program.list.Close())
    desc = structure("D3D12_COMMAND_QUEUE_DESC", Type=2)
    program.queue = program.new(
        "ID3D12CommandQueue", "CreateCommandQueue", ctypes.pointer(desc)
    )
    refused(program, "on a queue of type 2", program.execute)


def test_dispatches_that_share_scratch_need_a_barrier(program: Program) -> None:
    compiled = program.compiled_graph(sum_and_relu(program))
    scratch = program.buffer(compiled.GetBindingProperties().TemporaryResourceSize)
    for _ in range(2):
        table = program.table(compiled)
        bind(
            table,
            inputs=[program.buffer(24), program.buffer(24)],
            outputs=[program.buffer(48)],
            temporary=scratch,
        )
        program.dispatch(compiled, table)
    refused(program, "the temporary resource", program.submit)


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


def test_read_back_buffers_are_not_mapped_for_long(program: Program) -> None:
    back = program.buffer(24, READBACK)
    check(back.Map(0, None, None))
    program.list.CopyBufferRegion(back, 0, program.uploaded(A), 0, 24)
    refused(program, "is mapped while the GPU writes it", program.submit)


def test_what_the_gpu_is_to_read_is_left_alone(program: Program) -> None:
    program.windows.delay = 0.1
    source, target = program.uploaded(A), program.buffer(24)
    place = ctypes.c_void_p()
    check(source.Map(0, None, ctypes.pointer(place)))
    program.list.CopyBufferRegion(target, 0, source, 0, 24)
    with program.windows.expected("24 bytes at 0 of"):
        program.submit()
        ctypes.memset(place.value or 0, 7, 4)
        source.Unmap(0, None)
        with contextlib.suppress(Answer):
            program.wait()


def test_values_of_fences_are_seen_by_looking(program: Program) -> None:
    check(program.list.Close())
    program.execute()
    check(program.queue.Signal(program.fence, 5))
    while program.fence.GetCompletedValue() < 5:
        pass
    program.again()  # which the GPU has executed, as the program knows


def test_queues_wait_for_fences(program: Program) -> None:
    check(program.queue.Wait(program.fence, 3))
    check(program.queue.Signal(program.fence, 4))
    assert program.fence.GetCompletedValue() == 0
    check(program.fence.Signal(3))
    check(program.fence.SetEventOnCompletion(4, None))
    assert program.fence.GetCompletedValue() == 4
