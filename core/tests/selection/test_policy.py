"""What each policy chooses, how it is named, and what is refused of its choice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from onnxplug.ep import EpDevice, ModelInfo, hookimpl
from onnxplug.errors import EpError, OptionError, PluginConflict
from onnxplug.plugins import PluginRegistry
from onnxplug.selection import (
    OrtExecutionProviderDevicePolicy,
    adapt_delegate,
    order_devices,
)
from onnxplug.selection.policy import (
    POLICIES,
    apply_policy,
    find_policy,
    prefer_cpu,
)
from onnxplug_testing import Knobs, SimulatedPlugin

MakePair = Callable[..., EpDevice]

MODEL = ModelInfo("pytorch", "2.9", "ai.example", 3, "a model", "main", "its graph")

NPU_FIRST = ["prefer_npu", "max_efficiency", "min_overall_power"]
GPU_FIRST = ["prefer_gpu", "max_performance"]
CPU_FIRST = ["default", "prefer_cpu"]


@pytest.fixture
def machine(pair: MakePair) -> dict[str, EpDevice]:
    intel = {"vendor": "Intel", "ep_vendor": "Intel"}
    return {
        "npu": pair("OpenVINO", "npu", **intel),
        "other npu": pair("QNN", "npu", vendor="Qualcomm"),
        "gpu": pair("CUDA", "gpu", vendor="NVIDIA", ep_vendor="NVIDIA", Discrete="1"),
        "second gpu": pair("Dml", "gpu", vendor="NVIDIA", Discrete="1"),
        "vendor cpu": pair("OpenVINO", "cpu", **intel),
        "cpu": pair("CPU", "cpu", vendor="Intel", ep_vendor="onnxplug"),
    }


def select(policy: Any, machine: dict[str, EpDevice], *without: str) -> list[str]:
    """The keys of what *policy* selects on *machine*, some devices taken out."""
    offered = [pair for key, pair in machine.items() if key not in without]
    name, function = find_policy(policy, PluginRegistry())
    selected = apply_policy(name, function, order_devices(offered), MODEL)
    return [key for pair in selected for key in machine if machine[key] is pair]


# ONNX Runtime's policies


@pytest.mark.parametrize("policy", CPU_FIRST)
def test_policies_for_the_cpu(policy: str, machine: dict[str, EpDevice]) -> None:
    # the maker's own EP wins over the default CPU EP: verified with ONNX Runtime
    assert select(policy, machine) == ["vendor cpu", "cpu"]
    assert select(policy, machine, "vendor cpu") == ["cpu"]
    assert select(policy, machine, "cpu") == ["vendor cpu"]


@pytest.mark.parametrize("policy", GPU_FIRST)
def test_policies_for_the_gpu(policy: str, machine: dict[str, EpDevice]) -> None:
    assert select(policy, machine) == ["gpu", "vendor cpu", "cpu"]
    assert select(policy, machine, "gpu") == ["second gpu", "vendor cpu", "cpu"]
    # an NPU does not stand in
    assert select(policy, machine, "gpu", "second gpu") == ["vendor cpu", "cpu"]


@pytest.mark.parametrize("policy", NPU_FIRST)
def test_policies_for_the_npu(policy: str, machine: dict[str, EpDevice]) -> None:
    assert select(policy, machine) == ["npu", "vendor cpu", "cpu"]
    assert select(policy, machine, "npu") == ["other npu", "vendor cpu", "cpu"]
    # a GPU does not stand in
    assert select(policy, machine, "npu", "other npu") == ["vendor cpu", "cpu"]


def test_without_any_cpu_ep_the_accelerator_is_alone(
    machine: dict[str, EpDevice],
) -> None:
    assert select("prefer_gpu", machine, "vendor cpu", "cpu") == ["gpu"]
    with pytest.raises(EpError, match="No CPU based execution providers were found"):
        select("prefer_cpu", machine, "vendor cpu", "cpu")


@pytest.mark.parametrize("policy", POLICIES)
def test_on_a_machine_with_nothing_policies_fail(policy: str) -> None:
    with pytest.raises(EpError, match="No execution providers selected") as caught:
        select(policy, {})
    assert caught.value.stage == "select"


@pytest.mark.parametrize("policy", list(OrtExecutionProviderDevicePolicy))
def test_names_in_any_case_and_the_enum_mean_the_same(
    policy: OrtExecutionProviderDevicePolicy,
) -> None:
    expected = POLICIES[policy.name.lower()]
    for written in (policy, policy.name, policy.name.lower(), policy.name.title()):
        assert find_policy(written, PluginRegistry()) == (policy.name.lower(), expected)


def test_the_enum_has_onnx_runtimes_numbers() -> None:
    ort = pytest.importorskip("onnxruntime").OrtExecutionProviderDevicePolicy
    theirs = {name: int(value) for name, value in ort.__members__.items()}
    ours = {policy.name: policy.value for policy in OrtExecutionProviderDevicePolicy}
    assert ours == theirs


# policies of plugins and users


def everything(
    ep_devices: Sequence[EpDevice], model_info: ModelInfo
) -> Sequence[EpDevice]:
    return ep_devices


class PolicyPlugin(SimulatedPlugin):
    """A plugin with a policy."""

    @hookimpl
    def onnxplug_selection_policies(self) -> Any:
        return {"Everything": everything, "default": everything}


@pytest.fixture
def registry() -> PluginRegistry:
    """With a plugin that brings a policy."""
    registry = PluginRegistry({})
    registry.register_ep_library("first", PolicyPlugin())
    return registry


def test_a_plugins_policy_is_found_by_name(registry: PluginRegistry) -> None:
    for written in ("Everything", "everything", " EVERYTHING"):
        assert find_policy(written, registry) == ("everything", everything)


def test_no_plugin_replaces_onnx_runtimes_policies(registry: PluginRegistry) -> None:
    assert find_policy("default", registry) == ("default", prefer_cpu)


def test_a_policy_that_two_plugins_supply_is_a_conflict(
    registry: PluginRegistry,
) -> None:
    registry.register_ep_library("second", PolicyPlugin(Knobs(name="Other")))
    with pytest.raises(PluginConflict, match="both supply a selection policy"):
        find_policy("Everything", registry)


def test_an_unknown_name_brings_the_nearest(registry: PluginRegistry) -> None:
    with pytest.raises(OptionError, match=r"'prefer_gpuu'; did you mean 'prefer_gpu'"):
        find_policy("prefer_gpuu", registry)
    with pytest.raises(OptionError, match=r"did you mean 'everything'.*: default, .*"):
        find_policy("everythin", registry)


@pytest.mark.parametrize("policy", [3, True, ["prefer_gpu"], None])
def test_what_is_no_policy(policy: Any) -> None:
    with pytest.raises(OptionError, match="expected a name, an Ort"):
        find_policy(policy, PluginRegistry())


def test_a_function_sees_all_pairs_in_order_and_the_model(
    machine: dict[str, EpDevice],
) -> None:
    seen: list[Any] = []

    def pick_last(pairs: Sequence[EpDevice], model: ModelInfo) -> Sequence[EpDevice]:
        seen.extend([pairs, model])
        return [pairs[-1], pairs[0]]

    assert select(pick_last, machine) == ["cpu", "npu"]
    assert list(seen[0]) == order_devices(machine.values())
    assert seen[1] is MODEL


def test_a_function_may_return_everything_and_any_iterable(
    machine: dict[str, EpDevice],
) -> None:
    assert len(select(everything, machine)) == len(machine)
    assert select(lambda pairs, model: iter(pairs[:2]), machine) == ["npu", "other npu"]


def test_a_pair_selected_twice_counts_once(machine: dict[str, EpDevice]) -> None:
    assert select(lambda pairs, model: [pairs[0]] * 3, machine) == ["npu"]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda pairs, model: [], "No execution providers selected"),
        (lambda pairs, model: 1 / 0, "failed: ZeroDivisionError: division by zero"),
        (lambda pairs, model: None, "failed: TypeError: 'NoneType'"),
        (lambda pairs: pairs, "failed: TypeError: .*takes 1 positional argument"),
        (lambda pairs, model: ["cpu"], "selected cpu, which it was not offered"),
    ],
)
def test_what_a_policy_may_not_do(
    policy: Any, message: str, machine: dict[str, EpDevice]
) -> None:
    with pytest.raises(EpError, match=message):
        select(policy, machine)


def test_a_pair_of_another_machine_is_refused(
    machine: dict[str, EpDevice], pair: MakePair
) -> None:
    stranger = pair("CoreML", "npu", vendor="Apple")
    with pytest.raises(EpError, match=r"selected CoreMLExecutionProvider on npu \(App"):
        select(lambda pairs, model: [stranger], machine)


# delegates


def test_a_delegate_gets_onnx_runtimes_arguments(
    machine: dict[str, EpDevice],
) -> None:
    seen: list[Any] = []

    def delegate(*arguments: Any) -> list[EpDevice]:
        seen.extend(arguments)
        return [arguments[0][2]]

    policy = adapt_delegate(delegate)
    _, function = find_policy(policy, PluginRegistry())
    model = MODEL._replace(metadata={"author": "me"})
    offered = order_devices(machine.values())
    selected = apply_policy("delegate", function, offered, model)
    assert selected == [machine["gpu"]]
    pairs, facts, runtime, limit = seen
    assert pairs == offered
    assert isinstance(pairs, list)
    assert facts == {
        "producer_name": "pytorch",
        "producer_version": "2.9",
        "domain": "ai.example",
        "model_version": "3",
        "doc_string": "a model",
        "graph_name": "main",
        "graph_description": "its graph",
        "author": "me",
    }
    assert (runtime, limit) == ({}, 8)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda pairs: [], r"^EP selection delegate did not select anything\.$"),
        (
            lambda pairs: pairs[:1] * 9,
            r"selected too many EP devices \(9\)\. The limit is 8 EP devices\.$",
        ),
        (
            lambda pairs: 1 / 0,
            r"^EP selection delegate failed: ZeroDivisionError: division by zero$",
        ),
        (lambda pairs: None, "^EP selection delegate failed: TypeError"),
        (lambda pairs: [1], "selected 1, which it was not offered"),
    ],
)
def test_what_a_delegate_may_not_do(
    answer: Any, message: str, machine: dict[str, EpDevice]
) -> None:
    def delegate(pairs: list[EpDevice], *rest: Any) -> Any:
        return answer(pairs)

    with pytest.raises(EpError, match=message):
        select(adapt_delegate(delegate), machine)


def test_eight_selections_are_not_too_many(machine: dict[str, EpDevice]) -> None:
    delegate = adapt_delegate(lambda pairs, *rest: pairs[:1] * 8)
    assert select(delegate, machine) == ["npu"]


def test_a_delegate_must_be_callable() -> None:
    with pytest.raises(OptionError, match="the selection delegate is 'prefer_gpu'"):
        adapt_delegate("prefer_gpu")  # type: ignore[arg-type]


def test_a_users_interrupt_passes(machine: dict[str, EpDevice]) -> None:
    def interrupted(pairs: Any, model: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        select(interrupted, machine)


def test_a_session_without_a_policy_does_not_import_them() -> None:
    import subprocess

    program = (
        "import sys, onnxplug.selection\n"
        "assert 'onnxplug.selection.policy' not in sys.modules\n"
        "assert 'onnxplug.selection.delegate' not in sys.modules\n"
        "assert 'onnxplug.selection.known' not in sys.modules\n"
        "assert 'onnxplug.selection.available' not in sys.modules\n"
        "onnxplug.selection.adapt_delegate, onnxplug.selection.model_info"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
