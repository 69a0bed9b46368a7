"""Values that are told apart by their texts."""

from __future__ import annotations

from onnxplug.authoring.record import Record


class Parameters(Record):
    """Values that code depends on, told apart by their texts.

    Fields are texts, numbers, truth values, ``None``, and tuples and Parameters of
    such.  Equality would take 1 for ``True`` and -0.0 for 0.0.
    """

    __repr__ = tuple.__repr__  # all of it is done natively
