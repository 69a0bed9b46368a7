"""Runs what an EP restored; whatever is out of the ordinary is left to the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug.attached import attached
from onnxplug.authoring.files import Identity
from onnxplug.ep.types import (
    MapType,
    SequenceType,
    TensorType,
    ValueType,
    named_sizes,
)
from onnxplug.errors import InputError
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.session.inputs import InputChecker
from onnxplug.session.model_info import NodeArg
from onnxplug.session.named_outputs import NamedOutputs
from onnxplug.session.outputs import DeclaredShapes, own
from onnxplug.session.start.plain import type_of
from onnxplug.shapes.symbols import BeliedSymbols

if TYPE_CHECKING:
    from onnxplug.ep import CompiledPartition
    from onnxplug.session.start.entry import KeptSession

Shapes: TypeAlias = tuple[tuple[int, ...] | None, ...]

MOST_SEEN: Final = 1024
"""Sets of shapes that are remembered as having fit."""


class StartRunner(NamedOutputs):
    """The runs of a session whose model was not read, from any number of threads.

    Args:
        kept: what is known of the model.
        compiled: what its EP restored.

    Attributes:
        files: those of the model as they were.
        input_names: the model's inputs, in order.
        required: these; none has a default.
        optional: none.
        providers: the names of the EPs in use.
        profile: none; what is recorded has the model opened.
    """

    optional: tuple[str, ...] = ()
    profile = None

    def __init__(self, kept: KeptSession, compiled: CompiledPartition) -> None:
        super().__init__(kept.outputs)
        self.files: Mapping[str, Identity] = {
            path: Identity(*state[:4]) for path, state in kept.files
        }
        self.input_names = self.required = [name for name, _ in kept.inputs]
        self.providers = [kept.ep]
        self._described = {each[0]: NodeArg(*each) for each in kept.described}
        inputs = {name: type_of(plain) for name, plain in kept.inputs}
        self._checker = InputChecker(inputs, {})
        self._declared = DeclaredShapes(
            {name: type_of(plain) for name, plain in kept.declared}
        )
        self._taken, self._given = kept.taken, kept.given
        types = list(inputs.values())
        self._in_order = kept.taken == list(range(len(types)))
        self._out_of_order = kept.given != list(range(len(kept.results)))
        self._arguments = [types[number] for number in kept.taken]
        self._results = Results(self._arguments, [type_of(t) for t in kept.results])
        self._unbound = (None,) * len(kept.results)
        self._compiled: CompiledPartition | None = compiled

    def attach(self, session: object) -> None:
        """Let plugins know that *session* uses its EP."""
        for ep in self.providers:
            attached.attach(ep, session)

    def detach(self, session: object, but: Collection[str] = ()) -> None:
        """Undo :meth:`attach`, *but* of those that the session uses for another."""
        for ep in {*self.providers} - {*but}:
            attached.detach(ep, session)

    def close(self) -> None:
        """Run no more; what runs in other threads ends."""
        self._compiled = None

    def describe(self, names: Iterable[str]) -> list[NodeArg]:
        """The inputs or outputs of these *names*."""
        return [self._described[name].copy() for name in names]

    def call(self, feed: Mapping[str, Any]) -> list[Any] | None:
        """The results for a feed; ``None`` if the model has to tell."""
        compiled = self._compiled
        if compiled is None:
            return None
        try:
            inputs = self._checker.pass_on(feed)
        except (InputError, BeliedSymbols):
            return None
        if inputs is None:
            return None
        arguments = inputs if self._in_order else [inputs[n] for n in self._taken]
        try:
            results = compiled.run(arguments, self._unbound, None)
            if not self._results.fit(arguments, results):
                return None
        # the model, which is run anew, tells whose failure it is
        except FAILURES as error:
            raise_interruption(error)
            return None
        if self._out_of_order:
            results = [results[number] for number in self._given]
        owned = own(results, inputs)
        self._declared.check(owned)
        return owned


class Results:
    """What an EP returns, held against what follows from the operators.

    Args:
        inputs, outputs: types of a partition's values.
    """

    def __init__(
        self, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._seen: set[Shapes] = set()

    @staticmethod
    def can_tell(types: Iterable[ValueType | None]) -> bool:
        """Whether values of these types are sure to be told from all others."""
        for type in types:
            match type:
                case TensorType(dtype) if dtype is not None:
                    pass
                case MapType() | SequenceType(MapType()):
                    pass
                case _:
                    return False
        return True

    def fit(self, inputs: Sequence[Any], results: Sequence[Any]) -> bool:
        """Whether *results*, of a run on *inputs*, are what they have to be."""
        if len(results) != len(self._outputs):
            return False
        for type, result in zip(self._outputs, results, strict=True):
            if not _is_of(result, type):
                return False
        values = (*inputs, *results)
        shapes = tuple([getattr(value, "shape", None) for value in values])
        if shapes in self._seen:
            return True
        sizes = named_sizes(self._inputs, shapes[: len(inputs)])
        for type, result in zip(self._outputs, results, strict=True):
            if isinstance(type, TensorType):
                expected = type.shape_for(sizes)
                if expected is not None and not _fits(result.shape, expected):
                    return False
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(shapes)
        return True


def _is_of(result: Any, value_type: ValueType | None) -> bool:
    match value_type:
        case TensorType(dtype) if dtype is not None:
            return type(result) is np.ndarray and result.dtype is dtype.numpy
        case MapType():
            return type(result) is dict
    return type(result) is list and all(type(each) is dict for each in result)


def _fits(found: Sequence[int], expected: Sequence[int | None]) -> bool:
    return len(found) == len(expected) and all(
        size is None or size == have for have, size in zip(found, expected, strict=True)
    )
