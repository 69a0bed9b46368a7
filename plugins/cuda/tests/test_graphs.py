"""Calls of cuDNN: what does not fit is refused, and the frontend takes the rest."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest

from onnxplug_cuda.engines.graphs import Attention, Tensor

from . import library_of_graphs
from .library_of_graphs import Frontend, Graph, contiguous, heur_mode, numerical_note
from .on_graphs import ATTENTION, CALL


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (CALL, {"element": "f64"}),
        (CALL, {"x": Tensor((1, 2, 4, 4), (32, 16, 5, 1))}),
        (CALL, {"x": Tensor((1, 2, 4, 4), (32, 16, -4, 1))}),
        (CALL, {"x": Tensor((1, 2, 4), (32, 16, 4))}),
        (CALL, {"w": Tensor(*contiguous(2, 3, 3, 3))}),
        (CALL, {"y": Tensor(*contiguous(1, 2, 3, 2))}),
        (CALL, {"y": Tensor(*contiguous(2, 2, 2, 2))}),
        (CALL, {"strides": (0, 1)}),
        (CALL, {"before": (-1, 0)}),
        (CALL, {"before": (1, 0)}),
        (CALL, {"dilations": (1, 1, 1)}),
        (CALL, {"has_bias": True}),
        (CALL, {"transposed": True}),
        (ATTENTION, {"q": Tensor(*contiguous(1, 3, 8, 16))}),
        (ATTENTION, {"k": Tensor(*contiguous(1, 2, 9, 16))}),
        (ATTENTION, {"o": Tensor(*contiguous(1, 4, 8, 15))}),
        (ATTENTION, {"o": Tensor((1, 4, 8, 16), (512, 128, 17, 1))}),
        (ATTENTION, {"mask": Tensor(*contiguous(1, 2, 8, 8))}),
        (ATTENTION, {"mask": Tensor(*contiguous(1, 1, 8, 8))}),
        (ATTENTION, {"causal": "middle"}),
        (ATTENTION, {"scale": math.nan}),
        (ATTENTION, {"element": "i8"}),
    ],
)
def test_a_call_that_does_not_fit_is_refused(
    call: Any, changes: dict[str, Any]
) -> None:
    call.check(call.needed)
    with pytest.raises(ValueError):
        call._replace(**changes).check(call.needed)


# the frontend itself


def test_the_stand_in_has_the_frontends_functions() -> None:
    real = pytest.importorskip("cudnn", reason="needs nvidia-cudnn-frontend")
    for name in ("create_handle", "destroy_handle", "set_stream"):
        ours = inspect.signature(getattr(Frontend, name)).parameters
        theirs = inspect.signature(getattr(real, name)).parameters
        assert [*ours][1:] == [*theirs]
    own = [name for name in vars(Graph) if not name.startswith("_")]
    for name in own:
        theirs = inspect.signature(getattr(real.pygraph, name)).parameters
        takes_all = any(each.kind is each.VAR_KEYWORD for each in theirs.values())
        ours = inspect.signature(getattr(Graph, name)).parameters
        assert takes_all or ours.keys() <= theirs.keys(), name
    for kinds in (library_of_graphs.data_type, heur_mode, numerical_note):
        there = getattr(real, kinds.__name__).__members__
        assert set(kinds.__members__) <= set(there)
    for name in vars(library_of_graphs.Tensor):
        if name.startswith("set_"):
            assert callable(getattr(real.graph_types.Tensor, name))
    assert issubclass(real.cudnnGraphNotSupportedError, Exception)


REAL: list[Any] = [
    CALL._replace(has_bias=True, relu=True),
    CALL._replace(element="f16"),
    CALL._replace(x=CALL.y, y=CALL.x, transposed=True, element="bf16", has_bias=True),
    ATTENTION,
    ATTENTION._replace(causal="first", element="bf16"),
    ATTENTION._replace(causal="last", mask=Tensor(*contiguous(1, 1, 8, 8))),
]


@pytest.mark.parametrize("call", REAL)
def test_the_frontend_takes_what_is_described(call: Any) -> None:
    """It infers, without a library, the shapes of what is between."""
    real = pytest.importorskip("cudnn", reason="needs nvidia-cudnn-frontend")
    call.check(call.needed)
    kind = real.data_type.FLOAT
    graph = real.pygraph(
        io_data_type=kind, intermediate_data_type=kind, compute_data_type=kind,
        handle=None,
    )  # fmt: skip
    tensors = call.describe(real, graph)
    assert len(set(tensors)) == len(call.needed)
    try:
        graph.validate()
    except RuntimeError as error:  # at the end: there is no library, or no driver
        assert "cudnn" in str(error).lower() or "cuda" in str(error).lower()
    last = graph.nodes[-1]
    made = next(iter(last.outputs.values()))
    lies = call.o if isinstance(call, Attention) else call.y
    assert (tuple(made.dim), tuple(made.stride)) == (lies.shape, lies.strides)
    for node in graph.nodes:
        for tensor in node.outputs.values():
            assert tuple(tensor.dim) in ((), lies.shape)
