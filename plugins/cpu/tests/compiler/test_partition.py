"""Partitions of the compiled tier while they run: shapes, bound outputs, threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.errors import LoadCancelled, NodeError, OutputMismatch, RunCancelled
from onnxplug_compiler.frontend.call import NotCompiled
from onnxplug_compiler.schedule.planner import Planner
from onnxplug_cpu.compiler import segment, variants
from onnxplug_cpu.compiler.kernels.normalization import commands as rows
from onnxplug_cpu.compiler.partition import MOST_IN_VAIN
from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable, Library

from .differential import COMPILE, session
from .lowered import events, graph, lowered, random

BLOCK = """
    h = MatMul (x, w) a = Add (h, b) s = Shape (x) n = Gather (s, zero)
    n1 = Unsqueeze (n, first) t = Concat <axis = 0> (n1, rest)
    r = Reshape (a, t) p = Transpose <perm = [0, 2, 1, 3]> (r)
    q = Softmax (p) u = Transpose <perm = [0, 2, 1, 3]> (q) y = Reshape (u, s)
"""
CONSTANTS = "int64 zero = {0}, int64[1] first = {0}, int64[3] rest = {-1, 2, 4}"
TEXT = graph(
    "float[B, S, 8] x, float[8, 8] w, float[8] b", "float[] y", BLOCK, CONSTANTS
)
W, BIAS = random((8, 8), (8,))


def feeds(batch: int, length: int, seed: int = 0) -> dict[str, Any]:
    return {"x": random((batch, length, 8), seed=seed)[0], "w": W, "b": BIAS}


# shapes


def test_new_shapes_give_what_a_fresh_session_gives() -> None:
    found = lowered(TEXT)
    for batch, length in ((1, 5), (2, 5), (1, 5), (3, 1), (0, 4), (2, 0), (2, 33)):
        (result,) = found.check(*feeds(batch, length).values())
        (fresh,) = lowered(TEXT).session.run(None, feeds(batch, length))
        np.testing.assert_array_equal(result, fresh)


def test_the_plans_of_the_latest_shapes_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment, "MIN_PLANS", 3)
    monkeypatch.setattr(segment, "MAX_COMMANDS", 0)
    lengths = (1, 2, 3, 1, 4, 1, 3, 2)
    # 2 is the one that was not used for longest when 4 comes
    assert planned(TEXT, lengths) == [1, 2, 3, 4, 2]
    found = lowered(TEXT)
    for length in lengths:
        found.check(*feeds(1, length).values())


def test_a_small_network_keeps_the_plans_of_many_shapes() -> None:
    lengths = [*range(1, 41), *range(40, 0, -1)]
    assert planned(TEXT, lengths) == lengths[:40]


def planned(text: str, lengths: Sequence[int]) -> list[int]:
    """The lengths for which runs of these make a plan, as a profile tells it."""
    model = onnx.parser.parse_model(text)
    return [
        event["args"]["inputs"]["x"][1]
        for event in events(model, [feeds(1, length) for length in lengths])
        if event["name"] == "plan for new shapes"
    ]


def test_static_shapes_are_planned_when_the_session_opens() -> None:
    assert planned(TEXT, [3]) == [3]
    assert planned(TEXT.replace("[B, S, 8]", "[1, 3, 8]"), [3]) == []


ROWS = graph("float[A, 4] x", "float[] y", "e = Softmax (x) y = Softmax (e)")


@contextmanager
def while_planning(act: Callable[[], object]) -> Iterator[list[Any]]:
    """A context in which something happens whenever a softmax is planned; gives those
    that were."""
    record = rows.record_softmax
    seen: list[Any] = []

    def acting(*arguments: Any, **named: Any) -> None:
        act()
        seen.append(arguments)
        record(*arguments, **named)

    with mock.patch.object(rows, "record_softmax", acting):
        yield seen


def test_planning_ends_when_the_session_is_not_wanted() -> None:
    options = onnxplug.SessionOptions()
    model = onnx.parser.parse_model(ROWS.replace("A", "3"))
    with (
        while_planning(lambda: options.set_load_cancellation_flag(True)) as seen,
        pytest.raises(LoadCancelled, match="set_load_cancellation_flag"),
    ):
        onnxplug.InferenceSession(model, options)
    assert len(seen) == 1


def test_planning_ends_when_the_run_is_cancelled() -> None:
    found = lowered(ROWS)
    (x,) = random((3, 4))
    options = onnxplug.RunOptions()
    with while_planning(lambda: setattr(options, "terminate", True)) as seen:
        with pytest.raises(RunCancelled):
            found.session.run(None, {"x": x}, options)
        assert len(seen) == 1
        found.check(x)
        assert len(seen) == 2  # what was recorded is not recorded again


def test_inputs_that_are_not_in_order_are_copied() -> None:
    found = lowered(TEXT)
    x = random((8, 5, 2))[0].T
    backwards = W[::-1, ::-1]
    found.check(x, backwards, BIAS)
    found.check(x, backwards.astype(np.float32), BIAS)


# bound outputs


TWO = graph("float[A] x", "float[] y, float[] z", "y = Exp (x) z = Neg (x)")


def test_bound_outputs_are_filled() -> None:
    (partition,) = lowered(TEXT).partitions
    given = list(feeds(2, 3).values())
    (expected,) = partition.run(given, [None], None)
    whole = np.full((4, 3, 8), 7, np.float32)
    for target in (
        whole[:2],
        whole[::2],
        np.empty((3, 2, 8), np.float32).swapaxes(0, 1),
        np.frombuffer(bytearray(193), np.float32, 48, 1).reshape(2, 3, 8),
    ):
        (result,) = partition.run(given, [target], None)
        assert result is target
        np.testing.assert_array_equal(target, expected)
    assert (whole[3] == 7).all()


def test_some_outputs_are_bound_and_others_are_not() -> None:
    (partition,) = lowered(TWO).partitions
    x = random((5,))[0]
    target = np.empty(5, np.float32)
    y, z = partition.run([x], [None, target], None)
    assert z is target
    np.testing.assert_array_equal(z, -x)
    assert not np.shares_memory(y, z)


@pytest.mark.parametrize(
    "wrong", [np.empty(4, np.float32), np.empty((5, 1), np.float32), np.empty(5)]
)
def test_nothing_is_written_when_a_bound_output_does_not_fit(wrong: Any) -> None:
    (partition,) = lowered(TWO).partitions
    right = np.full(5, 7, np.float32)
    for outputs in ([right, wrong], [wrong, right]):
        with pytest.raises(OutputMismatch, match="bind an array of the same"):
            partition.run([random((5,))[0]], outputs, None)
    assert (right == 7).all()


def test_an_output_that_is_bound_to_an_input() -> None:
    runner = session(onnx.parser.parse_model(TWO), compiled=True)
    x = random((5,))[0]
    expected = np.exp(x), -x
    value = onnxplug.OrtValue.ortvalue_from_numpy(x)
    binding = runner.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", value)
    binding.bind_output("z")
    runner.run_with_iobinding(binding)
    y, z = (found.numpy() for found in binding.get_outputs())
    np.testing.assert_allclose(y, expected[0], 1e-6)
    np.testing.assert_array_equal(z, expected[1])


# what is not compiled


FOR_SOME = "on arrays for inputs of some shapes"


def refuse_softmax_of(count: int) -> Any:
    """A patch: softmax has no kernel for so many rows."""
    record = rows.record_softmax

    def refuse(recorder: Any, x: Any, out: Any, **rest: Any) -> None:
        if x.shape[-2] == count:
            raise ValueError(f"there is no kernel for {count} rows")
        record(recorder, x, out, **rest)

    return mock.patch.object(rows, "record_softmax", refuse)


def test_a_call_that_is_not_compiled_for_some_shape_is_on_arrays_then() -> None:
    with refuse_softmax_of(3):
        found = lowered(TEXT)
        found.check(*feeds(1, 5).values())
        assert "array" not in found.tiers()
        for sizes in ((1, 3), (2, 3), (2, 5), (1, 3)):
            found.check(*feeds(*sizes).values())
            assert "array" not in found.tiers()
            (note,) = found.notes()
            assert note == f"{FOR_SOME}: there is no kernel for 3 rows"
    with mock.patch.object(Planner, "make", side_effect=AssertionError("planned")):
        found.check(*feeds(1, 3).values())
        found.check(*feeds(2, 5).values())


def test_a_call_that_is_compiled_for_no_shape_is_not_tried_for_ever() -> None:
    with refuse_softmax_of(3):
        found = lowered(TEXT)
        for batch in range(1, MOST_IN_VAIN + 1):
            assert "array" not in found.tiers()
            found.check(*feeds(batch, 3).values())
    assert found.tiers()["array"] == 1
    assert found.notes() == ["there is no kernel for 3 rows"]
    found.check(*feeds(1, 5).values())


def test_what_is_kept_of_refusals_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "MOST_APART", 2)
    monkeypatch.setattr(variants, "MOST_VARIANTS", 1)
    with refuse_softmax_of(3):
        found = lowered(TEXT)
        for batch, length in ((1, 5), (1, 3), (2, 3), (3, 3), (4, 3), (1, 3), (1, 5)):
            found.check(*feeds(batch, length).values())
    assert "array" not in found.tiers()


def test_a_call_that_is_never_compiled_is_found_when_the_session_opens() -> None:
    with refuse_softmax_of(3):
        found = lowered(TEXT.replace("[B, S, 8]", "[2, 3, 8]"))
    assert found.tiers()["array"] == 1
    assert found.notes() == ["there is no kernel for 3 rows"]
    found.check(*feeds(2, 3).values())


def test_a_shape_that_is_an_error_is_told_as_the_array_tier_tells_it() -> None:
    text = graph("float[A, B] x, float[C, D] w", "float[] y", "y = MatMul (x, w)")
    found = lowered(text)
    good, wrong = random((2, 3), (4, 5))
    for runner in (found.expected, found.session):
        with pytest.raises(NodeError, match="MatMul giving 'y'"):
            runner.run(None, {"x": good, "w": wrong})
    assert found.tiers() == {"compiled": 1}
    found.check(*random((2, 3), (3, 5)))


@pytest.mark.parametrize("more", ["", " n = NonZero (y)"])
def test_a_shape_that_is_an_error_costs_other_shapes_nothing(more: str) -> None:
    outputs = "float[] y" + (", int64[] n" if more else "")
    body = "m = MatMul (x, w) s = Softmax (m) y = Add (s, b)" + more
    text = graph("float[A, B] x, float[C, D] w, float[E] b", outputs, body)
    found = lowered(text)
    tiers, notes = found.tiers(), found.notes()
    found.check(*random((2, 3), (3, 5), (5,)))
    for shapes in (
        ((2, 3), (4, 5), (5,)),
        ((2, 3), (3, 5), (4,)),
        ((2, 3), (4, 5), (4,)),
    ):
        wrong = dict(zip("xwb", random(*shapes), strict=True))
        for runner in (found.expected, found.session):
            with pytest.raises(NodeError):
                runner.run(None, wrong)
        assert found.tiers() == tiers
        assert found.notes() == notes
        found.check(*random((2, 3), (3, 5), (5,)))
    found.check(*random((4, 3), (3, 7), (7,)))
    assert found.tiers() == tiers


def test_machine_code_that_is_unavailable_changes_nothing_but_the_speed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(COMPILE, "oFF")  # each reason is told once in a process
    model = onnx.parser.parse_model(TEXT)
    with caplog.at_level(logging.WARNING, "onnxplug.cpu"):
        slow = [onnxplug.InferenceSession(model) for _ in range(2)]
    assert len(caplog.records) == 1
    assert f"{COMPILE}=oFF turns compiled code off" in caplog.text
    for runner in slow:
        assert "compiled" not in runner.explain().partitions[0].tiers
    fast = session(model, compiled=True)
    for given in (feeds(1, 3), feeds(2, 5)):
        (expected,) = slow[0].run(None, given)
        (result,) = fast.run(None, given)
        np.testing.assert_allclose(result, expected, 1e-5, 1e-6)


def test_a_kernel_that_is_unavailable_when_the_session_opens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = TEXT.replace("[B, S, 8]", "[2, 3, 8]")
    unavailable = KernelUnavailable("none when it opens")
    with (
        mock.patch.object(Library, "addresses", side_effect=unavailable),
        caplog.at_level(logging.WARNING, "onnxplug.cpu"),
    ):
        found = lowered(text)
    assert "the CPU EP computes on numpy arrays: none when it opens" in caplog.text
    found.check(*feeds(2, 3).values())


def test_a_kernel_that_is_unavailable_for_new_shapes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = lowered(TEXT)
    found.check(*feeds(1, 3).values())
    unavailable = KernelUnavailable("none for new shapes")
    with (
        mock.patch.object(Library, "addresses", side_effect=unavailable),
        caplog.at_level(logging.WARNING, "onnxplug.cpu"),
    ):
        found.check(*feeds(2, 5).values())
        found.check(*feeds(2, 6).values())
    assert caplog.text.count("on numpy arrays: none for new shapes") == 1
    assert set(found.tiers()) == {"array"}
    found.check(*feeds(1, 3).values())


# errors of a run


@pytest.mark.parametrize("index", [-4, 3, 2**40, -(2**62)])
@pytest.mark.parametrize("more", ["", " n = NonZero (y)"])
def test_an_index_out_of_range_is_told_with_its_node(index: int, more: str) -> None:
    outputs = "float[] y" + (", int64[] n" if more else "")
    body = "e = Exp (x) g = Gather (e, i) y = Neg (g)" + more
    found = lowered(graph("float[3, 4] x, int64[A] i", outputs, body))
    x = random((3, 4))[0]
    found.check(x, np.array([0, -1, 2, -3]))
    for runner in (found.expected, found.session):
        with pytest.raises(NodeError, match="Gather giving 'g'") as caught:
            runner.run(None, {"x": x, "i": np.array([0, index])})
        assert str(index) in str(caught.value)
    found.check(x, np.array([0, -1, 2, -3]))


def test_an_index_out_of_range_that_is_a_constant() -> None:
    body = "e = Exp (x) g = Gather (e, i) y = Neg (g)"
    text = graph("float[A, 4] x", "float[] y", body, "int64 i = {2}")
    found = lowered(text)
    found.check(random((3, 4))[0])
    for runner in (found.expected, found.session):
        with pytest.raises(NodeError, match="Gather giving 'g'"):
            runner.run(None, {"x": random((2, 4))[0]})


# threads


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("body", [BLOCK, BLOCK + " k = NonZero (h)"])
def test_threads_run_different_shapes_at_once(workers: int, body: str) -> None:
    outputs = "float[] y" + (", int64[] k" if "k =" in body else "")
    text = graph(
        "float[B, S, 8] x, float[8, 8] w, float[8] b", outputs, body, CONSTANTS
    )
    found = lowered(text, threads=workers)
    cases = [feeds(1 + n % 3, 3 + n, seed=n) for n in range(6)]
    expected = [found.expected.run(None, case) for case in cases]
    errors: list[BaseException] = []
    together = threading.Barrier(len(cases))

    def work(number: int) -> None:
        try:
            together.wait()
            for turn in range(12):
                which = (number + turn) % len(cases) if turn % 3 == 2 else number
                results = found.session.run(None, cases[which])
                for one, other in zip(results, expected[which], strict=True):
                    np.testing.assert_allclose(one, other, 1e-5, 1e-5)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_a_call_is_refused_while_others_run() -> None:
    with refuse_softmax_of(4):
        found = lowered(TEXT)
        cases = [feeds(1, 3 + n) for n in range(4)]
        expected = [found.expected.run(None, case)[0] for case in cases]
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for _ in range(10):
                    (result,) = found.session.run(None, cases[number])
                    np.testing.assert_allclose(result, expected[number], 1e-5, 1e-5)
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors[0]
    assert found.notes() == [f"{FOR_SOME}: there is no kernel for 4 rows"]


def test_a_refusal_of_nothing_in_particular_is_an_error() -> None:
    with (
        mock.patch.object(Library, "addresses", side_effect=NotCompiled("no")),
        pytest.raises(onnxplug.errors.OnnxplugError, match="no"),
    ):
        lowered(TEXT.replace("[B, S, 8]", "[2, 3, 8]"))


# shapes of what is not fed to kernels


def test_the_shape_of_strings_and_of_what_arrays_give() -> None:
    body = (
        "s = Shape (t) r = Reshape (x, s) n = NonZero (x) m = Shape (n) "
        "k = Cast <to = 1> (m) y = Exp (r) z = Mul (y, f) f = ReduceSum (k)"
    )
    body = body.replace("z = Mul (y, f) f = ReduceSum (k)", "")
    body += "f = ReduceSum <keepdims = 0> (k) z = Mul (y, f)"
    text = graph("float[A] x, string[B, C] t", "float[] z", body)
    found = lowered(text)
    found.check(random((6,))[0], np.full((2, 3), "a", object))
    found.check(random((6,))[0], np.full((3, 2), "b", object))
