"""Compares what two choices of EPs make of one model and the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from onnxplug.errors import OnnxplugError
from onnxplug.tolerances import tolerance_for
from onnxplug_cli.comparison.differences import Difference
from onnxplug_cli.comparison.divergence import Divergence, examine
from onnxplug_cli.comparison.reproduction import read_model
from onnxplug_cli.comparison.search import NotFound, Search
from onnxplug_cli.comparison.sides import OpenSession, Sides

if TYPE_CHECKING:
    from onnxplug import InferenceSession, SessionOptions


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of it.

    Attributes:
        outputs: how each array in the outputs differs, also where nothing does.
        runs: how often each side has run the model.
        divergence: where the two part, if that was asked for and they do.
        not_found: why there is nowhere that they part, though they differ.
    """

    outputs: tuple[Difference, ...]
    runs: int
    divergence: Divergence | None = None
    not_found: str = ""

    @property
    def agrees(self) -> bool:
        """Whether all outputs agree within tolerance."""
        return all(each.agrees for each in self.outputs)


def compare(
    model: Any,
    providers: Sequence[str],
    inputs: Mapping[str, Any],
    *,
    reference: Sequence[str] = ("cpu",),
    sess_options: SessionOptions | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    bisect: bool = False,
) -> Comparison:
    """Run *model* on *providers* and on the *reference*, and compare all outputs.

    Args:
        model: a path, bytes, or a ``ModelProto``.
        providers: the EPs in question, best first.
        inputs: a value for each input.
        reference: the EPs that are right.
        sess_options: of both sessions.
        rtol, atol: how far elements may be from the reference's, relative to those and
            absolute, whatever their type; by default :data:`TOLERANCES`.
        bisect: find where the two part, too, by further runs that look at values on the
            way.

    Raises:
        ValueError: a tolerance is negative, infinite or NaN.
        OnnxplugError: the model, an EP or an input cannot be used.
    """

    def opened(model: Any, choice: Sequence[str]) -> InferenceSession:
        from onnxplug import InferenceSession

        return InferenceSession(model, sess_options, providers=list(choice))

    with open_sides(model, (providers, reference), opened, rtol, atol) as sides:
        return compare_sides(sides, model, inputs, bisect=bisect)


def open_sides(
    model: Any,
    choices: tuple[Sequence[str], Sequence[str]],
    open_session: OpenSession,
    rtol: float | None,
    atol: float | None,
) -> Sides:
    """Both sessions, opened by *open_session*; see :func:`compare`."""
    tolerance_of = partial(tolerance_for, relative=rtol, absolute=atol)
    tolerance_of("float32")  # what does not fit is to be said before anything runs
    return Sides(model, choices, open_session, tolerance_of)


def compare_sides(
    sides: Sides, model: Any, inputs: Mapping[str, Any], *, bisect: bool
) -> Comparison:
    """Run both *sides* on *inputs*; see :func:`compare`."""
    names = [output.name for output in sides.sessions[0].get_outputs()]
    values = sides.run(names, inputs)
    found = tuple(sides.compare(names, values))
    wrong = sides.disagree(names, values)
    if not (bisect and wrong):
        return Comparison(found, sides.runs)
    proto, folder = read_model(model)
    try:
        part = Search(sides, proto.graph, wrong, inputs).find()
    except NotFound as error:
        return Comparison(found, sides.runs, not_found=str(error))
    except OnnxplugError as error:
        error.add_note(
            f"{', '.join(map(repr, wrong))} differs beyond tolerance; this was raised "
            "while values on the way to it were looked at, for where the two part"
        )
        raise
    divergence = examine(sides, part, proto, folder, inputs)
    return Comparison(found, sides.runs, divergence)
