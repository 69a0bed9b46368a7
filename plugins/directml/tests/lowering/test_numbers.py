"""What nodes give on the stand-in, held against the CPU EP."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import onnxplug

from .nodes.attention import ATTENTION, CONTRIBUTED, MICROSOFT
from .nodes.indices import INDICES
from .nodes.movement import BORDERS, PIECES, VIEWS
from .nodes.networks import NETWORKS
from .nodes.pictures import PICTURES
from .single_node import SingleNode

NODES: Final = {
    **VIEWS, **PIECES, **BORDERS, **INDICES, **PICTURES, **NETWORKS, **ATTENTION,
    **{f"{MICROSOFT}.{name}": node for name, node in CONTRIBUTED.items()},
}  # fmt: skip

Session = Callable[..., onnxplug.InferenceSession]


def expected(node: SingleNode) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infinities of masks
        session = onnxplug.InferenceSession(node.model(), providers=["cpu"])
        return session.run(None, node.feeds())


@pytest.mark.parametrize("name", NODES)
def test_a_node_gives_what_the_cpu_ep_does(name: str, alone: Session) -> None:
    node = NODES[name]
    wanted = expected(node)
    with alone(node.model()) as session:
        assert [each.op_type for each in session.explain().nodes] == [node.op_type]
        found = session.run(None, node.feeds())
    for array, reference in zip(found, wanted, strict=True):
        assert (array.shape, array.dtype) == (reference.shape, reference.dtype)
        if reference.dtype.kind != "f":
            np.testing.assert_array_equal(array, reference)
            continue
        largest = np.abs(reference[np.isfinite(reference)]).max(initial=1)
        margin = 2e-3 if reference.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(array, reference, margin, margin * largest)
