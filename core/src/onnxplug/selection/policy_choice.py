"""What a policy chooses for one session, and what it would choose next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from onnxplug.selection.order import is_default_cpu
from onnxplug.selection.policy import (
    MEASURED,
    POLICIES,
    apply_policy,
    without_default_cpu,
)
from onnxplug.selection.request import Origin, ProviderRequest

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice, ModelInfo, SelectionPolicy


class PolicyChoice:
    """The EPs that a policy chooses among all pairs of a machine.

    A function is called once, as ONNX Runtime calls its delegates.  ONNX Runtime's own
    policies name one pair of a kind; they say what they prefer without some of them.

    Attributes:
        name: the policy's.
        offered: all pairs, in ONNX Runtime's order.
        requests: the EPs that it chose among these, in order.

    Raises:
        EpError: it raised, chose nothing, or chose what it was not offered; or the CPU
            EP only, without *cpu_fallback*.
    """

    def __init__(
        self,
        name: str,
        function: SelectionPolicy,
        offered: Sequence[EpDevice],
        model_info: ModelInfo,
        *,
        cpu_fallback: bool,
    ) -> None:
        self.name = name
        self.offered = tuple(offered)
        self.cpu_fallback = cpu_fallback
        self._function = function
        self._model_info = model_info
        selected = apply_policy(name, function, offered, model_info)
        if not cpu_fallback:
            selected = without_default_cpu(name, selected, offered=offered)
        self.requests = one_request_per_ep(selected)

    @property
    def is_measured(self) -> bool:
        """Whether what was measured of its EPs counts more than what it says."""
        return self.name == MEASURED and self._function is POLICIES[MEASURED]

    def without(self, names: Collection[str]) -> list[ProviderRequest]:
        """What it chooses, in order, where the EPs *names* are not to be had."""
        if not any(self._function is each for each in POLICIES.values()):
            return [each for each in self.requests if each.name not in names]
        left = [
            pair
            for pair in self.offered
            if pair.ep_name not in names
            and (self.cpu_fallback or not is_default_cpu(pair))
        ]
        return one_request_per_ep(tuple(self._function(left, self._model_info)))


def one_request_per_ep(ep_devices: Sequence[EpDevice]) -> list[ProviderRequest]:
    """One request per EP, in the order of their first pairs, with all their pairs."""
    devices: dict[str, list[EpDevice]] = {}
    for pair in ep_devices:
        devices.setdefault(pair.ep_name, []).append(pair)
    return [
        ProviderRequest(name, devices=tuple(pairs), origin=Origin.POLICY)
        for name, pairs in devices.items()
    ]
