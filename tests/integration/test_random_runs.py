"""Random models with control flow on two EPs, mostly of one device, and the CPU EP.

The device's work is deferred, late or by threads; whatever the runs are bound to, and
whoever else runs, the results are those of ONNX Runtime.
"""

from __future__ import annotations

import contextlib
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, EpWarning, RunCancelled, SessionRefused
from onnxplug.plugins import registry
from onnxplug.run.device import Device
from onnxplug.run.run import Run
from onnxplug.run.streams import Streams
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.random_models import MATRIX, RandomModel, draw_model

SCHEDULES = ("late", "threaded")
CHUNK = 20
CHUNKS = [
    pytest.param(chunk, marks=[pytest.mark.exhaustive] if chunk >= 3 else [])
    for chunk in range(20)
]
"""Of so many models each."""
OPERATORS = Knobs().ops | {"ReduceSum"}
MakeSimulated = Callable[..., SimulatedFactory]
Feeds = Mapping[str, np.ndarray]


class Oracle:
    """What ONNX Runtime computes."""

    def __init__(self, case: RandomModel) -> None:
        self._session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self.inputs = [arg.name for arg in self._session.get_inputs()]

    def run(self, feeds: Feeds) -> list[np.ndarray]:
        return self._session.run(None, {name: feeds[name] for name in self.inputs})


def assert_right(
    found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], what: str
) -> None:
    for have, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-4, err_msg=what)


@contextlib.contextmanager
def opened(
    seed: int, case: RandomModel, simulated: MakeSimulated, schedule: str
) -> Iterator[onnxplug.InferenceSession]:
    """A session on two EPs and the CPU EP.

    The first has the memory ``first<seed>``; the second works there, or has its own.
    """
    draw = random.Random(seed)
    names = [f"First{seed}ExecutionProvider", f"Second{seed}ExecutionProvider"]
    # what a device can do besides, and has in its own way
    device = {
        "stacks": draw.random() < 0.7,
        "pinned": draw.random() < 0.5,
        "foreign_events": draw.random() < 0.5,
        "own_dtypes": draw.choice([frozenset(), frozenset({ep.DataType.FLOAT32})]),
    }
    second_in = f"first{seed}" if draw.random() < 0.7 else ""
    for name, shares in zip(names, ("", second_in), strict=True):
        simulated(
            name=name,
            shares=shares,
            schedule=schedule,
            **device,
            seed=draw.choice([None, seed]) if schedule == "late" else seed,
            ops=OPERATORS,
            claim_probability=draw.choice([0.4, 0.8, 1.0]),
            max_concurrent_runs=draw.choice([1, None]),
        )
    with contextlib.ExitStack() as ends:
        options: dict[str, object] = {}
        if draw.random() < 0.2:
            location = ep.MemoryLocation(f"first{seed}", 0)
            owned = registry.contexts.at(location)
            stream = owned.context.create_stream()
            assert stream is not None
            ends.callback(lambda owned: None, owned)  # which is open until then
            ends.callback(stream.close)
            options["user_compute_stream"] = stream.native_handle
        with warnings.catch_warnings():
            # by chance an EP may end with nothing
            warnings.simplefilter("ignore", EpWarning)
            session = onnxplug.InferenceSession(
                case.model, providers=[(names[0], options), names[1]]
            )
        yield ends.enter_context(session)


def run_bound(
    draw: random.Random,
    session: onnxplug.InferenceSession,
    feeds: Feeds,
    kept: Mapping[str, onnxplug.OrtValue],
    space: str,
) -> onnxplug.IOBinding:
    """A run with inputs and outputs on the host and in *space*.

    Args:
        kept: values on the device to feed, by the names of inputs.
    """
    binding = session.io_binding()
    for arg in session.get_inputs():
        if arg.name in kept:
            binding.bind_ortvalue_input(arg.name, kept[arg.name])
        elif draw.random() < 0.5:
            value = onnxplug.OrtValue.ortvalue_from_numpy(feeds[arg.name], space)
            binding.bind_ortvalue_input(arg.name, value)
        else:
            binding.bind_cpu_input(arg.name, feeds[arg.name].copy())
    for arg in session.get_outputs():
        if draw.random() < 0.3 and arg.shape == list(MATRIX):
            value = onnxplug.OrtValue.ortvalue_from_shape_and_type(
                MATRIX, np.float32, space
            )
            binding.bind_ortvalue_output(arg.name, value)
        else:
            binding.bind_output(arg.name, draw.choice([space, "cpu"]))
    session.run_with_iobinding(binding)
    return binding


def check_chain(
    seed: int, session: onnxplug.InferenceSession, oracle: Oracle, feeds: Feeds
) -> None:
    """Runs of which each takes what the one before may not have made yet."""
    draw, fed = random.Random(seed), dict(feeds)
    kept: dict[str, onnxplug.OrtValue] = {}
    done = []
    for _ in range(3):
        binding = run_bound(draw, session, fed, kept, f"first{seed}")
        wanted = oracle.run(fed)
        done.append((binding, wanted))
        kept = {"in0": binding.get_outputs()[0]}
        fed["in0"] = wanted[0]
    for binding, wanted in reversed(done):
        assert_right(binding.copy_outputs_to_cpu(), wanted, f"chain of {seed}")


def check_threads(
    seed: int, session: onnxplug.InferenceSession, oracle: Oracle, feeds: Feeds
) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        draw = random.Random(f"{seed} {number}")
        fed = {**feeds, "in0": feeds["in0"] * np.float32(number / 3)}
        try:
            wanted = oracle.run(fed)
            for _ in range(2):
                binding = run_bound(draw, session, fed, {}, f"first{seed}")
                assert_right(binding.copy_outputs_to_cpu(), wanted, f"thread of {seed}")
                assert_right(session.run(None, pick(session, fed)), wanted, f"{seed}")
        except BaseException as error:  # noqa: BLE001 - the test's failure
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def check_dropped(
    seed: int, session: onnxplug.InferenceSession, oracle: Oracle, feeds: Feeds
) -> None:
    """Runs whose inputs are dropped at once, and whose memory others take."""
    space, draw = f"first{seed}", random.Random(seed)
    wanted = oracle.run(feeds)
    kept = {
        name: onnxplug.OrtValue.ortvalue_from_numpy(feeds[name], space)
        for name in pick(session, feeds)
    }
    binding = run_bound(draw, session, feeds, kept, space)
    kept.clear()
    binding.clear_binding_inputs()
    for _ in range(3):
        onnxplug.OrtValue.ortvalue_from_numpy(np.full(MATRIX, 7, np.float32), space)
    assert_right(binding.copy_outputs_to_cpu(), wanted, f"dropped {seed}")


def check_closed(
    seed: int, session: onnxplug.InferenceSession, oracle: Oracle, feeds: Feeds
) -> None:
    """A run of a session that is closed while its work is queued."""
    binding = run_bound(random.Random(seed), session, feeds, {}, f"first{seed}")
    session.close()
    assert_right(binding.copy_outputs_to_cpu(), oracle.run(feeds), f"closed {seed}")


def pick(session: onnxplug.InferenceSession, feeds: Feeds) -> dict[str, np.ndarray]:
    return {arg.name: feeds[arg.name] for arg in session.get_inputs()}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_random_models_run_right(
    simulated: MakeSimulated, schedule: str, chunk: int
) -> None:
    on_device = 0
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        case = draw_model(seed)
        oracle = Oracle(case)
        wanted = oracle.run(case.feeds)
        with opened(seed, case, simulated, schedule) as session:
            fed = pick(session, case.feeds)
            on_device += sum(
                node.ep.startswith(("First", "Second"))
                for node in session.explain().nodes
            )
            for _ in range(2):
                assert_right(session.run(None, fed), wanted, f"model {seed}")
            check_chain(seed, session, oracle, case.feeds)
            if seed % 2:
                check_dropped(seed, session, oracle, case.feeds)
            if seed % 8 == 0:
                check_threads(seed, session, oracle, case.feeds)
            if seed % 4 == 1 and session.explain().partitions:
                options = onnxplug.RunOptions()
                options.timeout = 0
                with pytest.raises(RunCancelled):
                    session.run(None, fed, options)
                assert_right(session.run(None, fed), wanted, f"cancelled {seed}")
            check_closed(seed, session, oracle, case.feeds)
    assert on_device > CHUNK


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_random_models_are_captured_and_replayed(
    simulated: MakeSimulated, schedule: str
) -> None:
    refused = 0
    for seed in range(CHUNK):
        case = draw_model(seed, control_flow=False)
        oracle = Oracle(case)
        draw = random.Random(seed)
        names = [f"First{seed}ExecutionProvider", f"Second{seed}ExecutionProvider"]
        for name, shares in zip(names, ("", f"first{seed}"), strict=True):
            simulated(
                name=name,
                shares=shares,
                schedule=schedule,
                seed=seed,
                captures=True,
                claim_probability=1.0 if shares else 0.5,
                max_concurrent_runs=draw.choice([1, None]),
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EpWarning)
            options = {"enable_graph_capture": True}
            providers = [(name, options) for name in names]
            try:
                session = onnxplug.InferenceSession(case.model, providers=providers)
            except SessionRefused as error:
                # of weights only, and therefore computed beforehand
                assert "is an input or a constant" in str(error)
                refused += 1
                continue
        with session:
            space = f"first{seed}"
            fed = {
                name: onnxplug.OrtValue.ortvalue_from_numpy(case.feeds[name], space)
                for name in oracle.inputs
            }
            binding = session.io_binding()
            for name, value in fed.items():
                binding.bind_ortvalue_input(name, value)
            for arg in session.get_outputs():
                value = onnxplug.OrtValue.ortvalue_from_shape_and_type(
                    MATRIX, np.float32, space
                )
                binding.bind_ortvalue_output(arg.name, value)
            for step in range(5):
                feeds = {
                    name: case.feeds[name] * np.float32(1 - step / 4)
                    for name in oracle.inputs
                }
                for name, value in fed.items():
                    value.update_inplace(feeds[name])
                session.run_with_iobinding(binding)
                found = binding.copy_outputs_to_cpu()
                assert_right(found, oracle.run(feeds), f"model {seed}, step {step}")
    assert refused < CHUNK // 4


# mistakes of the host, which the device is to show


def no_wait(self: object, stream: object, event: object) -> None:
    """Streams do not wait for each other."""


def wait_for_nothing(self: object, value: object) -> object:
    """Nobody waits for copies to the host."""
    return value


def keep_nothing(self: object, arrays: object, events: object) -> None:
    """What queued work uses is dropped."""


def close_early(self: Streams) -> None:
    """Streams are closed while they have work."""
    made, self._streams = self._streams, {}
    for stream in made.values():
        if stream is not None:
            stream.close()


MISTAKES = [
    (Device, "wait", no_wait),
    (Run, "wait_for", wait_for_nothing),
    (Streams, "keep", keep_nothing),
    (Streams, "close", close_early),
]


@pytest.mark.parametrize(
    ("owner", "method", "mistake", "schedule"),
    [
        pytest.param(*mistake, schedule, id=f"{mistake[2].__name__}-{schedule}")
        for mistake in MISTAKES
        for schedule in SCHEDULES
        # threads may have done all their work before their stream is closed
        if (mistake[2], schedule) != (close_early, "threaded")
    ],
)
def test_a_mistake_of_the_host_shows(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    mistake: Callable[..., object],
    schedule: str,
) -> None:
    known: list[str] = []

    def simulated(**knobs: Any) -> SimulatedFactory:
        # not the fixture, for streams are left open
        factory = SimulatedFactory(Knobs(**knobs))
        registry.add(factory)
        known.append(factory.name)
        return factory

    def use() -> None:
        for seed in range(40):
            case = draw_model(seed)
            oracle = Oracle(case)
            with opened(seed, case, simulated, schedule) as session:
                check_dropped(seed, session, oracle, case.feeds)
                check_chain(seed, session, oracle, case.feeds)
                check_threads(seed, session, oracle, case.feeds)
                check_closed(seed, session, oracle, case.feeds)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, mistake)
            with pytest.raises((AssertionError, EpError, RuntimeError)):
                use()
    finally:
        for name in known:
            registry.remove(name)
