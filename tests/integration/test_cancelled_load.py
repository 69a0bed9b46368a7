"""Sessions that are not wanted any more while they are made."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import HostFunction
from onnxplug.errors import LoadCancelled, ModelLoadCanceled
from onnxplug.plugins import registry
from onnxplug_testing import ToyFactory

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[2] x) => (float[2] y)
    { a = Neg (x) b = Abs (a) c = Neg (b) y = Abs (c) }
    """
)


class Interrupting(ep.ExecutionProvider):
    """Compiles each Neg alone, and does something before the second."""

    def __init__(self, act: Callable[[ep.Partition], None]) -> None:
        self.act = act
        self.compiled = 0
        self.closed: list[str] = []

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        other = ep.Reason(ep.RefusalCode.OP)
        return ep.CapabilityReport.per_node(
            graph, lambda node: None if node.op_type == "Neg" else other
        )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        provider = self
        self.compiled += 1
        if self.compiled == 2:
            self.act(partition)

        class Negative(HostFunction):
            def close(self) -> None:
                provider.closed.append("partition")

        return Negative(lambda x: -x)

    def close(self) -> None:
        self.closed.append("ep")


class InterruptingFactory(ToyFactory):
    name = "InterruptingExecutionProvider"

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> Any:
        self.made = Interrupting(self.act)
        return self.made

    def act(self, partition: ep.Partition) -> None:
        """Do nothing."""


@pytest.fixture
def interrupting() -> Iterator[InterruptingFactory]:
    factory = InterruptingFactory()
    registry.add(factory)
    yield factory
    registry.remove(factory.name)


def make(options: onnxplug.SessionOptions) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(
        MODEL, options, providers=[InterruptingFactory.name]
    )


def test_a_flag_that_is_up_ends_the_making_at_once(
    interrupting: InterruptingFactory,
) -> None:
    options = onnxplug.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(LoadCancelled, match="set_load_cancellation_flag") as caught:
        make(options)
    assert isinstance(caught.value, ModelLoadCanceled)
    assert caught.value.code == 12
    assert not hasattr(interrupting, "made")
    options.set_load_cancellation_flag(False)
    make(options).close()


def test_between_partitions_the_flag_is_looked_at_and_everything_closed(
    interrupting: InterruptingFactory,
) -> None:
    options = onnxplug.SessionOptions()
    interrupting.act = lambda partition: options.set_load_cancellation_flag(True)
    with pytest.raises(LoadCancelled):
        make(options)
    assert interrupting.made.compiled == 2
    assert interrupting.made.closed == ["partition", "partition", "ep"]


@pytest.mark.parametrize("error", [ep.LoadCancelled, OSError])
def test_an_ep_sees_the_flag_and_the_user_what_it_means(
    interrupting: InterruptingFactory, error: type[Exception]
) -> None:
    options = onnxplug.SessionOptions()
    seen = []

    def act(partition: ep.Partition) -> None:
        seen.append(partition.cancelled)
        options.set_load_cancellation_flag(True)
        seen.append(partition.cancelled)
        raise error("not wanted")

    interrupting.act = act
    with pytest.raises(LoadCancelled, match="with False to make another"):
        make(options)
    assert seen == [False, True]
    assert interrupting.made.closed == ["partition", "ep"]


def test_an_interrupt_closes_everything(interrupting: InterruptingFactory) -> None:
    interrupting.act = lambda partition: signal.raise_signal(signal.SIGINT)
    # a process that a shell put into the background ignores the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            make(onnxplug.SessionOptions())
    finally:
        signal.signal(signal.SIGINT, before)
    assert interrupting.made.closed == ["partition", "ep"]


def test_the_flag_is_of_the_options_and_their_copies_but_not_of_pickled_ones() -> None:
    options = onnxplug.SessionOptions()
    copy, apart = options.snapshot(), pickle.loads(pickle.dumps(options))
    options.set_load_cancellation_flag(True)
    assert (copy.is_load_cancelled, apart.is_load_cancelled) == (True, False)
    assert not pickle.loads(pickle.dumps(options)).is_load_cancelled


def test_constants_are_computed_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag comes up in the tenth node of a long chain of constants."""
    chain = "".join(f"v{i + 1} = Sin (v{i}) " for i in range(100))
    model = onnx.parser.parse_model(
        f"""< ir_version: 10, opset_import: ["" : 21] >
        agraph (float[1] x) => (float[1] y) <float[1] v0 = {{1}}>
        {{ {chain} y = Add (x, v100) }}"""
    )
    options = onnxplug.SessionOptions()
    computed = []

    class Counting(Interrupting):
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            return ep.CapabilityReport.per_node(graph, lambda node: None)

        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            computed.append(partition.nodes[0])
            if len(computed) == 10:
                options.set_load_cancellation_flag(True)
            (name,) = partition.nodes[0].inputs
            return HostFunction(lambda: partition.constant(name or ""))

    factory = InterruptingFactory()
    monkeypatch.setattr(
        factory, "create", lambda devices, options, session: Counting(factory.act)
    )
    registry.add(factory)
    try:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        with pytest.raises(LoadCancelled):
            onnxplug.InferenceSession(model, options, providers=[factory.name])
    finally:
        registry.remove(factory.name)
    assert len(computed) == 10
