"""Kernel sequences: slots, frees, bound outputs, errors and cancellation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from onnxplug.authoring.arrays import fill_bound
from onnxplug.authoring.kernels import (
    HostFunction,
    KernelExecutionProvider,
    KernelSequence,
)
from onnxplug.authoring.nodes import describe
from onnxplug.ep import (
    HOST,
    Graph,
    Node,
    NodeError,
    OutputMismatch,
    Reason,
    RefusalCode,
    RunCancelled,
)

X = np.array([1.0, -2.0], np.float32)


@dataclass
class Context:
    """A run that is cancelled once it was asked *patience* times."""

    patience: int
    options: Mapping[str, str]
    stream: None = None
    deadline: float | None = None
    profiler: None = None

    @property
    def cancelled(self) -> bool:
        self.patience -= 1
        return self.patience < 0


def by_op(
    **kernels: Callable[..., Any],
) -> Callable[[Graph, Node], Callable[..., Any] | Reason]:
    def find_kernel(graph: Graph, node: Node) -> Callable[..., Any] | Reason:
        return kernels.get(node.op_type) or Reason(RefusalCode.OP, node.op_type)

    return find_kernel


class Table(KernelExecutionProvider):
    def __init__(self, **kernels: Callable[..., Any]) -> None:
        self.find = by_op(**kernels)

    def find_kernel(self, graph: Graph, node: Node) -> Callable[..., Any] | Reason:
        return self.find(graph, node)


# the provider


def test_nodes_with_a_kernel_are_taken_and_the_others_refused(make_partition) -> None:
    partition = make_partition(
        [("Neg", ("x",), ("a",)), ("Odd", ("a",), ("y",))], inputs=["x"], outputs=["y"]
    )
    report = Table(Neg=np.negative).get_capability(partition.graph)
    assert [claim.nodes for claim in report.claims] == [(0,)]
    assert [(r.node, r.reason.code) for r in report.refusals] == [(1, RefusalCode.OP)]


def test_a_table_computes_on_the_host(make_partition) -> None:
    partition = make_partition(
        [("Neg", ("x",), ("a",)), ("Add", ("a", "b"), ("y",))],
        inputs=["x", "b"],
        outputs=["y"],
    )
    provider = Table(Neg=np.negative, Add=np.add)
    compiled = provider.compile(partition)
    (y,) = compiled.run([X, X * 3], [None], None)
    np.testing.assert_array_equal(y, X * 2)
    assert provider.location == HOST
    assert compiled.max_concurrent_runs is None


def test_a_claimed_node_that_lost_its_kernel_is_named(make_partition) -> None:
    partition = make_partition([("Neg", ("x",), ("y",))], inputs=["x"], outputs=["y"])
    with pytest.raises(RuntimeError, match=r"Neg 'node0' was claimed.*no kernel: op"):
        KernelSequence(partition, by_op())


# slots


def test_constants_are_given_to_kernels_and_kept_between_runs(make_partition) -> None:
    partition = make_partition(
        [("Mul", ("x", "k"), ("a",)), ("Add", ("a", "k"), ("y",))],
        inputs=["x"],
        outputs=["y"],
        constants={"k": np.array([2.0, 3.0], np.float32)},
    )
    sequence = KernelSequence(partition, by_op(Mul=np.multiply, Add=np.add))
    for _ in range(2):
        (y,) = sequence.run([X], [None], None)
        np.testing.assert_array_equal(y, [4.0, -3.0])


def test_one_node_may_take_its_inputs_in_another_order(make_partition) -> None:
    graph = make_partition(
        [("Neg", ("x",), ("unused",)), ("Sub", ("z", "x"), ("y",))],
        inputs=["x", "z"],
        outputs=["y", "unused"],
    )
    sequence = KernelSequence(graph, by_op(Neg=np.negative, Sub=np.subtract))
    by_name = dict(zip(graph.inputs, ([5.0], [7.0]), strict=True))
    results = sequence.run(
        [np.array(by_name[n]) for n in graph.inputs], [None] * 2, None
    )
    assert dict(zip(graph.outputs, [r.tolist() for r in results], strict=True)) == {
        "unused": [-by_name["x"][0]],
        "y": [by_name["z"][0] - by_name["x"][0]],
    }


def test_one_node_may_use_an_input_twice(make_partition) -> None:
    partition = make_partition(
        [("Mul", ("x", "x"), ("y",))], inputs=["x"], outputs=["y"]
    )
    (y,) = KernelSequence(partition, by_op(Mul=np.multiply)).run([X], [None], None)
    np.testing.assert_array_equal(y, X * X)


def test_inputs_left_out_are_none(make_partition) -> None:
    seen: list[tuple[Any, ...]] = []

    def clip(*arguments: Any) -> Any:
        seen.append(arguments)
        return arguments[0]

    partition = make_partition(
        [("Clip", ("x", None, "high"), ("y",))], inputs=["x", "high"], outputs=["y"]
    )
    KernelSequence(partition, by_op(Clip=clip)).run([X, X], [None], None)
    assert [argument is None for argument in seen[0]] == [False, True, False]


def test_an_output_nobody_wants_is_not_taken_for_an_input_left_out(
    make_partition,
) -> None:
    partition = make_partition(
        [
            ("Split", ("x",), (None, "a")),
            ("Clip", ("a", None), ("y",)),
        ],
        inputs=["x"],
        outputs=["y"],
    )
    kernels = by_op(
        Split=lambda x: (x[:1], x[1:]),
        Clip=lambda x, low: x if low is None else np.maximum(x, low),
    )
    (y,) = KernelSequence(partition, kernels).run([X], [None], None)
    np.testing.assert_array_equal(y, X[1:])


@pytest.mark.parametrize("outputs", [("a",), ("b",), ("a", "b"), ("c", "b")])
def test_a_node_gives_several_outputs(make_partition, outputs) -> None:
    partition = make_partition(
        [("Split", ("x",), ("a", "b")), ("Neg", ("a",), ("c",))],
        inputs=["x"],
        outputs=outputs,
    )
    kernels = by_op(Split=lambda x: (x[:1], x[1:]), Neg=np.negative)
    results = KernelSequence(partition, kernels).run([X], [None] * len(outputs), None)
    expected = {"a": X[:1], "b": X[1:], "c": -X[:1]}
    assert set(partition.outputs) == set(outputs)
    for name, result in zip(partition.outputs, results, strict=True):
        np.testing.assert_array_equal(result, expected[name])


def test_the_first_of_several_outputs_suffices(make_partition) -> None:
    partition = make_partition([("Split", ("x",), ("a",))], inputs=["x"], outputs=["a"])
    kernels = by_op(Split=lambda x: (x[:1], x[1:]))
    (a,) = KernelSequence(partition, kernels).run([X], [None], None)
    np.testing.assert_array_equal(a, X[:1])


# memory


class Watcher:
    """Kernels that make arrays, and see which of them still live."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Any]] = []
        self.alive: list[list[bool]] = []

    def __call__(self, *arguments: Any) -> Any:
        self.alive.append([ref() is not None for ref in self.made])
        result = np.ones(4, np.float32)
        self.made.append(weakref.ref(result))
        return result


def test_an_array_is_released_after_its_last_use(make_partition) -> None:
    partition = make_partition(
        [
            ("Watch", ("x",), ("a",)),
            ("Watch", ("a",), ("b",)),
            ("Watch", ("b",), ("c",)),
            ("Watch", ("c", "b"), ("d",)),
            ("Watch", ("d",), ("y",)),
        ],
        inputs=["x"],
        outputs=["y"],
    )
    watch = Watcher()
    (y,) = KernelSequence(partition, by_op(Watch=watch)).run([X], [None], None)
    assert watch.alive == [
        [],
        [True],
        [False, True],
        [False, True, True],  # b is used once more
        [False, False, False, True],
    ]
    assert [ref() is not None for ref in watch.made] == [False] * 4 + [True]
    assert y is watch.made[-1]()


def test_an_output_is_not_released_though_a_later_node_uses_it(make_partition) -> None:
    partition = make_partition(
        [
            ("Watch", ("x",), ("a",)),
            ("Watch", ("a",), ("b",)),
            ("Watch", ("b",), ("c",)),
        ],
        inputs=["x"],
        outputs=["a", "c"],
    )
    watch = Watcher()
    a, c = KernelSequence(partition, by_op(Watch=watch)).run([X], [None] * 2, None)
    assert watch.alive[-1] == [True, True]
    assert a is watch.made[0]()
    assert c is watch.made[2]()
    assert watch.made[1]() is None


def test_a_sequence_keeps_nothing_of_a_run(make_partition) -> None:
    partition = make_partition(
        [("Watch", ("x",), ("a",)), ("Watch", ("a",), ("y",))],
        inputs=["x"],
        outputs=["y"],
    )
    watch = Watcher()
    sequence = KernelSequence(partition, by_op(Watch=watch))
    x = np.ones(4, np.float32)
    given = weakref.ref(x)
    sequence.run([x], [None], None)
    del x
    assert given() is None
    assert [ref() for ref in watch.made] == [None, None]


# bound outputs


@pytest.mark.parametrize("nodes", [1, 2])
def test_bound_outputs_are_filled_and_returned(make_partition, nodes: int) -> None:
    chain = [("Neg", ("x",), ("a",)), ("Neg", ("a",), ("b",))][:nodes]
    output = chain[-1][2][0]
    partition = make_partition(chain, inputs=["x"], outputs=[output])
    bound = np.empty_like(X)
    (y,) = KernelSequence(partition, by_op(Neg=np.negative)).run([X], [bound], None)
    assert y is bound
    np.testing.assert_array_equal(bound, X * (-1) ** nodes)


def test_only_bound_outputs_are_copied() -> None:
    results = (X, X * 2)
    bound = np.empty_like(X)
    first, second = fill_bound(results, [None, bound])
    assert first is results[0]
    assert second is bound
    np.testing.assert_array_equal(bound, X * 2)


def test_with_nothing_bound_results_are_passed_on() -> None:
    results = (X, X)
    assert fill_bound(results, [None, None]) is results


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (np.zeros(3, np.float32), r"float32\[3\]"),
        (np.zeros(2, np.float64), r"float64\[2\]"),
        (np.zeros((2, 1), np.float32), r"float32\[2, 1\]"),  # would broadcast
    ],
)
def test_a_mismatch_is_found_before_anything_is_written(
    wrong: np.ndarray, found: str
) -> None:
    good = np.zeros(2, np.float32)
    with pytest.raises(OutputMismatch, match=rf"output 1 is float32\[2\].*{found}"):
        fill_bound((X, X), [good, wrong])
    assert not good.any()
    assert not wrong.any()


def test_host_functions_fill_what_is_bound() -> None:
    bound = np.empty_like(X)
    one = HostFunction(lambda x: x * 2)
    assert one.run([X], [bound], None)[0] is bound
    np.testing.assert_array_equal(bound, X * 2)
    two = HostFunction(lambda x, y: [x + y, x - y])
    total, difference = two.run([X, X], [None, bound], None)
    np.testing.assert_array_equal(total, X * 2)
    assert difference is bound
    assert not bound.any()


# failures


def fail(*_arguments: Any) -> Any:
    raise ZeroDivisionError("no luck")


@pytest.mark.parametrize("before", [0, 1])
def test_a_failing_kernel_is_told_with_its_node_and_inputs(
    make_partition, before: int
) -> None:
    chain = [("Neg", ("x",), ("a",)), ("Fail", ("a",), ("y",))][1 - before :]
    partition = make_partition(chain, inputs=[chain[0][1][0]], outputs=["y"])
    sequence = KernelSequence(partition, by_op(Neg=np.negative, Fail=fail))
    message = r"Fail 'node\d' failed on float32\[2\]: ZeroDivisionError: no luck"
    with pytest.raises(NodeError, match=message) as caught:
        sequence.run([X], [None], None)
    assert caught.value.node == f"node{before}"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_node_error_of_a_kernel_is_not_wrapped_again(make_partition) -> None:
    inner = NodeError("Neg in a body failed", node="inner")

    def body(x: Any) -> Any:
        raise inner

    partition = make_partition([("If", ("x",), ("y",))], inputs=["x"], outputs=["y"])
    with pytest.raises(NodeError) as caught:
        KernelSequence(partition, by_op(If=body)).run([X], [None], None)
    assert caught.value is inner


def test_inputs_of_any_kind_are_described(make_partition) -> None:
    partition = make_partition(
        [("Fail", ("x", None, "s"), ("y",))], inputs=["x", "s"], outputs=["y"]
    )
    with pytest.raises(NodeError, match=r"failed on float32\[2\], nothing, list:"):
        KernelSequence(partition, by_op(Fail=fail)).run([X, [X]], [None], None)


def test_a_cancelled_run_stops_before_the_next_node(make_partition) -> None:
    partition = make_partition(
        [
            ("Watch", ("x",), ("a",)),
            ("Watch", ("a",), ("b",)),
            ("Watch", ("b",), ("y",)),
        ],
        inputs=["x"],
        outputs=["y"],
    )
    watch = Watcher()
    sequence = KernelSequence(partition, by_op(Watch=watch))
    with pytest.raises(RunCancelled, match="before Watch 'node2'"):
        sequence.run([X], [None], Context(patience=2, options={}))
    assert len(watch.made) == 2
    sequence.run([X], [None], Context(patience=99, options={}))
    assert len(watch.made) == 5


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (("Add", "", "sum", ("y",)), "Add 'sum'"),
        (("Add", "", "", ("y",)), "Add giving 'y'"),
        (("Split", "", "", (None, "b")), "Split giving 'b'"),
        (("Rope", "com.acme", "r", ("y",)), "com.acme.Rope 'r'"),
    ],
)
def test_nodes_are_described_by_name_or_output(node, text: str) -> None:
    from onnxplug.graph import Node as GraphNode

    op_type, domain, name, outputs = node
    described = GraphNode(op_type, ("x",), outputs, domain=domain, name=name)
    assert describe(described) == text


# bound outputs in kernels


def add_into(x: np.ndarray, y: np.ndarray, out: Any = None) -> np.ndarray:
    seen.append(out)
    return np.add(x, y, out=out)


seen: list[Any] = []


@pytest.fixture
def into(make_partition) -> Callable[..., KernelSequence]:
    """``y = -x + x`` and maybe more, whose kernels note what they are given to fill."""
    seen.clear()

    def make(**kernels: Callable[..., Any]) -> KernelSequence:
        partition = make_partition(
            [("Neg", ("x",), ("a",)), ("Add", ("a", "b"), ("y",))],
            inputs=["x", "b"],
            outputs=["a", "y"],
            shape=(2,),
        )
        return KernelSequence(
            partition, by_op(**({"Neg": np.negative, "Add": add_into} | kernels))
        )

    return make


@pytest.mark.parametrize("context", [None, Context(10, {})])
def test_a_kernel_with_a_parameter_for_it_fills_the_bound_array(
    into: Callable[..., KernelSequence], context: Any
) -> None:
    target = np.zeros(2, np.float32)
    a, y = into().run([X, X], [None, target], context)
    assert len(seen) == 1
    assert seen[0] is target is y
    np.testing.assert_array_equal(target, [0, 0])
    np.testing.assert_array_equal(a, -X)


def test_a_ufunc_of_numpys_fills_the_bound_array(
    into: Callable[..., KernelSequence],
) -> None:
    target = np.zeros(2, np.float32)
    filled = []

    class Watched(np.ndarray):
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any):
            filled.append(more.get("out"))
            plain = {"out": tuple(np.asarray(each) for each in more["out"])}
            return getattr(ufunc, method)(*map(np.asarray, inputs), **plain)

    into().run([X, X], [target.view(Watched), None], None)
    assert len(filled) == 1
    np.testing.assert_array_equal(target, -X)


def test_a_single_kernel_fills_the_bound_array(make_partition) -> None:
    seen.clear()
    partition = make_partition(
        [("Add", ("x", "b"), ("y",))], inputs=["x", "b"], outputs=["y"], shape=(2,)
    )
    target = np.zeros(2, np.float32)
    (found,) = KernelSequence(partition, by_op(Add=add_into)).run(
        [X, X], [target], None
    )
    assert found is target and seen[0] is target
    np.testing.assert_array_equal(target, 2 * X)


def test_what_a_kernel_does_not_fill_is_copied(
    into: Callable[..., KernelSequence],
) -> None:
    target = np.zeros(2, np.float32)
    _, y = into(Add=lambda x, y: x + y).run([X, X], [None, target], None)
    assert y is target
    # one that finds its result to be another leaves the array as it is
    wider = into(Add=lambda x, y, out=None: np.add(x, y, dtype=np.float64))
    target[:] = 7
    with pytest.raises(OutputMismatch, match="float64"):
        wider.run([X, X], [None, target], None)
    np.testing.assert_array_equal(target, [7, 7])


@pytest.mark.parametrize(
    "wrong", [np.zeros((1, 2), np.float32), np.zeros(2, np.float64)]
)
def test_nothing_is_written_unless_all_bound_arrays_fit(
    into: Callable[..., KernelSequence], wrong: np.ndarray
) -> None:
    target = np.full(2, 7, np.float32)
    with pytest.raises(OutputMismatch, match="output 0"):
        into().run([X, X], [wrong, target], None)
    assert seen == [None]
    np.testing.assert_array_equal(target, [7, 7])
    np.testing.assert_array_equal(wrong, np.zeros_like(wrong))


@pytest.mark.parametrize("form", ["strided", "misaligned"])
def test_a_kernel_gets_only_arrays_without_gaps(
    into: Callable[..., KernelSequence], form: str
) -> None:
    if form == "strided":
        target = np.zeros(4, np.float32)[::2]
    else:
        target = np.zeros(9, np.uint8)[1:].view(np.float32)
    into().run([X, X], [None, target], None)
    assert seen == [None]
    np.testing.assert_array_equal(target, [0, 0])


def test_numpy_does_not_convert_to_a_bound_array(
    into: Callable[..., KernelSequence],
) -> None:
    # the graph says two elements, and there is one, which would be stretched
    target = np.full(2, 7, np.float32)
    with pytest.raises(OutputMismatch):
        into(Add=np.subtract).run([X[:1], X[:1]], [target, None], None)
    np.testing.assert_array_equal(target, [7, 7])
