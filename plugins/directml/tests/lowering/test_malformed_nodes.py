"""Nodes that are malformed are refused in words, or are graphs that can be handed over.

``ONNXPLUG_FUZZ=100:200`` in the environment draws those seeds instead of the usual.
"""

from __future__ import annotations

import os
import re

import pytest

from onnxplug import ep
from onnxplug.errors import OnnxplugError
from onnxplug.graph.load import load_model
from onnxplug.partition import GraphPartition
from onnxplug_directml.capability import Judge
from onnxplug_directml.lowering.call import RULES
from onnxplug_directml.lowering.lower import lower
from onnxplug_directml.lowering.marshal import Marshalled
from onnxplug_directml.lowering.target import Target

from .malformed import MalformedNode

_FIRST, _LAST = map(int, os.environ.get("ONNXPLUG_FUZZ", "0:12").split(":"))
_BY_CHANCE = re.compile("(Index|Key|Type|ZeroDivision|Overflow|Attribute)Error")
"""What rules run into, and no words of theirs."""

_LEVELS = (0x6400, 0x6000, 0x5000)


@pytest.mark.parametrize("operator", RULES, ids=".".join)
def test_a_malformed_node_is_refused(operator: tuple[str, str]) -> None:
    for seed in range(_FIRST, _LAST):
        model = MalformedNode(operator, seed).model.SerializeToString()
        target = Target(_LEVELS[seed % len(_LEVELS)])
        try:
            graph = load_model(model).graph
            said = str(Judge(graph, target)(graph.nodes[0]))
            assert not _BY_CHANCE.search(said), f"seed {seed}: {said}"
            Marshalled(lower(GraphPartition(graph, graph.nodes), target))
        except (ep.Declined, OnnxplugError) as error:  # or the host lets none pass
            assert not _BY_CHANCE.search(str(error)), f"seed {seed}: {error}"
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
