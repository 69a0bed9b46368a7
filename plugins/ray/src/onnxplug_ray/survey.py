"""Which EPs and devices the nodes of a cluster have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import onnxplug
from onnxplug.errors import InvalidArgument
from onnxplug_ray.node import node_in_words
from onnxplug_ray.resources import resource_of

_COLUMNS: Final = ("NODE", "EP", "VERSION", "DEVICE", "OFFERED", "STATE")


@dataclass(frozen=True, slots=True)
class SurveyRow:
    """An EP on a device of a node, or why a node has none.

    Attributes:
        node_id: Ray's.
        address: of the node.
        ep: the EP's name; empty if the node has none, or did not answer.
        version: of the EP.
        device: what it is, in words.
        device_type: ``cpu``, ``gpu`` or ``npu``.
        offered: how much of ``onnxplug/EP`` the node offers to actors.
        error: why there is no EP, or why it cannot be used.
    """

    node_id: str
    address: str
    ep: str = ""
    version: str = ""
    device: str = ""
    device_type: str = ""
    offered: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """What the nodes of a cluster have; ``str()`` of it is a table."""

    rows: tuple[SurveyRow, ...]

    def __iter__(self) -> Iterator[SurveyRow]:
        return iter(self.rows)

    def nodes_with(self, ep: str) -> list[str]:
        """The ids of the nodes that can use an EP, by its name in any form."""
        name = resource_of(ep)
        found = {
            row.node_id
            for row in self.rows
            if resource_of(row.ep) == name and not row.error
        }
        return sorted(found)

    def __str__(self) -> str:
        lines = [_COLUMNS, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) for cell, width in zip(line, widths, strict=True)
            ).rstrip()
            for line in lines
        )


def _cells(row: SurveyRow) -> tuple[str, ...]:
    state = " ".join(row.error.split()) or "ready"
    return (
        node_in_words(row.address, row.node_id),
        row.ep or "–",
        row.version or "–",
        row.device or "–",
        f"{row.offered:g}",
        state,
    )


def survey(timeout: float = 60.0) -> Survey:
    """Ask every node which EPs and devices it has.

    It takes no core of a node, and imports the plugins there in a process of its own.
    A node that does not answer in *timeout* seconds, or has no onnxplug, has a row that
    says so.

    Raises:
        InvalidArgument: Ray is not initialised.
    """
    if not ray.is_initialized():
        raise InvalidArgument("there is no cluster to ask; call ray.init() first")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    look = ray.remote(num_cpus=0, max_retries=0)(_look)
    asked = {
        node["NodeID"]: look.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(
                node["NodeID"], soft=False
            )
        ).remote()
        for node in nodes
    }
    answered, _ = ray.wait(
        list(asked.values()), num_returns=len(asked), timeout=timeout
    )
    rows: list[SurveyRow] = []
    for node in nodes:
        answer = asked[node["NodeID"]]
        is_there = answer in answered
        if not is_there:
            ray.cancel(answer, force=True)
        rows += _rows(node, answer if is_there else None, timeout)
    return Survey(tuple(rows))


def _rows(node: Any, answer: Any, timeout: float) -> Iterator[SurveyRow]:
    where = (node["NodeID"], node["NodeManagerAddress"])
    if answer is None:
        yield SurveyRow(*where, error=f"no answer in {timeout:g} s")
        return
    try:
        found: Sequence[tuple[str, ...]] = ray.get(answer)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        yield SurveyRow(*where, error=f"{type(cause).__name__}: {cause}")
        return
    for ep, version, device, device_type, why in found:
        offered = node["Resources"].get(resource_of(ep), 0.0)
        yield SurveyRow(*where, ep, version, device, device_type, offered, why)
    if not found:
        yield SurveyRow(*where, error="no EP is installed")


def _look() -> list[tuple[str, str, str, str, str]]:
    """On a node: name and version of each EP, its device and the type of that, or why
    it cannot be used."""
    found = []
    usable = set()
    for each in onnxplug.get_ep_devices():
        usable.add(each.ep_name)
        facts = each.device.metadata
        device = facts.get("Description") or each.device.vendor or str(each.device.type)
        version = each.metadata.get("version", "")
        found.append((each.ep_name, version, device, str(each.device.type), ""))
    for record in onnxplug.get_plugins():
        if record.name not in usable:
            why = onnxplug.is_available(record.name).reason
            found.append((record.name, "", "", "", why))
    return found
