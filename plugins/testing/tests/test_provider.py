"""The simulated EP at work: right numbers, late, on its own memory."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnxplug import ep
from onnxplug.ep import HOST, DataType
from onnxplug.graph.load import load_model
from onnxplug_testing import (
    SimulatedExecutionProvider,
    SimulatedFailure,
    Stage,
)
from onnxplug_testing.simulated import kernels

X = np.array([1, -2, 3, -4], np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)  # what the chain computes: |-relu(x)|


# arithmetic

BINARY = ["Add", "Div", "Equal", "Greater", "Less", "Max", "Min", "Mul", "Pow", "Sub"]
LOGIC = ["And", "Or"]
ATTRIBUTES = {
    "Cast": {"to": TensorProto.INT32},
    "Concat": {"axis": 1},
    "Softmax": {"axis": 0},
    "Split": {"axis": 1, "num_outputs": 2},
    "Transpose": {"perm": (1, 0)},
}
A = np.array([[7, -2, 3], [5, 4, -9]])
B = np.array([[2, 3, -2], [-3, 2, 4]])


def case(op: str, dtype: str) -> tuple[list[np.ndarray], int]:
    """Inputs of *op* in the element type *dtype*, and how many outputs it has."""
    a, b = A.astype(dtype), B.astype(dtype)
    if op in LOGIC:
        return [a > b, b > 0], 1
    match op:
        case "Clip":
            return [a, np.array(-1, dtype), np.array(4, dtype)], 1
        case "Log" | "Sqrt" | "Reciprocal":
            return [np.abs(a)], 1
        case "MatMul":
            return [a, b.T.copy()], 1
        case "Not":
            return [a > b], 1
        case "Pow":
            return [a, np.abs(b)], 1
        case "Split":
            return [a], 2
        case "Sum" | "Max" | "Min" | "Concat":
            return [a, b, a], 1
        case "Where":
            return [a > b, a, b], 1
    return [a, b] if op in BINARY else [a], 1


FLOAT_ONLY = {
    *("Ceil", "Cos", "Exp", "Floor", "Log", "Reciprocal", "Sigmoid", "Sin"),
    *("Softmax", "Sqrt", "Tanh"),
}
CASES = [
    (op, dtype)
    for op in sorted(kernels.KERNELS)
    for dtype in ("float32", "int64")
    if dtype == "float32" or op not in {*FLOAT_ONLY, *LOGIC, "Not"}
]


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_kernels_agree_with_the_reference(make_graph, op: str, dtype: str) -> None:
    arrays, count = case(op, dtype)
    inputs = [f"x{index}" for index in range(len(arrays))]
    outputs = [f"y{index}" for index in range(count)]
    node = helper.make_node(op, inputs, outputs, **ATTRIBUTES.get(op, {}))
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(inputs, arrays, strict=True)
    ]
    empty = [onnx.ValueInfoProto(name=name) for name in outputs]
    model = helper.make_model(helper.make_graph([node], "one", infos, empty))
    model.opset_import[0].version = 21
    wanted = ReferenceEvaluator(model).run(None, dict(zip(inputs, arrays, strict=True)))
    graph = make_graph(
        [(op, tuple(inputs), tuple(outputs), ATTRIBUTES.get(op, {}))],
        inputs=inputs,
        outputs=outputs,
    )
    kernel = kernels.find_kernel(graph, graph.nodes[0])
    assert not isinstance(kernel, ep.Reason)
    found = kernel(*arrays)
    for one, other in zip(
        found if isinstance(found, tuple) else (found,), wanted, strict=True
    ):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6)


# running


def test_without_a_stream_the_work_is_done_on_return(make_lab, chain, whole) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    (y,) = compiled.run([lab.up(X)], [None], None)
    np.testing.assert_array_equal(lab.down(y), expected(X))


def test_with_a_stream_the_work_is_done_when_synchronised(
    make_lab, chain, whole, context
) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    stream = lab.stream()
    x = lab.up(X)
    (y,) = compiled.run([x], [None], context(stream))
    assert (y.shape, y.dtype) == (X.shape, X.dtype)
    assert np.isnan(lab.down(y)).all()
    stream.synchronize()
    np.testing.assert_array_equal(lab.down(y), expected(X))


def test_copies_and_work_on_one_stream_are_in_order(
    make_lab, chain, whole, context
) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    stream, transfer = lab.stream(), lab.context.transfer
    x = lab.allocator.empty(X.shape, DataType.FLOAT32, stream)
    target = np.zeros_like(X)
    transfer.copy([(X, x)], stream)
    (y,) = compiled.run([x], [None], context(stream))
    transfer.copy([(y, target)], stream)
    assert np.isnan(target).all()
    stream.synchronize()
    np.testing.assert_array_equal(target, expected(X))


def test_work_does_not_see_inputs_of_a_stream_it_does_not_wait_for(
    make_lab, chain, whole, context
) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    for waits in (False, True):
        copying, working = lab.stream(), lab.stream()
        x = lab.allocator.empty(X.shape, DataType.FLOAT32, copying)
        lab.context.transfer.copy([(X, x)], copying)
        if waits:
            assert working.wait(copying.record())
        (y,) = compiled.run([x], [None], context(working))
        working.synchronize()
        assert np.isnan(lab.down(y)).all() != waits


@pytest.mark.parametrize("streamed", [False, True])
def test_bound_outputs_are_filled(
    make_lab, chain, whole, context, streamed: bool
) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    stream = lab.stream() if streamed else None
    x, bound = lab.up(X), lab.up(np.zeros_like(X))
    (y,) = compiled.run([x], [bound], context(stream))
    assert y is bound
    if stream is not None:
        stream.synchronize()
    np.testing.assert_array_equal(lab.down(bound), expected(X))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), np.zeros(4, np.int64)])
def test_a_bound_array_of_another_kind_is_refused(
    make_lab, chain, whole, context, streamed: bool, wrong: np.ndarray
) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    stream = lab.stream() if streamed else None
    with pytest.raises(ep.OutputMismatch, match=r"output 'y' is float32\[4\], but"):
        compiled.run([lab.up(X)], [lab.up(wrong)], context(stream))


def test_a_forgotten_copy_is_an_error(make_lab, chain, whole) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    with pytest.raises(TypeError, match=r"'x' is wanted in simulated:0.*in host"):
        compiled.run([X], [None], None)
    with pytest.raises(TypeError, match=r"'y' is wanted in simulated:0.*in host"):
        compiled.run([lab.up(X)], [np.zeros_like(X)], None)


def test_the_limit_of_memory_holds_for_outputs(make_lab, chain, whole) -> None:
    lab = make_lab(memory_limit=24)
    compiled = lab.provider.compile(whole(chain))
    x = lab.up(X)
    with pytest.raises(MemoryError, match="simulated:0 has 16 of 24 bytes"):
        compiled.run([x], [None], None)


def test_nothing_stays_on_the_device(make_lab, chain, whole, context) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    stream = lab.stream()
    x = lab.up(X)
    for _ in range(3):
        compiled.run([x], [None], context(stream))  # drops the output
        stream.synchronize()
    del x
    assert lab.allocator.live_bytes == 0
    assert lab.allocator.peak_bytes == 2 * X.nbytes
    assert lab.allocator.pool.reused == 2


def test_an_input_dropped_before_its_work_is_an_error(
    make_lab, chain, whole, context
) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    stream = lab.stream()
    compiled.run([lab.up(X)], [None], context(stream))
    with pytest.raises(RuntimeError, match=r"float32\[4\], was dropped before work"):
        stream.synchronize()


def test_types_can_stay_on_the_host(make_lab, make_graph, whole, context) -> None:
    lab = make_lab(on_host=frozenset({DataType.INT64}))
    graph = make_graph(
        [
            ("Cast", ("x",), ("i",), {"to": TensorProto.INT64}),
            ("Add", ("i", "n"), ("m",)),
            ("Neg", ("x",), ("y",)),
        ],
        inputs=["x", "n"],
        outputs=["m", "y"],
        dtypes=dict.fromkeys("inm", DataType.INT64),
    )
    compiled = lab.provider.compile(whole(graph))
    assert compiled.input_locations == [lab.provider.location, HOST]
    assert set(compiled.output_locations) == {HOST, lab.provider.location}
    stream = lab.stream()
    n = np.arange(4)
    results = compiled.run([lab.up(X), n], [None, None], context(stream))
    m, y = (dict(zip("my", results, strict=True))[name] for name in "my")
    np.testing.assert_array_equal(m, X.astype(np.int64) + n)
    stream.synchronize()
    np.testing.assert_array_equal(lab.down(y), -X)


def test_an_input_on_the_host_is_read_when_the_work_is_queued(
    make_lab, make_graph, whole, context
) -> None:
    lab = make_lab(on_host=frozenset({DataType.INT64}))
    graph = make_graph(
        [("Cast", ("n",), ("y",), {"to": TensorProto.FLOAT})],
        inputs=["n"],
        outputs=["y"],
        dtypes={"n": DataType.INT64},
    )
    compiled = lab.provider.compile(whole(graph))
    stream, n = lab.stream(), np.arange(4)
    (y,) = compiled.run([n], [None], context(stream))
    n[:] = 99
    stream.synchronize()
    np.testing.assert_array_equal(lab.down(y), [0, 1, 2, 3])


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_is_run_whole(make_lab, whole, context, streamed: bool) -> None:
    graph = load_model(doubling_loop()).graph
    lab = make_lab(ops=frozenset({"Loop"}))
    report = lab.provider.get_capability(graph)
    assert [claim.nodes for claim in report.claims] == [(0,)]
    partition = whole(graph)
    compiled = lab.provider.compile(partition)
    feeds = {"n": np.array(3, np.int64), "x": X}
    stream = lab.stream() if streamed else None
    inputs = [lab.up(feeds[name]) for name in partition.inputs]
    (y,) = compiled.run(inputs, [None], context(stream))
    if stream is not None:
        stream.synchronize()
    np.testing.assert_array_equal(lab.down(y), X * 8)


def doubling_loop() -> onnx.ModelProto:
    """``y = x * 2 ** n``"""
    scalar = {
        name: helper.make_tensor_value_info(name, kind, [])
        for name, kind in [
            ("i", TensorProto.INT64),
            ("go", TensorProto.BOOL),
            ("going", TensorProto.BOOL),
            ("n", TensorProto.INT64),
        ]
    }
    vector = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
        for name in ("v", "w", "x", "y")
    }
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["going"]),
            helper.make_node("Add", ["v", "v"], ["w"]),
        ],
        "body",
        [scalar["i"], scalar["go"], vector["v"]],
        [scalar["going"], vector["w"]],
    )
    loop = helper.make_node("Loop", ["n", "true", "x"], ["y"], body=body)
    graph = helper.make_graph(
        [loop],
        "loop",
        [scalar["n"], vector["x"]],
        [vector["y"]],
        [helper.make_tensor("true", TensorProto.BOOL, [], [True])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


# one run at a time


def test_overlapping_runs_are_refused(make_lab, chain, whole, context) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    assert compiled.max_concurrent_runs == 1
    x, first, second = lab.up(X), lab.stream(), lab.stream()
    compiled.run([x], [None], context(first))
    with pytest.raises(RuntimeError, match=r"two runs .* overlap.*wait for the work"):
        compiled.run([x], [None], context(second))
    with pytest.raises(RuntimeError, match=r"two runs .* overlap.*wait for the work"):
        compiled.run([x], [None], context())
    first.synchronize()
    compiled.run([x], [None], context(second))
    second.synchronize()


def test_runs_whose_work_is_in_order_do_not_overlap(
    make_lab, chain, whole, context
) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    x, *streams = lab.up(X), lab.stream(), lab.stream(), lab.stream()
    results = [compiled.run([x], [None], context(streams[0]))[0] for _ in range(2)]
    for before, after in itertools.pairwise(streams):
        assert after.wait(before.record())
        results += compiled.run([x], [None], context(after))
    streams[-1].synchronize()
    for result in results:
        np.testing.assert_array_equal(lab.down(result), expected(X))


def test_runs_that_overlap_in_two_threads_are_refused(
    make_lab, make_graph, whole, monkeypatch
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(x: np.ndarray) -> np.ndarray:
        entered.set()
        assert leave.wait(10)
        return x

    monkeypatch.setattr(kernels, "KERNELS", {"Abs": slow})
    graph = make_graph([("Abs", ("x",), ("y",))], inputs=["x"], outputs=["y"])
    lab = make_lab()
    compiled = lab.provider.compile(whole(graph))
    first = threading.Thread(target=compiled.run, args=([lab.up(X)], [None], None))
    first.start()
    assert entered.wait(10)
    with pytest.raises(RuntimeError, match=r"two runs .* overlap"):
        compiled.run([lab.up(X)], [None], None)
    leave.set()
    first.join()
    compiled.run([lab.up(X)], [None], None)


def test_without_a_limit_runs_may_overlap(make_lab, chain, whole, context) -> None:
    lab = make_lab(max_concurrent_runs=None)
    compiled = lab.provider.compile(whole(chain))
    assert compiled.max_concurrent_runs is None
    streams = [lab.stream() for _ in range(3)]
    inputs = [lab.up(X * scale) for scale in range(3)]
    results = [
        compiled.run([x], [None], context(stream))[0]
        for x, stream in zip(inputs, streams, strict=True)
    ]
    for stream in streams:
        stream.synchronize()
    for scale, result in enumerate(results):
        np.testing.assert_array_equal(lab.down(result), expected(X * scale))


def test_a_failed_run_does_not_count_as_running(
    make_lab, chain, whole, context
) -> None:
    lab = make_lab(fail_at=Stage.WORK)
    compiled = lab.provider.compile(whole(chain))
    x = lab.up(X)
    for _ in range(2):
        stream = lab.stream()
        compiled.run([x], [None], context(stream))
        with pytest.raises(SimulatedFailure, match="told to fail at work"):
            stream.synchronize()


# failing and giving back


def test_compile_declines_by_operator(make_lab, chain, whole) -> None:
    lab = make_lab(decline_ops=frozenset({"Neg"}))
    with pytest.raises(ep.Declined) as caught:
        lab.provider.compile(whole(chain))
    assert caught.value.reason.code is ep.RefusalCode.OTHER
    assert "partition 0 of Abs, Neg, Relu" in caught.value.reason.detail
    assert [node.op_type for node in caught.value.nodes] == ["Neg"]


def test_compile_declines_by_count(make_lab, chain, whole) -> None:
    lab = make_lab(decline_partitions=frozenset({1}))
    declined = []
    for call in range(3):
        try:
            lab.provider.compile(whole(chain))
        except ep.Declined as error:
            assert not error.nodes, "which means all"
            declined.append(call)
    assert declined == [1]


def test_compile_refuses_the_session(make_lab, chain, whole) -> None:
    lab = make_lab(refuse_session="no licence")
    with pytest.raises(ep.SessionRefused, match="no licence"):
        lab.provider.compile(whole(chain))


def at_capability(provider: SimulatedExecutionProvider, partition: Any) -> None:
    provider.get_capability(partition.graph)


def at_compile(provider: SimulatedExecutionProvider, partition: Any) -> None:
    provider.compile(partition)


@pytest.mark.parametrize(
    ("stage", "call"),
    [(Stage.GET_CAPABILITY, at_capability), (Stage.COMPILE, at_compile)],
)
def test_the_provider_fails_on_demand(
    make_lab, chain, whole, stage: Stage, call: Any
) -> None:
    call(make_lab().provider, whole(chain))
    with pytest.raises(SimulatedFailure, match=f"told to fail at {stage}"):
        call(make_lab(fail_at=stage).provider, whole(chain))


@pytest.mark.parametrize("stage", [Stage.RUN, Stage.WORK])
def test_runs_fail_on_demand(make_lab, chain, whole, stage: Stage) -> None:
    lab = make_lab(fail_at=stage)
    compiled = lab.provider.compile(whole(chain))
    with pytest.raises(SimulatedFailure, match=f"told to fail at {stage}"):
        compiled.run([lab.up(X)], [None], None)


def test_a_cancelled_run_does_nothing(make_lab, chain, whole, context) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    with pytest.raises(ep.RunCancelled):
        compiled.run([lab.up(X)], [None], context(cancelled=True))


# releasing


def test_partitions_are_closed_before_their_provider(make_lab, chain, whole) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    with pytest.raises(RuntimeError, match="closed before 1 of its 1 partitions"):
        lab.provider.close()
    with pytest.raises(RuntimeError, match="closed before 1 of its 1 EPs"):
        lab.factory.close()
    for release in (compiled.close, lab.provider.close) * 2:
        release()
    with pytest.raises(RuntimeError, match="before its context of simulated:0"):
        lab.factory.close()
    for release in (lab.context.close, lab.factory.close, lab.factory.close):
        release()
    assert (compiled.closed, lab.provider.closed, lab.factory.closed) == (True,) * 3


def test_a_closed_partition_is_not_run(make_lab, chain, whole) -> None:
    lab = make_lab()
    compiled = lab.provider.compile(whole(chain))
    compiled.close()
    with pytest.raises(RuntimeError, match="run after it was closed"):
        compiled.run([lab.up(X)], [None], None)


def test_inputs_are_not_written(make_lab, make_graph, whole) -> None:
    lab = make_lab()
    graph = make_graph([("Identity", ("x",), ("y",))], inputs=["x"], outputs=["y"])
    compiled = lab.provider.compile(whole(graph))
    x, bound = lab.up(X), lab.up(np.zeros_like(X))
    compiled.run([x], [bound], None)
    lab.context.transfer.copy([(X * 2, bound)], None)
    np.testing.assert_array_equal(lab.down(x), X)
