"""What a plugin answers in another form than the SPI's is told as its own failure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import HostFunction, KernelExecutionProvider
from onnxplug.errors import EpError, OnnxplugError, PluginError
from onnxplug.plugins import registry
from onnxplug_cli.main import main

NAME = "OddExecutionProvider"
MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    odd (float[2] x) => (float[2] y) { y = Neg (x) }
    """
)
FEED = {"x": np.ones(2, np.float32)}


class Provider(KernelExecutionProvider):
    def find_kernel(self, graph: ep.Graph, node: ep.Node) -> Any:
        return lambda x: -x


class Factory(ep.EpFactory):
    spi_version = (0, 3)
    name = NAME
    options: Mapping[str, ep.Option] = {  # type: ignore[misc]
        "fast": ep.Option(default=False)
    }

    def supported_devices(self, devices: Any) -> Any:
        return [self.pair(device) for device in devices if device.type == "cpu"][:1]

    def pair(self, device: ep.HardwareDevice) -> Any:
        return ep.EpDevice(ep_name=NAME, device=device)

    def create(self, devices: Any, options: Any, session: Any) -> Any:
        return Provider()


def taking(seconds: Any) -> ep.Verification:
    class Taking(ep.Verification):
        compile_seconds = seconds

        def probes(self, device: ep.EpDevice) -> Any:
            return ()

    return Taking()


def refusal(reason: Any) -> Callable[..., Any]:
    def get_capability(self: Any, graph: ep.Graph) -> Any:
        refused = ep.Refusal(node=0, reason=reason)
        return ep.CapabilityReport(refusals=(refused,))

    return get_capability


def per_node(answer: Any) -> Callable[..., Any]:
    return lambda self, graph: ep.CapabilityReport.per_node(graph, lambda n: answer)


def declined(nodes: Any) -> Callable[..., Any]:
    def compile(self: Any, partition: ep.Partition) -> Any:
        raise ep.Declined("no", nodes=nodes)

    return compile


def paired(**facts: Any) -> Callable[..., Any]:
    return lambda self, device: ep.EpDevice(ep_name=NAME, device=device, **facts)


def refused(**facts: Any) -> Callable[..., Any]:
    def pair(self: Any, device: ep.HardwareDevice) -> ep.RefusedDevice:
        return ep.RefusedDevice(**{"device": device, "reason": "no", **facts})

    return pair


OF_PROVIDERS: dict[str, tuple[str, Any, str]] = {
    "a text per node": ("get_capability", per_node("no"), "'no'; expected None"),
    "true per node": ("get_capability", per_node(True), "True; expected None"),
    "a text for a reason": (
        "get_capability",
        refusal("no"),
        "refused node 0 with 'no'",
    ),
    "a claim that is none": (
        "get_capability",
        lambda self, graph: ep.CapabilityReport(claims=((0,),)),  # type: ignore
        "expected a ComputeCapability",
    ),
    "a node that is none": (
        "get_capability",
        lambda self, graph: ep.CapabilityReport(
            claims=(ep.ComputeCapability(nodes=("0",)),)  # type: ignore
        ),
        "node '0' of a graph",
    ),
    "no kernel": (
        "find_kernel",
        lambda self, graph, node: None,
        "find_kernel gave None",
    ),
    "no node declined": ("compile", declined([]), "named no node"),
}
OF_FACTORIES: dict[str, tuple[str, Any, str]] = {
    "no provider": ("create", lambda *_: None, "returned None; expected an Execution"),
    "metadata that are no text": (
        "pair",
        paired(metadata={"version": 3}),
        "expected a mapping of texts to texts",
    ),
    "suggested options that are not its": (
        "pair",
        paired(default_options={"speed": "9"}),
        "suggests options .* no option 'speed'",
    ),
    "a refusal without a reason": ("pair", refused(reason=" "), "the reason ' '; exp"),
    "a refusal whose reason is none": ("pair", refused(reason=None), "reason None"),
    "a refusal whose remedy is none": ("pair", refused(remedy=3), "remedy 3; expected"),
    "a refusal of nothing": ("pair", refused(device="gpu"), "'gpu', which is no Hard"),
    "devices that are none": ("pair", lambda self, device: "gpu", "'gpu'"),
}
DECLARED: dict[str, tuple[str, Any, str]] = {
    "an SPI version in a text": ("spi_version", "0.3", "'0.3'; expected two numbers"),
    "no SPI version": ("spi_version", None, "None; expected two numbers"),
    "a vendor that is no text": ("vendor", 3, "vendor .* is 3"),
    "options that are none": ("options", {"speed": 5}, "'speed': 5"),
    "a default beyond a limit": (
        "options",
        {"speed": ep.Option(default=5, maximum=3)},
        "the default 5, which is not from None to 3",
    ),
    "a default that is no choice": (
        "options",
        {"mode": ep.Option(default="a", choices=("b",))},
        "none of its choices",
    ),
    "config entries that are none": ("config_entries", ["a"], "expected a mapping of"),
    "a config entry that is none": ("config_entries", {"a": 5}, "'a': 5; expected a"),
    "a config entry that is an option, too": (
        "config_entries",
        {"mode": ep.Option(default=1, aliases=("fast",))},
        "has 'fast' both among its options and its config_entries",
    ),
    "run options that are none": ("run_options", {3: 5}, "run_options .* have 3: 5"),
    "a run option beyond a limit": (
        "run_options",
        {"a": ep.Option(default=5, maximum=3)},
        "run option 'a' .* the default 5, which is not from None to 3",
    ),
    "hardware of no kind": ("tried_on", {"tpu": "a TPU"}, "tried_on .*'tpu'"),
    "hardware in no words": ("tried_on", {ep.DeviceType.GPU: 1}, "tried_on .*: 1}"),
    "a time in words": ("verification", taking("long"), "'long'; expected a number"),
    "no time": ("verification", taking(0), "is 0; expected more than 0"),
    "a time without end": ("verification", taking(float("inf")), "can wait"),
    "a default of no type": ("options", {"mode": ep.Option(default=None)}, "None"),  # type: ignore
}


@pytest.fixture(autouse=True)
def unregistered() -> Iterator[None]:
    yield
    if any(each.name == "odd" for each in registry.libraries()):
        onnxplug.unregister_ep_library("odd")


def the_rest_works() -> None:
    assert onnxplug.get_ep_devices()
    with onnxplug.InferenceSession(MODEL) as session:
        np.testing.assert_array_equal(session.run(None, FEED)[0], [-1, -1])


@pytest.mark.parametrize("case", OF_PROVIDERS)
def test_of_providers(case: str) -> None:
    method, answer, words = OF_PROVIDERS[case]
    provider = type("Odd", (Provider,), {method: answer})
    create = lambda self, *_: provider()  # noqa: E731
    onnxplug.register_ep_library("odd", type("Odd", (Factory,), {"create": create})())
    with pytest.raises(EpError, match=f"(?s){NAME}.*{words}") as caught:
        onnxplug.InferenceSession(MODEL, providers=[NAME])
    assert caught.value.ep == NAME
    the_rest_works()


@pytest.mark.parametrize("case", OF_FACTORIES)
def test_of_factories(case: str) -> None:
    method, answer, words = OF_FACTORIES[case]
    onnxplug.register_ep_library("odd", type("Odd", (Factory,), {method: answer})())
    with pytest.raises(EpError, match=f"(?s){NAME}.*{words}") as caught:
        onnxplug.InferenceSession(MODEL, providers=[NAME])
    assert caught.value.ep == NAME
    the_rest_works()


@pytest.mark.parametrize("case", DECLARED)
def test_of_what_is_declared(case: str) -> None:
    attribute, value, words = DECLARED[case]
    with pytest.raises(PluginError, match=f"(?s)could not be loaded.*{words}"):
        onnxplug.register_ep_library(
            "odd", type("Odd", (Factory,), {attribute: value})()
        )
    with pytest.raises(OnnxplugError):
        onnxplug.InferenceSession(MODEL, providers=[NAME])
    the_rest_works()


def test_a_function_of_the_host_that_takes_the_context_is_given_it() -> None:
    given: list[Any] = []

    def negative(x: Any, context: Any) -> Any:
        given.append(context)
        return -x

    partition = HostFunction(negative)
    partition.run([np.ones(2)], [None], None)
    context = object()
    partition.run([np.ones(2)], [None], context)  # type: ignore[arg-type]
    assert given == [None, context]


@pytest.mark.parametrize("case", OF_FACTORIES)
@pytest.mark.parametrize("command", ["devices", "eps", "doctor"])
def test_commands_tell_of_it_and_of_the_rest(
    case: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    method, answer, _ = OF_FACTORIES[case]
    onnxplug.register_ep_library("odd", type("Odd", (Factory,), {method: answer})())
    main([command, "--json"])
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert "error" not in told
    assert "CPUExecutionProvider" in printed.out
    assert NAME in printed.out + printed.err
