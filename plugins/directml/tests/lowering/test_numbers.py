"""What nodes give on the stand-in, held against the CPU EP."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
import pytest

import onnxplug

from .nodes.arithmetic import ARITHMETIC
from .nodes.attention import ATTENTION, CONTRIBUTED
from .nodes.indices import INDICES
from .nodes.movement import BORDERS, PIECES, VIEWS
from .nodes.networks import NETWORKS
from .nodes.pictures import PICTURES
from .single_node import SingleNode, alone, feeds_of, model_of


def families() -> dict[str, dict[str, SingleNode]]:
    """Nodes of one family and opset, which one model can have."""
    named: Mapping[str, Mapping[str, SingleNode]] = {
        "views": VIEWS, "pieces": PIECES, "borders": BORDERS, "indices": INDICES,
        "pictures": PICTURES, "networks": NETWORKS, "attention": ATTENTION,
        "contributed": CONTRIBUTED, "arithmetic": ARITHMETIC,
    }  # fmt: skip
    found: dict[str, dict[str, SingleNode]] = defaultdict(dict)
    for family, nodes in named.items():
        for name, node in nodes.items():
            found[f"{family}-{node.opset}"][name] = node
    return found


FAMILIES: Final = families()


def expected(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infinities of masks
        return onnxplug.InferenceSession(model, providers=["cpu"]).run(None, feeds)


@pytest.mark.usefixtures("factory")
@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_give_what_the_cpu_ep_does(family: str) -> None:
    nodes = FAMILIES[family]
    model, feeds = model_of(nodes), feeds_of(nodes)
    wanted = expected(model, feeds)
    with alone(model) as session:
        ran = Counter(each.op_type for each in session.explain().nodes)
        assert ran == Counter(node.op_type for node in nodes.values())  # no bodies
        found = session.run(None, feeds)
    for output, array, reference in zip(model.graph.output, found, wanted, strict=True):
        name = output.name
        assert (array.shape, array.dtype) == (reference.shape, reference.dtype), name
        if reference.dtype.kind != "f":
            np.testing.assert_array_equal(array, reference, name)
            continue
        largest = np.abs(reference[np.isfinite(reference)]).max(initial=1)
        margin = 2e-3 if reference.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(
            array, reference, margin, margin * largest, err_msg=name
        )
