"""What is calibrated: a model, its options, and the EPs that may run it here."""

from __future__ import annotations

import functools
import json
import os
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.entries import fingerprint
from onnxplug.calibration.plan import Plan, alone
from onnxplug.entries import CALIBRATE
from onnxplug.ep import TensorType
from onnxplug.errors import EpError
from onnxplug.graph.weight import Weight
from onnxplug.interruption import raise_interruption
from onnxplug.selection import CPU, ProviderRequest
from onnxplug.selection.compatibility import compatibility_info, lasting_facts
from onnxplug.verify.code import code_digest

if TYPE_CHECKING:
    from onnxplug.ep import ValueType
    from onnxplug.graph import Graph
    from onnxplug.plugins import PluginRegistry
    from onnxplug.selection.policy_choice import PolicyChoice
    from onnxplug.session.request import SessionRequest

_FORMAT: Final = 1

_SMALL: Final = 1 << 10
"""Bytes of constants whose elements are told apart: shapes, axes, scales."""

_OF_NO_EFFECT: Final = (CALIBRATE, "ep.context_enable")


class Subject:
    """A model, its options, and the EPs that may run it here.

    Attributes:
        graph: the model's as it was loaded; nothing has changed it yet.
        candidates: by the EPs' names, in the policy's order.
    """

    def __init__(
        self,
        request: SessionRequest,
        graph: Graph,
        choice: PolicyChoice,
        registry: PluginRegistry,
    ) -> None:
        self.request = request
        self.graph = graph
        self.registry = registry
        self.cpu_fallback = choice.cpu_fallback
        self.candidates = {each.name: each for each in _candidates(choice)}

    @property
    def static(self) -> Plan:
        """The plan in which the policy's first EP has all that it claims."""
        return self.alone(next(iter(self.candidates)))

    def alone(self, ep: str) -> Plan:
        """The plan in which *ep* has all that it claims."""
        return alone(ep, with_cpu=self.cpu_fallback)

    @functools.cached_property
    def entry(self) -> str:
        """The name of the verdict, by all that it depends on."""
        from onnxplug import __version__

        options = self.request.options
        config = {k: v for k, v in options.config.items() if k not in _OF_NO_EFFECT}
        facts = {
            "format": _FORMAT,
            "onnxplug": __version__,
            "model": _digest(self.graph),
            "eps": [self._facts(each) for each in self.candidates.values()],
            "machine": _machine(),
            "options": [
                sorted(config.items()),
                int(options.graph_optimization_level),
                sorted(self.request.disabled),
                sorted(options.free_dimensions.items()),
                sorted(options.denoted_dimensions.items()),
            ],
            "threads": options.threads,
        }
        text = json.dumps(facts, sort_keys=True)
        return f"calibration-{fingerprint(text).hex()}"

    def _facts(self, candidate: ProviderRequest) -> list[Any]:
        factory = self.registry.factory(candidate.name)
        compilers = []
        for device in candidate.devices:
            try:
                compilers.append(compatibility_info(factory, device))
            except EpError as error:
                raise_interruption(error)
                compilers.append(str(error))
        return [
            factory.name,
            factory.version,
            code_digest(factory),
            compilers,
            [lasting_facts(device) for device in candidate.devices],
        ]


def _candidates(choice: PolicyChoice) -> Iterator[ProviderRequest]:
    """All EPs that the policy would choose if those before them were not there."""
    tried: list[str] = []
    while requests := choice.without(tried):
        yield requests[0]
        tried.append(requests[0].name)
        if requests[0].name == CPU:
            return


def _machine() -> list[Any]:
    """The processor, its instructions, and how many cores this process may use."""
    flags = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in ("flags", "Features"):
                    flags = " ".join(sorted(value.split()))
                    break
    except (OSError, ValueError):  # no Linux
        flags = platform.processor()
    count = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    return [platform.system(), platform.machine(), flags, count]


def _digest(graph: Graph) -> str:
    """What tells a graph from others, but for the elements of large constants, on which
    hardly any time depends."""
    return fingerprint("\n".join(_lines(graph))).hex()


def _lines(graph: Graph) -> Iterator[str]:
    yield repr((graph.inputs, graph.outputs, sorted(graph.opset_imports.items())))
    for name, type in graph.input_types().items():
        yield f"{name} {_type_in_words(type)}"
    for name, weight in graph.constants.items():
        yield f"{name} {_told(weight)}"
    for node in graph.nodes:
        yield repr(
            (node.domain, node.op_type, node.overload, node.inputs, node.outputs)
        )
        for name, attribute in node.typed_attributes.items():
            value = attribute.value
            if isinstance(value, Weight):
                yield f"{name} {_told(value)}"
            elif name not in node.subgraphs:
                yield f"{name} {value!r}" if not _is_list(value) else f"{name} list"
        for name, body in node.subgraphs.items():
            yield name
            yield from _lines(body)


def _type_in_words(type: ValueType | None) -> str:
    """The type without names of sizes, which say nothing of time."""
    if not isinstance(type, TensorType) or type.shape is None:
        return str(type)
    sizes = [size if isinstance(size, int) else None for size in type.shape]
    return f"{type.dtype} {sizes}"


def _is_list(value: object) -> bool:
    """Whether it is a list of graphs, which are told by themselves, or of weights."""
    return isinstance(value, tuple) and bool(value) and hasattr(value[0], "__dict__")


def _told(weight: Weight) -> str:
    size = 1
    for each in weight.shape:
        size *= each
    told = f"{weight.dtype} {weight.shape}"
    return f"{told} {weight.array.tolist()}" if size * 8 <= _SMALL else told
