"""Policies: functions that pick pairs of EP and device, best first.

Owns: ONNX Runtime's seven policies, how a policy is found by what users write, and
what is checked of its choice.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onnxplug.ep import DeviceType, EpDevice, ModelInfo, SelectionPolicy
from onnxplug.errors import (
    OnnxplugError,
    OptionError,
    PluginNotFound,
    SelectionError,
)
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.selection.order import CPU, is_default_cpu

if TYPE_CHECKING:
    from onnxplug.graph import Model
    from onnxplug.plugins import PluginRegistry


class OrtExecutionProviderDevicePolicy(IntEnum):
    """ONNX Runtime's policies."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


def model_info(model: Model) -> ModelInfo:
    """What policies may know of a loaded model."""
    return ModelInfo(
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        graph_name=model.graph.name,
        graph_description=model.graph.doc_string,
        metadata=MappingProxyType(dict(model.metadata)),
    )


def prefer_cpu(
    ep_devices: Sequence[EpDevice], model_info: ModelInfo
) -> Sequence[EpDevice]:
    """The best EP on a CPU, then the default CPU EP."""
    first = _first(ep_devices, DeviceType.CPU)
    defaults = [pair for pair in ep_devices if is_default_cpu(pair)]
    return [*first, *(pair for pair in defaults[:1] if pair not in first)]


def prefer_npu(
    ep_devices: Sequence[EpDevice], model_info: ModelInfo
) -> Sequence[EpDevice]:
    """The best EP on an NPU, then as :func:`prefer_cpu`."""
    first = _first(ep_devices, DeviceType.NPU)
    return [*first, *prefer_cpu(ep_devices, model_info)]


def prefer_gpu(
    ep_devices: Sequence[EpDevice], model_info: ModelInfo
) -> Sequence[EpDevice]:
    """The best EP on a GPU, then as :func:`prefer_cpu`."""
    first = _first(ep_devices, DeviceType.GPU)
    return [*first, *prefer_cpu(ep_devices, model_info)]


POLICIES: Final[Mapping[str, SelectionPolicy]] = MappingProxyType(
    {
        "default": prefer_cpu,
        "prefer_cpu": prefer_cpu,
        "prefer_npu": prefer_npu,
        "prefer_gpu": prefer_gpu,
        "max_performance": prefer_gpu,
        "max_efficiency": prefer_npu,
        "min_overall_power": prefer_npu,
    }
)
"""ONNX Runtime's policies by name; several are the same, as they are there."""


MEASURED: Final = "max_performance"
"""The policy of these that goes by what was measured, where something was."""


def find_policy(
    policy: str | OrtExecutionProviderDevicePolicy | SelectionPolicy,
    registry: PluginRegistry,
) -> tuple[str, SelectionPolicy]:
    """A policy and its name, by whatever a user writes for it.

    Of plugins only those count that are loaded.

    Raises:
        OptionError: there is no such policy.
        PluginConflict: two plugins supply it.
    """
    if isinstance(policy, OrtExecutionProviderDevicePolicy):
        policy = policy.name
    if isinstance(policy, str):
        wanted = policy.strip().lower()
        if wanted in POLICIES:
            return wanted, POLICIES[wanted]
        others = {name.lower(): name for name in registry.policies()}
        if wanted in others:
            return wanted, registry.policy(others[wanted])
        # its error names two plugins that want one name
        with contextlib.suppress(PluginNotFound):
            return policy, registry.policy(policy)
        known = [*POLICIES, *sorted(others)]
        near = difflib.get_close_matches(wanted, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise OptionError(
            f"there is no selection policy {policy!r}{hint}  "
            f"The policies: {', '.join(known)}."
        )
    if not callable(policy):
        raise OptionError(
            f"the selection policy is {policy!r}; expected a name, an "
            "OrtExecutionProviderDevicePolicy, or a function of (ep_devices, "
            "model_info)"
        )
    return str(getattr(policy, "__name__", None) or policy), policy


def apply_policy(
    name: str,
    policy: SelectionPolicy,
    ep_devices: Sequence[EpDevice],
    model_info: ModelInfo,
) -> list[EpDevice]:
    """What *policy* chooses among *ep_devices*, each pair once.

    Raises:
        SelectionError: it raised, chose nothing, or chose what it was not offered.
    """
    try:
        selected = _unique(policy(tuple(ep_devices), model_info))
    except OnnxplugError as error:
        raise_interruption(error)
        raise
    except FAILURES as error:  # of a policy of a plugin's, or the user's
        raise_interruption(error)
        raise failure(
            f"selection policy {name!r} failed: {type(error).__name__}: {error}"
        ) from error
    strange = [pair for pair in selected if pair not in ep_devices]
    if strange:
        raise failure(
            f"selection policy {name!r} selected {strange[0]}, which it was not "
            f"offered; offered were {_list(ep_devices)}"
        )
    if not selected:
        cpus = [pair for pair in ep_devices if pair.device.type is DeviceType.CPU]
        lack = "" if cpus else "  No CPU based execution providers were found."
        raise failure(
            "No execution providers selected. Please check the device policy and "
            f"available devices.{lack}  Policy {name!r} was offered "
            f"{_list(ep_devices)}."
        )
    return selected


def without_default_cpu(
    name: str, ep_devices: Sequence[EpDevice], *, offered: Sequence[EpDevice]
) -> list[EpDevice]:
    """*ep_devices* for a session that must not fall back to the CPU.

    Raises:
        SelectionError: none is left.
    """
    left = [pair for pair in ep_devices if not is_default_cpu(pair)]
    if not left:
        raise failure(
            f"No execution providers selected: policy {name!r} chose {CPU} only, "
            "which session.disable_cpu_ep_fallback forbids; offered were "
            f"{_list(offered)}"
        )
    return left


def failure(message: str) -> SelectionError:
    """The error for a policy that failed, or chose what cannot be used."""
    return SelectionError(message, stage="select")


def _first(ep_devices: Sequence[EpDevice], kind: DeviceType) -> list[EpDevice]:
    return [pair for pair in ep_devices if pair.device.type is kind][:1]


def _unique(selected: Iterable[EpDevice]) -> list[EpDevice]:
    unique: list[EpDevice] = []
    for pair in selected:
        if pair not in unique:
            unique.append(pair)
    return unique


def _list(ep_devices: Sequence[EpDevice]) -> str:
    return ", ".join(map(str, ep_devices)) or "nothing"
