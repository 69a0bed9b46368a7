"""What predictors of tables do beside products: classes, distances, look-ups."""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class Keys(Record):
    """What elements are looked up for.

    Attributes:
        ordered: ascending, each once, none NaN; of the elements' dtype.
        places: of the value of each, int64.
        nan: the place of that of NaN.
        other: the place of that of what is no key.
    """

    ordered: np.ndarray[Any, Any]
    places: np.ndarray[Any, np.dtype[np.int64]]
    nan: int
    other: int


class Grams(Record):
    """Sequences of tokens that are counted, as a trie for each length.

    Attributes:
        buckets: [2ⁿ, 4], int64: of an edge the state from which it leads, or -1 for
            none; the token that it takes; and where it leads: to a state, or at the
            end of a sequence to the column in which that is counted, or -1.  An edge
            is in the bucket of :data:`HASH` or in the first free one after it; at
            least one is free.  The state in which length n begins is n.
        shortest, longest: of the lengths that are counted.
        steps: how far tokens of a sequence are apart at most.
    """

    buckets: np.ndarray[Any, np.dtype[np.int64]]
    shortest: int
    longest: int
    steps: int


HASH: Final = (0x9E3779B97F4A7C15 - (1 << 64), 0xC2B2AE3D27D4EB4F - (1 << 64), 29)
"""Factors of state and token, and by how many bits their sum is shifted and combined
with itself, all of int64 that wraps: a hash is the lowest bits of what comes of it."""


class Tables(Protocol):
    """What predictors of tables do beside products."""

    def record_distances(
        self,
        recorder: Recorder[Any],
        x: View,
        vectors: np.ndarray[Any, Any],
        out: View,
        label: str,
    ) -> None:
        """The square of the distance of each row to each of some vectors.

        Args:
            x: [rows, features], float32 or float64.
            vectors: [count, features], of x's dtype; the same object in each plan.
            out: [rows, count], float32, in C order.
        """

    def record_votes(
        self,
        recorder: Recorder[Any],
        scores: View,
        labels: View,
        chosen: View,
        label: str,
    ) -> None:
        """The label of the class that most pairs of classes vote for; of equal ones
        the first.

        Args:
            scores: [rows, pairs], float32, with consecutive columns: of pairs i < j,
                row by row of the upper triangle, above 0 for i.
            labels: [classes], int64.
            chosen: [rows], int64.
        """

    def record_coupling(
        self, recorder: Recorder[Any], pairs: View, out: View, label: str
    ) -> None:
        """Probabilities of classes from those of each against each other one.

        Source: T.-F. Wu, C.-J. Lin, R. C. Weng, Probability estimates for multi-class
        classification by pairwise coupling, 2004, algorithm 2, with the tolerance and
        the limit of LIBSVM's ``multiclass_probability``; in float64.

        Args:
            pairs: [rows, pairs], float32, above 0 and below 1, with consecutive
                columns: of pairs as in :meth:`record_votes`, that of i.
            out: [rows, classes], float32, with consecutive columns; at least two.
        """

    def record_grams(
        self, recorder: Recorder[Any], tokens: View, grams: Grams, out: View, label: str
    ) -> None:
        """How often sequences of tokens are in each row.

        Args:
            tokens: [rows, tokens], int32 or int64.
            out: [rows, columns], float32, in C order.
        """

    def maps_quickly(self, recorder: Recorder[Any]) -> bool:
        """Whether bytes are looked up faster than a chain requantises them."""

    def record_mapped(
        self, recorder: Recorder[Any], x: View, table: View, out: View, label: str
    ) -> None:
        """The byte that a table has for each.

        Args:
            x: int8 or uint8, taken for uint8.
            table: 256 bytes, in C order.
            out: of x's shape, int8 or uint8.
        """

    def record_lookup(
        self,
        recorder: Recorder[Any],
        x: View,
        keys: Keys,
        values: View,
        out: View,
        label: str,
    ) -> None:
        """The value of each element, which is a key or another.

        Args:
            x: of the keys' dtype: float32, float64, int32 or int64.
            values: at the places of keys; of a constant, in C order.
            out: of x's shape and of the dtype of *values*.
        """
