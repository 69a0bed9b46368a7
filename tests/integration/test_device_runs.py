"""Runs whose work is deferred: what they copy, when they return, who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, InvalidArgument, NodeError
from onnxplug.plugins import registry
from onnxplug.selection import SessionContext
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.simulated import Copy, Stage

SIMULATED = "SimulatedExecutionProvider"
MakeSimulated = Callable[..., SimulatedFactory]

STEP = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    step (float[1, 4] token, float[past, 4] cache)
        => (float[1, 4] next, float[all, 4] grown)
    {
        key = Tanh (token)
        grown = Concat <axis = 0> (cache, key)
        columns = Transpose <perm = [1, 0]> (grown)
        scores = MatMul (key, columns)
        shares = Softmax <axis = -1> (scores)
        next = MatMul (shares, grown)
    }
    """
)
DOUBLE = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    double (float[4] x) => (float[4] y) { y = Add (x, x) }
    """
)
X = np.arange(4, dtype=np.float32)


@pytest.fixture
def factory(simulated: MakeSimulated) -> SimulatedFactory:
    return simulated()


def on_device(array: np.ndarray) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "simulated")


def room(shape: list[int]) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_shape_and_type(
        shape, np.float32, "simulated"
    )


def bound(
    session: onnxplug.InferenceSession,
    inputs: dict[str, onnxplug.OrtValue],
    outputs: dict[str, onnxplug.OrtValue | None],
) -> onnxplug.IOBinding:
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, wanted in outputs.items():
        if wanted is None:
            binding.bind_output(name, "simulated")
        else:
            binding.bind_ortvalue_output(name, wanted)
    return binding


def taken(factory: SimulatedFactory) -> list[Copy]:
    """The copies since this was asked last."""
    copies = list(factory.transfer.copies)
    factory.transfer.copies.clear()
    return copies


# what is copied


def test_a_decoder_copies_its_token_and_its_answer_only(
    factory: SimulatedFactory,
) -> None:
    session = onnxplug.InferenceSession(STEP, providers=[SIMULATED])
    reference = ReferenceEvaluator(STEP)
    token = np.full((1, 4), 0.5, np.float32)
    wanted_cache = np.zeros((1, 4), np.float32)
    cache = on_device(wanted_cache)
    wanted_token = token
    for step in range(6):
        taken(factory)
        binding = session.io_binding()
        binding.bind_cpu_input("token", token)
        binding.bind_ortvalue_input("cache", cache)
        binding.bind_output("next")
        binding.bind_output("grown", "simulated")
        session.run_with_iobinding(binding)
        answer, cache = binding.get_outputs()
        copies = taken(factory)
        assert [(str(copy.target), copy.nbytes) for copy in copies] == [
            ("simulated:0", 16),
            ("host", 16),
        ]
        wanted_token, wanted_cache = reference.run(
            None, {"token": wanted_token, "cache": wanted_cache}
        )
        np.testing.assert_allclose(answer.numpy(), wanted_token, rtol=1e-5)
        token = answer.numpy()
        assert cache.shape() == [step + 2, 4]
    np.testing.assert_allclose(cache.numpy(), wanted_cache, rtol=1e-5)


LOOP = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    decode (int64 n, float[1, 4] first, float[4, 4] weight)
        => (float[1, 4] last, float[n, 1, 4] every)
    < bool go = {1}, float[1] most = {1000} >
    {
        start = Neg (first)
        last, every = Loop (n, go, start) <body = body
            (int64 i, bool before, float[1, 4] token)
                => (bool after, float[1, 4] next, float[1, 4] kept)
            {
                next = MatMul (token, weight)
                kept = Tanh (next)
                total = ReduceSum <keepdims = 0> (kept)
                after = Less (total, most)
            }
        >
    }
    """
)
LOOP_FEEDS = {
    "n": np.array(5),
    "first": np.linspace(-1, 1, 4, dtype=np.float32)[None],
    "weight": np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32) / 2,
}
NOT_ON_DEVICE = frozenset({"MatMul", "Tanh", "Neg", "Less", "ReduceSum"})


def test_an_iteration_copies_its_condition_only(simulated: MakeSimulated) -> None:
    factory = simulated(ops=NOT_ON_DEVICE)
    session = onnxplug.InferenceSession(LOOP, providers=[SIMULATED])
    last, every = session.run(None, LOOP_FEEDS)
    token, kept = -LOOP_FEEDS["first"], []
    for _ in range(5):
        token = token @ LOOP_FEEDS["weight"]
        kept.append(np.tanh(token))
    np.testing.assert_allclose(last, token, rtol=1e-4)
    np.testing.assert_allclose(every, np.stack(kept), rtol=1e-4)
    copies = taken(factory)
    # one condition each, and what is fed and returned once
    conditions = [copy for copy in copies if copy.shape == () or copy.nbytes <= 4]
    others = [copy for copy in copies if copy not in conditions]
    assert len(conditions) <= 5 + 1  # and the limit, which is captured
    assert sorted(copy.shape for copy in others) == [
        (1, 4),
        (1, 4),
        (4, 4),
        (5, 1, 4),
    ]


IF = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    choose (bool grow, float[4] x) => (float[4] y)
    {
        start = Neg (x)
        chosen = If (grow) <
            then_branch = more () => (float[4] t) { t = Add (start, start) },
            else_branch = same () => (float[4] e) { e = Tanh (start) }
        >
        y = Neg (chosen)
    }
    """
)


@pytest.mark.parametrize("grow", [True, False])
@pytest.mark.parametrize("ops", [{"Neg", "Add", "Tanh"}, {"Neg", "Add"}, {"Neg"}])
def test_a_branch_leaves_its_outputs_where_they_are(
    simulated: MakeSimulated, ops: set[str], grow: bool
) -> None:
    factory = simulated(ops=frozenset(ops))
    session = onnxplug.InferenceSession(IF, providers=[SIMULATED])
    feeds = {"grow": np.array(grow), "x": X}
    (found,) = session.run(None, feeds)
    (wanted,) = ReferenceEvaluator(IF).run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    copies = taken(factory)
    if len(ops) == 3:
        assert [copy.shape for copy in copies] == [(4,), (4,)]


SCAN = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    scan (float[4] first, float[3, 5, 4] items)
        => (float[4] last, float[3, 4, 5] every)
    {
        start = Neg (first)
        moved = Neg (items)
        last, every = Scan <num_scan_inputs = 1, scan_input_axes = [1],
                            scan_input_directions = [1], scan_output_axes = [-1],
            body = body (float[4] state, float[3, 4] item)
                => (float[4] next, float[3, 4] kept)
            {
                kept = Add (item, state)
                next = Tanh (state)
            }> (start, moved)
    }
    """
)


@pytest.mark.parametrize("ops", [{"Neg", "Add", "Tanh"}, {"Add"}, {"Tanh"}, {"Neg"}])
def test_scan_goes_through_what_is_on_the_device(
    simulated: MakeSimulated, ops: set[str]
) -> None:
    factory = simulated(ops=frozenset(ops))
    session = onnxplug.InferenceSession(SCAN, providers=[SIMULATED])
    numbers = np.random.default_rng(1)
    feeds = {
        "first": X,
        "items": numbers.normal(size=(3, 5, 4)).astype(np.float32),
    }
    last, every = session.run(None, feeds)
    state, kept = -X, []
    for index in reversed(range(5)):
        kept.append(-feeds["items"][:, index] + state)
        state = np.tanh(state)
    np.testing.assert_allclose(last, state, rtol=1e-5)
    np.testing.assert_allclose(every, np.stack(kept, axis=-1), rtol=1e-5)
    if len(ops) == 3:
        assert len(taken(factory)) == 4  # in and out, two of each


def test_a_loop_without_an_iteration_on_the_device(simulated: MakeSimulated) -> None:
    simulated(ops=NOT_ON_DEVICE)
    session = onnxplug.InferenceSession(LOOP, providers=[SIMULATED])
    last, every = session.run(None, LOOP_FEEDS | {"n": np.array(0)})
    np.testing.assert_array_equal(last, -LOOP_FEEDS["first"])
    assert every.shape == (0, 1, 4)


# when a run returns


def test_a_run_returns_before_its_work_is_done(factory: SimulatedFactory) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    binding = bound(session, {"x": on_device(X)}, {"y": None})
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    assert not value.ready
    value.wait()
    assert value.ready
    np.testing.assert_array_equal(value.numpy(), 2 * X)


def test_reading_waits(factory: SimulatedFactory) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    binding = bound(session, {"x": on_device(X)}, {"y": None})
    for _ in range(3):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 2 * X)


def test_a_host_input_may_be_changed_when_a_run_returned(
    factory: SimulatedFactory,
) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    array = X.copy()
    binding = session.io_binding()
    binding.bind_cpu_input("x", array)
    binding.bind_output("y", "simulated")
    session.run_with_iobinding(binding)
    array[:] = -1
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), 2 * X)


def test_an_input_is_overwritten_after_it_was_read(factory: SimulatedFactory) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    value = on_device(X)
    binding = bound(session, {"x": value}, {"y": None})
    session.run_with_iobinding(binding)
    value.update_inplace(-X)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), 2 * X)


def test_two_sessions_are_chained_without_the_host_waiting(
    factory: SimulatedFactory,
) -> None:
    first = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    second = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    one = bound(first, {"x": on_device(X)}, {"y": None})
    first.run_with_iobinding(one)
    (between,) = one.get_outputs()
    two = bound(second, {"x": between}, {"y": None})
    second.run_with_iobinding(two)
    (value,) = two.get_outputs()
    assert not between.ready and not value.ready
    np.testing.assert_array_equal(value.numpy(), 4 * X)


def test_a_value_dropped_while_another_session_reads_it(
    factory: SimulatedFactory,
) -> None:
    first = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    second = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    one = bound(first, {"x": on_device(X)}, {"y": None})
    first.run_with_iobinding(one)
    two = bound(second, {"x": one.get_outputs()[0]}, {"y": None})
    second.run_with_iobinding(two)
    two.clear_binding_inputs()
    del one
    # other work takes the memory that is free, and overwrites it
    for _ in range(3):
        other = bound(first, {"x": on_device(-X)}, {"y": None})
        first.run_with_iobinding(other)
    np.testing.assert_array_equal(two.get_outputs()[0].numpy(), 4 * X)


def test_an_output_of_one_run_is_the_input_of_the_next_in_turns(
    factory: SimulatedFactory,
) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    ping, pong = on_device(X), room([4])
    forth = bound(session, {"x": ping}, {"y": pong})
    back = bound(session, {"x": pong}, {"y": ping})
    for _ in range(3):
        session.run_with_iobinding(forth)
        session.run_with_iobinding(back)
    np.testing.assert_array_equal(ping.numpy(), 64 * X)


def test_closing_a_session_waits_for_its_work(factory: SimulatedFactory) -> None:
    with onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED]) as session:
        binding = bound(session, {"x": on_device(X)}, {"y": None})
        session.run_with_iobinding(binding)
        (value,) = binding.get_outputs()
        assert not value.ready
    assert value.ready
    np.testing.assert_array_equal(value.numpy(), 2 * X)


def test_a_value_of_device_memory_is_fed_to_run(factory: SimulatedFactory) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    np.testing.assert_array_equal(session.run(None, {"x": on_device(X)})[0], 2 * X)


# what fails


def test_a_failure_comes_out_where_the_result_is_waited_for(
    simulated: MakeSimulated,
) -> None:
    factory = simulated(fail_at=Stage.WORK)
    with onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED]) as session:
        binding = bound(session, {"x": on_device(X)}, {"y": None})
        session.run_with_iobinding(binding)
        (value,) = binding.get_outputs()
        for _ in range(2):
            with pytest.raises(EpError, match="told to fail at work") as caught:
                value.wait()
            assert (caught.value.ep, caught.value.stage) == (factory.name, "run")


@pytest.mark.parametrize("limit", [1, None])
def test_a_run_after_one_that_failed_has_other_streams(
    simulated: MakeSimulated, limit: int | None
) -> None:
    failures = [ZeroDivisionError("once")]

    def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        # what works out shapes beforehand gives zeros
        if x.any() and failures:
            raise failures.pop()
        return x + y

    simulated(kernels={"Add": add}, max_concurrent_runs=limit)
    with onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED]) as session:
        binding = bound(session, {"x": on_device(X)}, {"y": None})
        session.run_with_iobinding(binding)
        with pytest.raises(NodeError, match="once"):
            binding.get_outputs()[0].wait()
        for _ in range(3):
            session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 2 * X)


def test_a_run_on_what_failed_fails(simulated: MakeSimulated) -> None:
    simulated(fail_at=Stage.WORK)
    with onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED]) as session:
        binding = bound(session, {"x": on_device(X)}, {"y": None})
        session.run_with_iobinding(binding)
        onward = session.io_binding()
        onward.bind_ortvalue_input("x", binding.get_outputs()[0])
        onward.bind_output("y")
        with pytest.raises(EpError, match="told to fail at work"):
            session.run_with_iobinding(onward)


# who owns a memory


@pytest.fixture
def two_owners() -> Iterator[tuple[SimulatedFactory, SimulatedFactory]]:
    first = SimulatedFactory(Knobs())
    second = SimulatedFactory(Knobs(name="OtherExecutionProvider"))
    second.memory_spaces = first.memory_spaces
    registry.add(first)
    registry.add(second)
    yield first, second
    registry.remove(first.name)
    registry.remove(second.name)


def test_two_factories_that_own_a_memory_are_named(
    two_owners: tuple[SimulatedFactory, SimulatedFactory],
) -> None:
    with pytest.raises(
        EpError, match="OtherExecutionProvider and SimulatedExecutionProvider both own"
    ):
        onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    with pytest.raises(InvalidArgument, match="both own the memory 'simulated'"):
        on_device(X)


@pytest.mark.parametrize("guest_first", [True, False])
def test_who_has_a_memory_to_spare_leaves_it_to_its_owner(guest_first: bool) -> None:
    owner = SimulatedFactory(Knobs(ops=frozenset({"Add"})))
    guest = SimulatedFactory(
        Knobs(name="GuestExecutionProvider", shares="simulated", spare=True)
    )
    for factory in (guest, owner) if guest_first else (owner, guest):
        registry.add(factory)
    try:
        model = onnx.parser.parse_model(
            """
            < ir_version: 10, opset_import: ["" : 21] >
            agraph (float[4] x) => (float[4] y) { two = Add (x, x) y = Neg (two) }
            """
        )
        session = onnxplug.InferenceSession(model, providers=[owner.name, guest.name])
        assert {node.ep for node in session.explain().nodes} == {owner.name, guest.name}
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], -2 * X)
        assert len(owner.contexts) == 1 and not guest.contexts
        # what one leaves in the memory the other reads there
        assert len(owner.transfer.copies) == 2
    finally:
        registry.remove(owner.name)
        registry.remove(guest.name)


def test_who_has_a_memory_to_spare_makes_it_where_nobody_owns_it() -> None:
    names = "BirdExecutionProvider", "AntExecutionProvider"
    guests = [
        SimulatedFactory(Knobs(name=name, shares="simulated", spare=True))
        for name in names
    ]
    for factory in guests:
        registry.add(factory)
    try:
        session = onnxplug.InferenceSession(DOUBLE, providers=[names[0]])
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)
        assert [len(guest.contexts) for guest in guests] == [0, 1]
        np.testing.assert_array_equal(on_device(X).numpy(), X)
    finally:
        for name in names:
            registry.remove(name)


def test_weights_are_shared_by_all_sessions_on_a_device(
    simulated: MakeSimulated,
) -> None:
    simulated()
    simulated(name="OtherExecutionProvider")
    here, there = ep.MemoryLocation("simulated", 0), ep.MemoryLocation("other", 0)
    source = ep.WeightSource("key", None, 0, 16)

    def get(location: ep.MemoryLocation) -> object:
        session = SessionContext(None, 0, {}, registry)
        return session.weights(location).get(source, "plain", lambda: on_device(X))

    made, other, on_host = get(here), get(there), get(ep.HOST)
    assert get(here) is made
    assert len({id(each) for each in (made, other, on_host)}) == 3


# streams of the user's


def test_a_stream_of_the_users_is_used_and_left_open(
    factory: SimulatedFactory,
) -> None:
    owned = registry.contexts.at(ep.MemoryLocation("simulated", 0))
    mine = owned.context.create_stream()
    assert mine is not None
    session = onnxplug.InferenceSession(
        DOUBLE,
        providers=[(SIMULATED, {"user_compute_stream": mine.native_handle})],
    )
    binding = bound(session, {"x": on_device(X)}, {"y": None})
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    assert not value.ready
    mine.synchronize()
    assert value.ready
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)
    del binding
    session.close()
    mine.record()  # still open
    mine.synchronize()
    mine.close()


# DLPack


def test_values_of_a_device_are_exchanged(factory: SimulatedFactory) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    binding = bound(session, {"x": on_device(X)}, {"y": None})
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    shared = onnxplug.OrtValue.from_dlpack(value)
    assert shared.device_name() == "simulated"
    assert not shared.ready
    np.testing.assert_array_equal(shared.numpy(), 2 * X)
    # both have the same memory
    shared.update_inplace(X)
    np.testing.assert_array_equal(value.numpy(), X)


def test_a_run_that_fills_what_others_can_read_is_done_when_it_returns(
    factory: SimulatedFactory,
) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    filled = room([4])
    other = onnxplug.OrtValue.from_dlpack(filled)
    binding = bound(session, {"x": on_device(X)}, {"y": filled})
    session.run_with_iobinding(binding)
    assert filled.ready
    np.testing.assert_array_equal(other.numpy(), 2 * X)
    options = onnxplug.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    session.run_with_iobinding(binding, options)
    assert not filled.ready
    binding.synchronize_outputs()
    np.testing.assert_array_equal(other.numpy(), 2 * X)
