"""What is found of the place where two choices of EPs part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx

from onnxplug.authoring import nodes
from onnxplug.errors import OnnxplugError
from onnxplug_cli.comparison.differences import Difference
from onnxplug_cli.comparison.inside import NotSearched, has_inside, look_inside
from onnxplug_cli.comparison.reproduction import (
    NotReproducible,
    Reproduction,
    reproduce,
)
from onnxplug_cli.comparison.search import NotFound, Part, Search
from onnxplug_cli.comparison.sides import Sides


class Cause(StrEnum):
    """What comes of the nodes alone, as a model of their own."""

    ITSELF = "itself"
    """They differ on the reference's inputs."""

    AMPLIFIED = "amplified"
    """They do not; but the reference itself makes as much of how the inputs differ."""

    AMONG_OTHERS = "among others"
    """Neither: they differ only in the model, as where they are fused with others."""

    UNKNOWN = "unknown"
    """They could not be run alone; the notes say why."""

    @property
    def text(self) -> str:
        """For people."""
        return _TEXTS[self]


_TEXTS = {
    Cause.ITSELF: "Alone, on the reference's inputs, the difference shows, too.",
    Cause.AMPLIFIED: "Alone, on the reference's inputs, both agree, and the reference "
    "differs as much on the other side's inputs: small differences from before are "
    "amplified here.",
    Cause.AMONG_OTHERS: "Alone, on the reference's inputs, both agree: they differ "
    "only in the model, as where nodes are fused with others.",
    Cause.UNKNOWN: "It could not be run alone.",
}


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two choices of EPs part.

    Attributes:
        nodes: one, in words; several if the difference vanishes when a value between
            them is looked at, in an order in which they can run.
        eps: which EP of each side runs the first of them; empty if that is not known,
            as where a node is rewritten.
        outputs: how its outputs differ; the node's inputs agree.
        cause: what comes of the nodes alone.
        notes: what else there is to say.
        reproduction: the nodes as a model of their own, with the reference's inputs.
        inside: if the node has bodies, or calls a function of the model: which of
            these, and where in it the two part.
    """

    nodes: tuple[str, ...]
    eps: tuple[str, str]
    outputs: tuple[Difference, ...]
    cause: Cause
    notes: tuple[str, ...]
    reproduction: Reproduction | None
    inside: tuple[str, Divergence] | None = None

    @property
    def innermost(self) -> Divergence:
        """What is found in the node, in the node in that, and so on."""
        return self if self.inside is None else self.inside[1].innermost


def examine(
    sides: Sides,
    part: Part,
    model: onnx.ModelProto,
    folder: Path | None,
    inputs: Mapping[str, Any],
) -> Divergence:
    """What there is to say of *part* of *model*, which is run alone for that.

    Args:
        folder: where the model's external data is.
        inputs: the model's.
    """
    notes = list(_notes(part))
    cause, alone, inside = Cause.UNKNOWN, None, None
    first, second = ({**inputs, **values} for values in part.values)
    try:
        alone = reproduce(model, folder, part.nodes, part.outputs, second)
        cause = _cause(sides, alone, {name: first[name] for name in alone.inputs})
    except NotReproducible as error:
        notes.append(f"there is no model of it alone: {error}")
    except OnnxplugError as error:
        notes.append(f"alone it does not run: {error}")
    for node in part.nodes:
        if not has_inside(node, model):
            continue
        try:
            if alone is None or cause is not Cause.ITSELF or len(part.nodes) > 1:
                raise NotSearched("alone it agrees, or it was not run alone")
            inside = _inside(sides, alone, node)
        except (NotSearched, NotFound, OnnxplugError) as error:
            notes.append(f"what is in {describe(node)} was not searched: {error}")
    words = tuple(map(describe, part.nodes))
    return Divergence(
        words,
        (_ep(sides, 0, words[0]), _ep(sides, 1, words[0])),
        tuple(sides.compare(part.outputs, part.values)),
        cause,
        tuple(notes),
        alone,
        inside,
    )


def _inside(
    sides: Sides, alone: Reproduction, node: onnx.NodeProto
) -> tuple[str, Divergence]:
    found = look_inside(sides, alone, node)
    model, inputs = found.model.model, found.model.inputs
    with sides.of(model) as pair:
        part = Search(pair, model.graph, found.targets, inputs).find()
        return found.words, examine(pair, part, model, None, inputs)


def _cause(sides: Sides, alone: Reproduction, others: Mapping[str, Any]) -> Cause:
    """Run *alone* on its own inputs, then on those that the *others* had."""
    names = [info.name for info in alone.model.graph.output]
    with sides.of(alone.model) as pair:
        values = pair.run(names, alone.inputs)
        if pair.disagree(names, values):
            return Cause.ITSELF
        results = pair.sessions[1].run(names, others)
        again = dict(zip(names, results, strict=True))
        amplified = pair.disagree(names, (again, values[1]))
    return Cause.AMPLIFIED if amplified else Cause.AMONG_OTHERS


def _notes(part: Part) -> Iterator[str]:
    if len(part.nodes) > 1:
        yield (
            "the difference vanishes when a value between these nodes is looked at: "
            "what is wrong comes of running them together, as in a fusion"
        )
    if not part.confirmed:
        yield (
            "the difference was not seen again when what goes in and what comes out "
            "were looked at together: it depends on what is looked at"
        )


def describe(node: onnx.NodeProto) -> str:
    """*node* in words, as ``onnxplug explain`` calls it."""
    facts = SimpleNamespace(
        domain=node.domain,
        op_type=node.op_type,
        name=node.name,
        outputs=list(node.output),
    )
    return nodes.describe(cast(Any, facts))


def _ep(sides: Sides, side: int, node: str) -> str:
    placed: Sequence[Any] = sides.sessions[side].explain().nodes
    return next((each.ep for each in placed if each.node == node), "")
