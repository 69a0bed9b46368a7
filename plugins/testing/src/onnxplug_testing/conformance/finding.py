"""What a check found: which sentence was broken, where, by what, and how to see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_testing.conformance.contract import Sentence

Array: TypeAlias = Any
"""A numpy array."""


class Case(Record):
    """A model and what it is fed.

    Attributes:
        model: an ``onnx.ModelProto``, serialized.
        feeds: arrays by the names of inputs.
        name: what it is, in words.
    """

    model: bytes
    feeds: Mapping[str, Array]
    name: str = ""


class Finding(Record):
    """A breach of the contract.

    Attributes:
        group: that of the check, such as ``operators``.
        check: its name.
        sentence: what was broken.
        what: what happened: found and expected.
        node: the operator, with its version and what it makes; empty where no single
            one is meant.
        types: element types of what the node or the model was fed, by name.
        shapes: likewise.
        case: the name of what was tried.
        file: the folder of what reproduces it; empty where nothing does.
        times: how often the same was found; the others are not told again.
    """

    group: str
    check: str
    sentence: Sentence
    what: str
    node: str = ""
    types: Mapping[str, str] = {}
    shapes: Mapping[str, Sequence[int]] = {}
    case: str = ""
    file: str = ""
    times: int = 1

    def as_json(self) -> dict[str, Any]:
        """Itself as JSON can hold it."""
        return self._asdict() | {
            "sentence": {
                "of": self.sentence.of,
                "says": self.sentence.says,
                "link": self.sentence.link,
            },
            "types": dict(self.types),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
        }
