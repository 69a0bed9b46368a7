"""Who wins when EPs are asked for in several places."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from onnxplug.ep import HardwareDevice, ModelInfo
from onnxplug.errors import EpError, EpWarning, OptionError
from onnxplug.plugins import PluginRegistry
from onnxplug.selection import CPU, Origin, ProviderRequest, adapt_delegate, provider
from onnxplug.selection.policy_choice import PolicyChoice
from onnxplug.selection.resolve import resolve
from onnxplug_testing import SimulatedFactory

AddEp = Callable[..., SimulatedFactory]
Resolve = Callable[..., list[ProviderRequest]]

DML = "DmlExecutionProvider"
IN_OPTIONS = [provider("openvino")]
GLOBALS = [ProviderRequest("dml", origin=Origin.GLOBAL)]


class Case(NamedTuple):
    """What is asked for where, the EPs of the session, and what the warning says."""

    providers: Any = None
    session: Any = ()
    policy: Any = None
    globals: Any = ()
    expected: Any = ()
    told: str = ""


TABLE = [
    Case(),
    Case(globals=GLOBALS, expected=["dml"]),
    Case(policy="prefer_gpu", expected=["CudaExecutionProvider", CPU]),
    Case(policy="prefer_gpu", globals=GLOBALS, expected=["CudaExecutionProvider", CPU]),
    Case(session=IN_OPTIONS, expected=["openvino"]),
    Case(session=IN_OPTIONS, globals=GLOBALS, expected=["openvino", "dml"]),
    Case(
        session=IN_OPTIONS,
        policy="prefer_gpu",
        expected=["openvino"],
        told="with a selection policy; only the providers added to SessionOptions are",
    ),
    Case(providers=["cuda"], expected=["cuda"]),
    Case(providers="cuda", expected=["cuda"]),
    Case(providers=["cuda"], globals=GLOBALS, expected=["cuda", "dml"]),
    Case(
        providers=["cuda"],
        session=IN_OPTIONS,
        expected=["cuda"],
        told=r"already configured with providers \(openvino\); only .* passed to Inf",
    ),
    Case(
        providers=["cuda"],
        policy="prefer_npu",
        expected=["cuda"],
        told="configured with a selection policy; only",
    ),
    Case(
        providers=["cuda"],
        session=IN_OPTIONS,
        policy="prefer_npu",
        globals=GLOBALS,
        expected=["cuda", "dml"],
        told=r"providers \(openvino\) and a selection policy",
    ),
    # an empty list says nothing, as in ONNX Runtime
    Case(providers=[], session=IN_OPTIONS, expected=["openvino"]),
    Case(providers=[], policy="prefer_cpu", expected=[CPU]),
    # globals that are named already
    Case(providers=[DML], globals=GLOBALS, expected=[DML]),
    Case(
        providers=["cuda", "directml"], globals=GLOBALS, expected=["cuda", "directml"]
    ),
    Case(globals=[*GLOBALS, *GLOBALS], expected=["dml"]),
]


@pytest.fixture
def machine(
    add: AddEp,
    cpu: SimulatedFactory,
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
) -> Resolve:
    """``resolve`` on a machine with a CUDA EP and the CPU EP."""
    add("Cuda", "gpu")

    def resolve_here(*arguments: Any, **keywords: Any) -> list[ProviderRequest]:
        found = resolve(
            *arguments,
            **{
                "registry": registry,
                "hardware": hardware,
                "model_info": ModelInfo,
                **keywords,
            },
        )
        return found.requests if isinstance(found, PolicyChoice) else found

    return resolve_here


@pytest.mark.parametrize("case", TABLE, ids=lambda case: " ".join(case.expected))
def test_who_wins(case: Case, machine: Resolve) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = machine(case.providers, None, case.session, case.policy, case.globals)
    assert [request.name for request in found] == list(case.expected)
    assert len(caught) == bool(case.told)
    for warning in caught:
        assert warning.category is EpWarning
        assert re.search(case.told, str(warning.message))
        assert warning.filename == __file__


def test_the_model_is_described_for_a_policy_only(machine: Resolve) -> None:
    def model_info() -> ModelInfo:
        raise AssertionError("described")

    machine(["cuda"], None, model_info=model_info)
    with pytest.raises(AssertionError, match="described"):
        machine(None, None, (), "default", model_info=model_info)


def test_options_stay_with_their_request(machine: Resolve) -> None:
    found = machine([("cuda", {"level": 1})], None, (), None, GLOBALS)
    assert found == [ProviderRequest("cuda", {"level": 1}), GLOBALS[0]]
    assert machine(["cuda"], [{"level": 1}]) == found[:1]


def test_two_spellings_of_one_ep_are_one_ep(machine: Resolve) -> None:
    with pytest.warns(EpWarning, match="Duplicate provider 'CudaExecutionProvider'"):
        found = machine([("cuda", {"level": 1}), "CudaExecutionProvider", "x"], None)
    assert found == [ProviderRequest("cuda", {"level": 1}), ProviderRequest("x")]
    # also when none of it is installed
    with pytest.warns(EpWarning, match="Duplicate provider 'TRT'"):
        machine(["tensorrt", "TRT"], None)


# policies


def test_several_devices_of_an_ep_are_one_request(machine: Resolve) -> None:
    found = machine(None, None, (), lambda pairs, model: pairs[:2])
    (request,) = found
    assert request.origin is Origin.POLICY
    assert [pair.device.vendor for pair in request.devices] == ["NVIDIA", "Intel"]


def test_eps_keep_the_order_of_their_first_devices(machine: Resolve) -> None:
    def interleaved(pairs: Any, model: Any) -> Any:
        nvidia, intel, cpu = pairs
        return [intel, cpu, nvidia]

    first, second = machine(None, None, (), interleaved)
    assert (first.name, second.name) == ("CudaExecutionProvider", CPU)
    assert [pair.device.vendor for pair in first.devices] == ["Intel", "NVIDIA"]


def test_a_delegate_decides(machine: Resolve) -> None:
    found = machine(None, None, (), adapt_delegate(lambda pairs, *rest: pairs[-1:]))
    assert [request.name for request in found] == [CPU]


def test_the_makers_number_comes_from_the_factory(
    add: AddEp, machine: Resolve, hardware: list[HardwareDevice]
) -> None:
    add("Zeta", "gpu", vendor_id=0x10DE)
    first, *_ = machine(None, None, (), "prefer_gpu")
    assert first.name == "ZetaExecutionProvider"
    assert first.devices[0].device is hardware[1]


def test_an_unknown_policy_is_an_error(machine: Resolve) -> None:
    with pytest.raises(OptionError, match="did you mean 'prefer_npu'"):
        machine(None, None, (), "prefer_npus")


# no fallback to the CPU


def test_to_name_the_cpu_and_forbid_it_is_a_conflict(machine: Resolve) -> None:
    for name in (CPU, "cpu", "CPU"):
        with pytest.raises(OptionError, match="Conflicting session configuration: ex"):
            machine(["cuda", name], None, cpu_fallback=False)
    with pytest.raises(OptionError, match="explicitly added the CPU EP"):
        machine(None, None, [provider("cpu")], cpu_fallback=False)


def test_to_ask_for_nothing_and_forbid_the_cpu_is_a_conflict(machine: Resolve) -> None:
    with pytest.raises(OptionError, match="no EP was asked for"):
        machine(None, None, cpu_fallback=False)
    with pytest.raises(OptionError, match="no EP was asked for"):
        machine(None, None, (), None, [ProviderRequest("cpu")], cpu_fallback=False)


def test_a_global_cpu_ep_yields_to_what_the_session_says(machine: Resolve) -> None:
    everywhere = [ProviderRequest("cpu"), *GLOBALS]
    found = machine(["cuda"], None, (), None, everywhere, cpu_fallback=False)
    assert [request.name for request in found] == ["cuda", "dml"]


def test_the_cpu_ep_stands_in_as_the_last_that_is_named(machine: Resolve) -> None:
    def names(*arguments: Any, **keywords: Any) -> list[str]:
        found = machine(*arguments, cpu_stands_in=True, **keywords)
        return [request.name for request in found]

    assert names(["cuda"], None) == ["cuda", CPU]
    assert names(["cuda"], None, (), None, GLOBALS) == ["cuda", "dml", CPU]
    assert names(["cpu", "cuda"], None) == ["cpu", "cuda"]
    assert names(["cuda"], None, cpu_fallback=False) == ["cuda"]
    assert names(None, None) == []
    assert names(None, None, (), None, GLOBALS) == ["dml"]


def test_a_policys_cpu_ep_yields_as_well(machine: Resolve) -> None:
    found = machine(None, None, (), "prefer_gpu", cpu_fallback=False)
    assert [request.name for request in found] == ["CudaExecutionProvider"]
    with pytest.raises(EpError, match="chose CPUExecutionProvider only"):
        machine(None, None, (), "prefer_cpu", cpu_fallback=False)
