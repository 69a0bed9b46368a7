"""Which partitions are not worth their copies, by what EPs say of copies and nodes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, EpWarning
from onnxplug.selection.devices import judged_devices
from onnxplug_testing import Knobs, SimulatedFactory

MakeSimulated = Callable[..., SimulatedFactory]

FIRST, OTHER = "FirstExecutionProvider", "OtherExecutionProvider"
MIB = 262144  # floats

# First has Neg and Abs between two nodes of the CPU EP's: two copies of 1 MiB
MODEL = onnx.parser.parse_model(
    f"""
    <ir_version: 10, opset_import: ["": 21]>
    island (float[{MIB}] x) => (float[{MIB}] y)
    {{ a = Erf (x) b = Neg (a) c = Abs (b) y = Erf (c) }}
    """
)
ISLAND = frozenset({"Neg", "Abs"})
COPIES = ep.Costs(seconds_per_copy=1e-3, seconds_per_byte=1e-9)
"""By which the copies take 2 ms and 2.1 ms."""


def reasons(model: Any = MODEL, names: Sequence[str] = (FIRST,)) -> list[str]:
    """Why partitions are given back because of what they cost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EpWarning)
        session = onnxplug.InferenceSession(model, providers=names)
    with session:
        return [
            back.reason.detail
            for back in session.explain().given_back
            if back.reason.code is ep.RefusalCode.COST
        ]


def test_the_reason_says_what_was_weighed_in_units_that_fit(
    simulated: MakeSimulated,
) -> None:
    simulated(name=FIRST, ops=ISLAND, costs=COPIES)
    assert reasons() == [
        "2 copies of 2 MiB cost about 4.1 ms, and its 2 nodes gain about 40 µs"
    ]


@pytest.mark.parametrize(
    ("costs", "given_back"),
    [
        (None, True),  # 240 µs for the copies, 40 µs for the nodes
        (ep.Costs(seconds_per_byte=0), False),  # 30 µs for the copies
        (ep.Costs(seconds_gained_per_node=130e-6), False),
        (ep.Costs(seconds_per_copy=0, seconds_per_byte=0), False),
    ],
)
def test_each_of_the_costs_counts(
    simulated: MakeSimulated, costs: ep.Costs | None, given_back: bool
) -> None:
    simulated(name=FIRST, ops=ISLAND, costs=costs)
    assert bool(reasons()) is given_back


@pytest.mark.parametrize(
    ("here", "there", "gain"),
    [
        (1e-3, 6e-3, None),  # 5 ms are more than the copies take
        (1e-3, 5e-3, "about 4 ms (1 ms here, 5 ms on OtherExecutionProvider)"),
        (5e-3, 1e-3, "nothing (5 ms here, 1 ms on OtherExecutionProvider)"),
        # unless both know, so much for each node
        (None, 1.0, "about 40 µs"),
        (1e-6, None, "about 40 µs"),
    ],
)
def test_estimates_are_compared(
    simulated: MakeSimulated, here: float | None, there: float | None, gain: str | None
) -> None:
    for name, seconds in ((FIRST, here), (OTHER, there)):
        each = None if seconds is None else dict.fromkeys(ISLAND, seconds / 2)
        simulated(
            name=name,
            ops=ISLAND,
            costs=COPIES if name == FIRST else ep.Costs(seconds_gained_per_node=1),
            seconds=each,
        )
    told = f"2 copies of 2 MiB cost about 4.1 ms, and its 2 nodes gain {gain}"
    # the other one is weighed against the CPU EP then
    assert reasons(names=(FIRST, OTHER))[:1] == ([] if gain is None else [told])


def test_nodes_that_would_go_to_several_are_estimated_by_each(
    simulated: MakeSimulated,
) -> None:
    half = {"Neg": 2e-3, "Abs": 2e-3}
    simulated(name=FIRST, ops=ISLAND, costs=COPIES, seconds={})
    simulated(name=OTHER, ops=frozenset({"Neg"}), seconds=half)
    simulated(name="LastExecutionProvider", ops=frozenset({"Abs"}), seconds=half)
    names = (FIRST, OTHER, "LastExecutionProvider")
    told = reasons(names=names)
    assert told[0].endswith(
        "gain about 4 ms (0 µs here, 4 ms on OtherExecutionProvider, "
        "LastExecutionProvider)"
    )


def test_without_copies_an_ep_keeps_what_it_claimed_whatever_it_estimates(
    simulated: MakeSimulated,
) -> None:
    ops = ISLAND | {"Erf"}
    simulated(name=FIRST, ops=ops, costs=COPIES, seconds={"Erf": 1.0})
    simulated(name=OTHER, ops=ops, seconds={})
    assert reasons(names=(FIRST, OTHER)) == []


@pytest.mark.parametrize(
    "answer", [-1.0, float("nan"), float("inf"), "soon", ValueError("no idea")]
)
def test_an_estimate_that_is_none_is_a_failure_of_the_ep(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    factory = simulated(name=FIRST, ops=ISLAND, costs=COPIES)
    create = factory.create

    def estimate(graph: ep.Graph, nodes: Sequence[ep.Node]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def create_wrong(*arguments: Any) -> Any:
        provider = create(*arguments)
        provider.cost_model.estimate = estimate  # type: ignore[method-assign]
        return provider

    monkeypatch.setattr(factory, "create", create_wrong)
    with pytest.raises(EpError, match=FIRST) as caught:
        onnxplug.InferenceSession(MODEL, providers=[FIRST])
    assert (caught.value.ep, caught.value.stage) == (FIRST, "estimate")
    with pytest.warns(EpWarning, match="is used instead"):
        onnxplug.InferenceSession(MODEL, providers=[FIRST, "cpu"])


@pytest.mark.parametrize(
    "costs",
    [
        {"seconds_per_copy": 1},
        ep.Costs(seconds_per_copy=-1.0),
        ep.Costs(seconds_per_byte=float("nan")),
        ep.Costs(seconds_gained_per_node=float("inf")),
        ep.Costs(seconds_per_copy="15 µs"),  # type: ignore[arg-type]
    ],
)
def test_costs_that_are_none_are_refused_with_the_pair(costs: Any) -> None:
    factory = SimulatedFactory(Knobs(costs=costs))
    with pytest.raises(EpError, match=r"SimulatedExecutionProvider.*costs.*expected"):
        judged_devices(factory, [])
