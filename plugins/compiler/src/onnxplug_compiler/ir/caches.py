"""Attention to a cache that is longer than what is in it."""

from __future__ import annotations

from typing import Any, Protocol

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class Starts(Record):
    """Where new rows begin in a cache, and how many there are with them.

    Attributes:
        view: int32 or int64 [B], a number of each sequence.
        first: is added to it for the row of the cache that the first new one is.
        end: is added to it for how many rows are in use then.
        clamped: a row before the first one stands for that.
    """

    view: View
    first: int
    end: int
    clamped: bool = False


class Rotation(Record):
    """Rotary position embedding (J. Su et al., "RoFormer", 2021).

    Attributes:
        cos, sin: [positions, pairs], of the type of what is rotated.
        places: int64 [B, S], where each row stands; by default where the cache has it.
        interleaved: a pair is two neighbours, and not an element of the first half of
            what is rotated and its counterpart in the second.
    """

    cos: View
    sin: View
    places: View | None
    interleaved: bool


class Caches(Protocol):
    """Rows that are written into caches, and attention to these.

    An index that is out of range, of a table or the cache, is an IndexError where the
    work is waited for.
    """

    def record_kept(
        self,
        recorder: Recorder[Any],
        past: View,
        present: View,
        starts: Starts | None,
        *,
        label: str = "",
    ) -> None:
        """Let *present* have the rows of *past* before the new ones, and zeros from
        there on; or be as it is, where it is the same memory.

        Args:
            past: [B, G, P, D].
            present: [B, G, T, D], T no less than P.
            starts: ``None`` for all rows of *past*.
        """

    def record_placed(
        self,
        recorder: Recorder[Any],
        new: View,
        out: View,
        starts: Starts,
        *,
        rotation: Rotation | None = None,
        shifted: bool = True,
        label: str = "",
    ) -> None:
        """Write rows into a cache, or to where they are attended from.

        Args:
            new: [B, G, S, D].
            out: [B, G, T, D]; other rows stay.  Of narrower floats, where the target
                has these as factors, rows are rounded once, when they have been
                rotated; of int8 or uint8, where caches may have codes, rows are
                integers that these have.
            rotation: of the rows; what of them has no pair stays as it is.
            shifted: the rows begin in *out* where *starts* says; without, at 0.
        """

    def record_cached_attention(
        self,
        recorder: Recorder[Any],
        q: View,
        k: View,
        v: View,
        out: View,
        starts: Starts,
        *,
        scale: float,
        mask: View | None = None,
        causal: bool = False,
        window: int | None = None,
        softcap: float = 0.0,
        sinks: View | None = None,
        label: str = "",
    ) -> None:
        """As ``families.Attention.record_attention``, to the rows in use only.

        Args:
            k, v: of narrower floats than *q*, too, where the target has these as
                factors; or codes, where caches may have some: int8, or uint8 with two
                of 4 bits, the lower first, which stand for what is 8 less.
            window: how many keys before its own a query sees, if not all.
            sinks: [H], scores of no key.

        Raises:
            ValueError: heads are too large.
        """
