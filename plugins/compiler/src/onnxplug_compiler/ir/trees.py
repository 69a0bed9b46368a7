"""Ensembles of decision trees, and what becomes of their votes."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_kernels.ml.forest import Forest


class Classes(Record):
    """How the class of a row is found, and where its label goes.

    Attributes:
        labels: of the classes, int64.
        chosen: [rows], int64.
        sole: the class that all votes are for, if there are two; ``None`` otherwise,
            where the class with the greatest score is a row's.
        limit: what the score of *sole* has to be above for the second class.
        paired: of *sole*, whether the first class's score follows from it, which is
            then the second's: ``complement``, 1 less it; ``negated``, its negative; or
            empty.
    """

    labels: np.ndarray[Any, np.dtype[np.int64]]
    chosen: View
    sole: int | None = None
    limit: float = 0.0
    paired: str = ""


class Scoring(Record):
    """How rows are scored.

    Attributes:
        forest: the trees; arrays of numpy.
        aggregate: ``SUM``, ``AVERAGE``, ``MIN`` or ``MAX`` of the votes for a target.
        base: what is added to the scores of each target, float64; ``None`` for nothing.
        classes: ``None`` if rows have none.
    """

    forest: Forest
    aggregate: str = "SUM"
    base: np.ndarray[Any, np.dtype[np.float64]] | None = None
    classes: Classes | None = None


class Trees(Protocol):
    """Ensembles of decision trees."""

    def record_trees(
        self, recorder: Recorder[Any], x: View, out: View, scoring: Scoring, label: str
    ) -> None:
        """The scores that trees give rows, and their classes.

        Args:
            x: [rows, features], float32, float64, int32 or int64; rows of at least as
                many features as the trees look at.
            out: [rows, targets], in C order: float32, or float64 where scores stay as
                they are.
        """
