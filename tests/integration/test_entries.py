"""Config entries of sessions and runs: whose each is, what it may be, who gets it."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import OptionError, OptionWarning
from onnxplug.plugins import PluginRegistry
from onnxplug_testing import Knobs, SimulatedFactory

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    both (float[2] x) => (float[2] z) { y = Neg (x)  z = Abs (y) }
    """
)
FEED = {"x": np.array([1, -2], np.float32)}

RUN_OPTIONS: dict[str, ep.Option] = {
    "noting.priority": ep.Option(default=1, minimum=0, maximum=9),
    "noting.mode": ep.Option(default="fast", choices=("fast", "exact")),
}


class Partition(ep.CompiledPartition):
    def __init__(self, op: str, seen: list[Any]) -> None:
        self.compute = {"Neg": np.negative, "Abs": np.abs}[op]
        self.seen = seen

    def run(self, inputs: Any, outputs: Any, context: Any) -> Any:
        self.seen.append(None if context is None else context.options)
        return [self.compute(inputs[0], out=outputs[0])]


class Noting(ep.ExecutionProvider):
    """Runs one operator, and notes what it is told of each run."""

    def __init__(self, op: str, seen: list[Any]) -> None:
        self.op = op
        self.seen = seen

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        other = ep.Reason(ep.RefusalCode.OP)
        return ep.CapabilityReport.per_node(
            graph, lambda node: None if node.op_type == self.op else other
        )

    def compile(self, partition: ep.Partition) -> Partition:
        return Partition(self.op, self.seen)


class NotingFactory(ep.EpFactory):
    spi_version = (0, 4)
    run_options: Mapping[str, ep.Option] = RUN_OPTIONS  # type: ignore[misc]

    def __init__(self, name: str, op: str) -> None:
        self.name = name  # type: ignore[misc]
        self.op = op
        self.seen: list[Any] = []

    def supported_devices(self, devices: Any) -> Any:
        return [ep.EpDevice(ep_name=self.name, device=devices[0])]

    def create(self, devices: Any, options: Any, session: Any) -> Noting:
        return Noting(self.op, self.seen)


class Older(NotingFactory):
    spi_version = (0, 3)
    run_options: Mapping[str, ep.Option] = {}  # type: ignore[misc]


class Other(NotingFactory):
    run_options: Mapping[str, ep.Option] = {  # type: ignore[misc]
        "noting.mode": ep.Option(default="", aliases=("other.mode",)),
        "other.share": ep.Option(default=0.5),
    }


def open_with(*factories: ep.EpFactory) -> onnxplug.InferenceSession:
    registry = PluginRegistry({}, find=lambda group: [])
    for factory in factories:
        registry.add(factory)
    names = [factory.name for factory in factories]
    return onnxplug.InferenceSession(MODEL, providers=names, registry=registry)


def told(**entries: str) -> onnxplug.RunOptions:
    options = onnxplug.RunOptions()
    for key, value in entries.items():
        options.add_run_config_entry(key.replace("__", "."), value)
    return options


@pytest.fixture
def neg() -> NotingFactory:
    return NotingFactory("NotingExecutionProvider", "Neg")


@pytest.fixture
def abs_() -> NotingFactory:
    return Other("OtherExecutionProvider", "Abs")


# runs


def test_each_ep_gets_its_own_run_options_typed(neg, abs_) -> None:
    session = open_with(neg, abs_)
    options = told(noting__priority="7", other__share="0.25")
    (z,) = session.run(None, FEED, options)
    np.testing.assert_array_equal(z, [1, 2])
    assert neg.seen == [{"noting.priority": 7, "noting.mode": "fast"}]
    assert abs_.seen == [{"noting.mode": "", "other.share": 0.25}]


def test_a_name_that_two_declare_is_for_both(neg, abs_) -> None:
    open_with(neg, abs_).run(None, FEED, told(noting__mode="exact"))
    assert neg.seen[0]["noting.mode"] == abs_.seen[0]["noting.mode"] == "exact"


def test_without_options_each_gets_the_defaults(neg, abs_) -> None:
    session = open_with(neg, abs_)
    session.run(None, FEED)
    session.run(None, FEED, onnxplug.RunOptions())
    assert neg.seen == [{"noting.priority": 1, "noting.mode": "fast"}] * 2
    assert abs_.seen == [{"noting.mode": "", "other.share": 0.5}] * 2


def test_options_that_change_between_runs_count(neg, abs_) -> None:
    session = open_with(neg, abs_)
    options = told(noting__priority="2")
    session.run(None, FEED, options)
    options.add_run_config_entry("noting.priority", "3")
    session.run(None, FEED, options)
    session.run(None, FEED, told())
    assert [seen["noting.priority"] for seen in neg.seen] == [2, 3, 1]


def test_an_ep_cannot_change_what_the_next_run_is_told(neg, abs_) -> None:
    open_with(neg, abs_).run(None, FEED)
    with pytest.raises(TypeError):
        neg.seen[0]["noting.priority"] = 9


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("noting.priorty", "1", "no run config entry 'noting.priorty'; did you mean "
         "'noting.priority'.* have noting.mode, noting.priority, other"),
        ("gpu_graph", "1", "did you mean 'gpu_graph_id'"),
        ("noting.priority", "high", "run option 'noting.priority' of NotingExecution"
         "Provider is 'high'; expected int"),
        ("noting.priority", "10", "expected a number from 0 up to 9"),
        ("noting.mode", "slow", "expected one of 'fast', 'exact'"),
        ("ep.noting.priority", "1", "no run config entry 'ep.noting.priority'"),
    ],
)  # fmt: skip
def test_what_nobody_accepts_is_an_error_before_anything_runs(
    neg, abs_, key: str, value: str, message: str
) -> None:
    session = open_with(neg, abs_)
    options = onnxplug.RunOptions()
    options.add_run_config_entry(key, value)
    binding = session.io_binding()
    binding.bind_cpu_input("x", FEED["x"])
    binding.bind_output("z")
    runs: list[Callable[[], Any]] = [
        lambda: session.run(None, FEED, options),
        lambda: session.run(["y"], FEED, options),
        lambda: session.run_with_iobinding(binding, options),
        lambda: asyncio.run(session.arun(None, FEED, options)),
    ]
    for run in runs:
        with pytest.raises(OptionError, match=message):
            run()
    assert neg.seen == abs_.seen == []
    session.run(None, FEED)


def test_an_option_by_two_of_its_names_is_an_error(neg, abs_) -> None:
    options = told(noting__mode="fast", other__mode="x")
    with pytest.raises(OptionError, match=r"run option 'noting.mode' .* given twice"):
        open_with(neg, abs_).run(None, FEED, options)


def test_an_ep_of_an_older_spi_gets_texts(abs_) -> None:
    older = Older("NotingExecutionProvider", "Neg")
    session = open_with(older, abs_)
    session.run(None, FEED, told(other__share="0.25", anything="goes"))
    session.run(None, FEED)
    assert older.seen == [{"other.share": "0.25", "anything": "goes"}, {}]
    assert [seen["other.share"] for seen in abs_.seen] == [0.25, 0.5]
    with pytest.raises(OptionError, match="expected float"):
        session.run(None, FEED, told(other__share="half"))


def test_an_ep_with_a_stream_gets_its_defaults() -> None:
    seen = []

    class Streaming(SimulatedFactory):
        run_options = RUN_OPTIONS  # type: ignore[misc]

        def create(self, *arguments: Any) -> Any:
            provider = super().create(*arguments)
            compile_partition = provider.compile

            def compile(partition: ep.Partition) -> Any:
                compiled = compile_partition(partition)
                run = compiled.run

                def noting(inputs: Any, outputs: Any, context: Any) -> Any:
                    seen.append(dict(context.options))
                    return run(inputs, outputs, context)

                compiled.run = noting  # type: ignore[method-assign]
                return compiled

            provider.compile = compile
            return provider

    session = open_with(Streaming(Knobs(ops=frozenset({"Neg", "Abs"}))))
    session.run(None, FEED)
    session.run(None, FEED, told(noting__priority="4"))
    assert seen == [
        {"noting.priority": 1, "noting.mode": "fast"},
        {"noting.priority": 4, "noting.mode": "fast"},
    ]


def test_the_hosts_own_entries_are_checked_when_they_are_set(neg, abs_) -> None:
    for key, value in {
        "gpu_graph_id": "first",
        "disable_synchronize_execution_providers": "yes",
    }.items():
        with pytest.raises(OptionError, match=f"{key}' is '{value}'; expected"):
            onnxplug.RunOptions().add_run_config_entry(key, value)
    with pytest.warns(OptionWarning, match="no effect") as caught:
        options = told(memory__enable_memory_arena_shrinkage="cpu:0")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what it is set to holds anyway
        options.add_run_config_entry("disable_synchronize_execution_providers", "0")
        options.add_run_config_entry("gpu_graph_id", "-1")
    open_with(neg, abs_).run(None, FEED, options)
    assert neg.seen == [{"noting.priority": 1, "noting.mode": "fast"}]


# sessions


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ep.context_enable", "yes", "is 'yes'; expected '0' or '1'"),
        ("ep.contex_enable", "1", "did you mean 'ep.context_enable'"),
        ("ep.share_ep_context", "1", "did you mean 'ep.share_ep_contexts'"),
        ("ep.dynamic.workload_type", "Efficient", "set_ep_dynamic_options"),
        ("ep.cpu.", "1", "there is no session config entry 'ep.cpu.'"),
        ("ep..compile", "1", "there is no session config entry"),
        ("epcpu.compile", "1", "there is no session config entry"),
    ],
)
def test_the_sessions_entries_that_cannot_be(key: str, value: str, message: str):
    with pytest.raises(OptionError, match=message):
        onnxplug.SessionOptions().add_session_config_entry(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ep.enable_weightless", "1"),
        ("session.disable_prepacking", "1"),
    ],
)
def test_the_sessions_entries_without_effect_warn(key: str, value: str) -> None:
    options = onnxplug.SessionOptions()
    with pytest.warns(OptionWarning, match=f"{key}' has no effect"):
        options.add_session_config_entry(key, value)
    onnxplug.InferenceSession(MODEL, options).run(None, FEED)


def test_what_holds_anyway_can_be_said() -> None:
    options = onnxplug.SessionOptions()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for key in ("context_enable", "share_ep_contexts", "context_embed_mode"):
            options.add_session_config_entry(f"ep.{key}", "0")
    onnxplug.InferenceSession(MODEL, options).run(None, FEED)


def test_a_misspelt_entry_of_an_ep_is_an_error_when_the_session_is_made() -> None:
    def make(key: str) -> None:
        options = onnxplug.SessionOptions()
        options.add_session_config_entry(key, "0")
        onnxplug.InferenceSession(MODEL, options)

    make("ep.cpu.compile")
    make("ep.cpuexecutionprovider.compile")
    with pytest.raises(OptionError, match="entry 'compiel'; did you mean 'compile'"):
        make("ep.cpu.compiel")
    with pytest.raises(OptionError, match=r"no EP: .* Did you mean 'cpu'"):
        make("ep.cpuu.compile")
