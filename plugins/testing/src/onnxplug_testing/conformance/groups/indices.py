"""Whether an index that is out of range is an error, and no number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.laboratory import Array
from onnxplug_testing.conformance.specimens import Specimen, agrees, takes
from onnxplug_testing.conformance.trial import Trial, in_words

OUT_OF_RANGE: Final = Sentence(
    "What is promised",
    "one that is out of range at run time is an error, also in compiled code",
    "explanation/robustness.md",
)

_ROWS: Final = 4

_Shape: TypeAlias = tuple[int, ...]

_NODES: Final[Mapping[str, tuple[str, _Shape, Mapping[str, _Shape]]]] = {
    "Gather": ("Gather (x, i)", (2,), {}),
    "GatherElements": ("GatherElements (x, i)", (2, 3), {}),
    "GatherND": ("GatherND (x, i)", (2, 1), {}),
    "ScatterElements": ("ScatterElements (x, i, z)", (2, 3), {"z": (2, 3)}),
    "ScatterND": ("ScatterND (x, i, z)", (2, 1), {"z": (2, 3)}),
}
"""Operators that look up rows of ``x``, of four rows of three: the node, the shape of
the indices, and what else it reads."""

_WRONG: Final = (_ROWS, -_ROWS - 1, 1 << 33)
"""Indices that four rows do not have, one of which fits into 32 bits by chance."""


@check("failure", share=0.3)
def indices(trial: Trial) -> None:
    """Indices that are out of range raise, whatever looks them up, and the next run is
    right."""
    for specimen in _specimens(trial):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        places = np.arange(feeds["i"].size).reshape(feeds["i"].shape)
        feeds["i"] = np.asarray(places % 2, np.int64)
        case = specimen.case(feeds, "of indices that are out of range")
        if not trial.attempt(case):
            return
        expected = specimen.expected(feeds)["y"]
        with trial.subject.session(specimen.model, checked=False) as session:
            for wrong in _WRONG:
                trial.count()
                beyond = np.where(places == 1, wrong, feeds["i"])
                case = specimen.case({**feeds, "i": beyond})
                _expect_error(trial, session, specimen, case, wrong)
                try:
                    (found,) = session.run(None, dict(feeds))
                except Exception as error:  # noqa: BLE001 (whatever it raises)
                    ep.raise_interruption(error)
                    text = f"after an index of {wrong}, {in_words(error)}"
                    trial.find(said.GOES_ON, text, node=specimen.name, case=case)
                    break
                if not agrees(found, expected):
                    text = f"after an index of {wrong}, the next run is wrong"
                    trial.find(said.GOES_ON, text, node=specimen.name, case=case)


def _specimens(trial: Trial) -> Iterator[Specimen]:
    """A node of each operator that the EP takes."""
    for name, (node, shape, others) in _NODES.items():
        shapes = {"x": (_ROWS, 3), "i": shape, **others}
        inputs = ", ".join(
            f"{'int64' if each == 'i' else 'float'}{list(size)} {each}"
            for each, size in shapes.items()
        )
        model = onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (float[n, 3] y) '
            f"{{ y = {node} }}"
        )
        specimen = Specimen(
            name,
            model.SerializeToString(),
            ep.DataType.FLOAT32,
            shapes,
            ReferenceEvaluator(model),
        )
        if takes(trial.subject, specimen):
            yield specimen
        else:
            trial.leave_out(f"the EP does not take {name} of indices that are fed")


def _expect_error(
    trial: Trial, session: Any, specimen: Specimen, case: Any, wrong: int
) -> None:
    try:
        found: Array = session.run(None, dict(case.feeds))[0]
    except Exception as error:  # noqa: BLE001 (as it is to)
        ep.raise_interruption(error)
        return
    row = np.asarray(found).ravel()[:3].tolist()
    trial.find(
        OUT_OF_RANGE,
        f"an index of {wrong}, with {_ROWS} rows there, gave {row} …, and no error",
        node=specimen.name,
        case=case,
        kind=specimen.name,
    )
