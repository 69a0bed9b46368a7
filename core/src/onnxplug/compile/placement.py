"""Where the values of control flow are, so that iterations copy as little as may be.

The condition and the number of iterations are the host's, which decides by them.  What
goes round in a loop, what it gathers and what branches give stays where the body makes
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.authoring.control_flow import Placement
from onnxplug.ep import HOST, MemoryLocation

if TYPE_CHECKING:
    from onnxplug.run.compiled import CompiledGraph, CompiledUnit
    from onnxplug.run.memory import Memory


class Placements:
    """The placements of the control-flow nodes of one model, each decided once.

    Args:
        memory: what is at a location; where there is no device, arrays are the host's.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._decided: dict[int, Placement] = {}

    def of(self, unit: CompiledUnit) -> Placement:
        """The placement of a control-flow node."""
        key = id(unit)
        if key not in self._decided:
            self._decided[key] = self._decide(unit)
        return self._decided[key]

    def _decide(self, unit: CompiledUnit) -> Placement:
        node = unit.partition.nodes[0]
        if node.op_type == "If":
            return self._of_if(unit)
        if node.op_type == "Scan" and node.since_version < 9:
            return Placement.on_host(node)  # rows of a batch are taken apart there
        body = unit.bodies["body"]
        taken = list(dict.fromkeys([*body.graph.inputs, *body.graph.defaults]))
        left = body.graph.outputs
        # the host counts iterations, and looks at the condition after each
        counters, conditions = (2, 1) if node.op_type == "Loop" else (0, 0)
        scanned = int(node.attributes.get("num_scan_inputs", 0))
        carried = max(len(node.inputs) - counters - scanned, 0)
        taken = taken[counters : counters + carried + scanned]
        left = left[conditions:]
        carried_at = [
            self._made_at(body, result) or self._wanted_at(body, state) or HOST
            for state, result in zip(taken[:carried], left[:carried], strict=True)
        ]
        takes = carried_at + [
            self._wanted_at(body, name) or HOST for name in taken[carried:]
        ]
        leaves = carried_at + [
            self._made_at(body, name) or HOST for name in left[carried:]
        ]
        ahead = [HOST] * min(counters, len(node.inputs))
        return Placement(
            (*ahead, *takes),
            tuple(leaves[: len(node.outputs)]),
            {"body": dict(zip(taken, takes, strict=True))},
            {"body": [HOST] * conditions + leaves},
        )

    def _of_if(self, unit: CompiledUnit) -> Placement:
        node = unit.partition.nodes[0]
        outputs = []
        for number in range(len(node.outputs)):
            made = [
                self._made_at(body, body.graph.outputs[number])
                for body in unit.bodies.values()
            ]
            known = [place for place in made if place is not None]
            on_device = [place for place in known if place != HOST]
            outputs.append((on_device or known or [HOST])[0])
        leaves = {
            attribute: outputs + [HOST] * (len(body.graph.outputs) - len(outputs))
            for attribute, body in unit.bodies.items()
        }
        return Placement((HOST,), tuple(outputs), {name: {} for name in leaves}, leaves)

    def _made_at(self, body: CompiledGraph, name: str) -> MemoryLocation | None:
        """Where *body* makes a value; ``None`` if it makes it not."""
        for unit in body.units:
            made = unit.partition.outputs
            if name in made:
                return self._known(self._leaves(unit)[list(made).index(name)])
        return None

    def _wanted_at(self, body: CompiledGraph, name: str) -> MemoryLocation | None:
        """Where *body* first wants a value; ``None`` if it does nothing with it."""
        for unit in body.units:
            if unit.candidate is not None:
                taken = unit.partition.inputs
                if name in taken:
                    return self._known(_takes(unit)[list(taken).index(name)])
                continue
            node = unit.partition.nodes[0]
            if name in node.inputs:
                return self.of(unit).inputs[list(node.inputs).index(name)]
            for inner in unit.bodies.values():
                found = self._wanted_at(inner, name)
                if found is not None:
                    return found
        return None

    def _known(self, place: MemoryLocation) -> MemoryLocation:
        return HOST if self._memory.device(place) is None else place

    def _leaves(self, unit: CompiledUnit) -> tuple[MemoryLocation, ...]:
        """Where the outputs of a unit's partition are left."""
        if unit.candidate is not None:
            assert unit.compiled is not None
            places = unit.compiled.output_locations
            home = unit.candidate.provider.location
            return tuple(places or [home] * len(unit.partition.outputs))
        node = unit.partition.nodes[0]
        by_name = dict(zip(node.outputs, self.of(unit).outputs, strict=True))
        return tuple(by_name[name] for name in unit.partition.outputs)


def _takes(unit: CompiledUnit) -> tuple[MemoryLocation, ...]:
    assert unit.candidate is not None and unit.compiled is not None
    places = unit.compiled.input_locations
    home = unit.candidate.provider.location
    return tuple(places or [home] * len(unit.partition.inputs))
