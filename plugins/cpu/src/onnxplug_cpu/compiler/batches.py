"""Loops of which only a run knows how many turns there are: many turns at a time.

What each turn gives is gathered, so a program needs to know how much that may be.  It
does up to so many turns, and is called again if there are more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.memory_limit import LARGE, check_growth
from onnxplug_compiler.frontend.call import Abstract, NotCompiled
from onnxplug_compiler.schedule.bodies import BatchCall, ControlFlowCall
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_cpu.compiler.filled_segment import beginning
from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable
from onnxplug_cpu.compiler.segment import Array, Compiler, Segment, Shapes

_ROOM: Final = 1 << 18
"""Bytes that are gathered at a time, about."""

_FEWEST, _MOST = 16, 1024
"""Turns of a batch."""

_MOST_SHAPES: Final = 64
"""Sets of shapes of which it is known what batches are for them."""


class Batches:
    """A Loop as a function of the inputs of its node, and of what its body captures.

    Args:
        compiler: what the session's segments share.
        call: the Loop.
        constants: values that never change.
        dtypes: of all values.
        nodes: the graph's nodes, by index, for errors and profiles.
    """

    def __init__(
        self,
        compiler: Compiler,
        call: ControlFlowCall,
        constants: Constants,
        dtypes: Mapping[str, np.dtype[Any] | None],
        nodes: Mapping[int, ep.Node],
    ) -> None:
        self._compiler = compiler
        self._call = call
        self._constants = constants
        self._nodes = nodes
        self._states = call.count - 2
        names = call.inputs[2:]
        # of the states and captures, which are no constants of the segment
        self._taken = [
            position
            for position, name in enumerate(names)
            if position < self._states or name not in constants
        ]
        self._dtypes = [
            dtypes[name]
            for position, name in enumerate(names)
            if position in self._taken and name is not None
        ]
        self._segments: dict[int, Segment] = {}
        self._found: dict[Shapes, Segment | None] = {}
        self._lock = new_lock()

    def __call__(
        self, arrays: Sequence[Any], context: ep.RunContext | None
    ) -> Sequence[Array] | None:
        """The outputs of the node; ``None`` if the body is not compiled, or for such
        inputs is not."""
        left_out = len(self._call.inputs) - len(arrays)  # of the first two
        limit, given = (*arrays[: 2 - left_out], None, None)[:2]
        values = [arrays[2 - left_out + position] for position in self._taken]
        shapes = tuple([np.shape(value) for value in values])
        segment = self._segment_for(shapes, arrays, left_out)
        if segment is None:
            return None
        remaining = None if limit is None else int(np.asarray(limit).item())
        goes_on = given is None or bool(np.asarray(given).item())
        unbound = (None,) * len(segment.outputs)
        states, others = values[: self._states], values[self._states :]
        gathered: list[list[Array]] = [[] for _ in unbound[self._states : -2]]
        most, done, nbytes, looked_at = self._most(segment), 0, 0, LARGE
        while goes_on and (remaining is None or done < remaining):
            number = most if remaining is None else min(most, remaining - done)
            if context is not None and context.cancelled:
                raise ep.RunCancelled("the run was cancelled between turns of a Loop")
            results = segment.run(
                [np.array(number), np.array(done), *states, *others], unbound, context
            )
            states, turns = list(results[: self._states]), int(results[-2].item())
            for items, whole in zip(gathered, results[self._states : -2], strict=True):
                items.append(beginning(whole, turns, 0))
                nbytes += items[-1].nbytes
            if nbytes > looked_at:
                check_growth(nbytes)
                looked_at = nbytes + LARGE
            goes_on = bool(results[-1].item())
            done += turns
        if not done:
            return None  # which nobody need be quick at
        return self._in_order(states, [_joined(items) for items in gathered])

    def _in_order(
        self, states: Sequence[Array], gathered: Sequence[Array]
    ) -> list[Any]:
        """All outputs of the node; ``None`` for those that nobody wants."""
        made = iter(gathered)
        wanted = self._call.outputs[self._states :]
        return [*states, *[None if name is None else next(made) for name in wanted]]

    @staticmethod
    def _most(segment: Segment) -> int:
        call = segment.calls[0]
        assert isinstance(call, BatchCall)
        return call.most

    def _segment_for(
        self, shapes: Shapes, arrays: Sequence[Any], left_out: int
    ) -> Segment | None:
        """What does turns for states and captures of these shapes."""
        try:
            return self._found[shapes]
        except KeyError:
            pass
        with self._lock:
            try:
                segment = self._made(shapes, arrays, left_out)
            except (NotCompiled, KernelUnavailable):
                segment = None
            if len(self._found) >= _MOST_SHAPES:
                self._found.clear()
            self._found[shapes] = segment
            return segment

    def _made(self, shapes: Shapes, arrays: Sequence[Any], left_out: int) -> Segment:
        call = self._call
        values = [None] * left_out + [
            None if each is None else Abstract.known(np.asarray(each))
            for each in arrays
        ]
        items = call.item_shapes(values)
        (body,) = call.bodies.values()
        nbytes = 8 * sum(
            math.prod(items[name]) for name in body.names[1 + self._states :]
        )
        most = max(_FEWEST, min(_MOST, _ROOM // max(1, nbytes)))
        segment = self._segments.get(most)
        if segment is None:
            segment = self._segments[most] = self._segment(BatchCall(call, most))
        number = ()
        segment.plan((number, number, *shapes))
        return segment

    def _segment(self, call: BatchCall) -> Segment:
        inputs = [call.inputs[2 + position] for position in self._taken]
        integer = np.dtype(np.int64)
        return Segment(
            self._compiler,
            [call],
            {},
            self._constants,
            [name for name in (*call.inputs[:2], *inputs) if name is not None],
            [name for name in call.outputs if name is not None],
            [integer, integer, *self._dtypes],
            self._nodes,
        )


def _joined(items: Sequence[Array]) -> Array:
    return items[0] if len(items) == 1 else np.concatenate(items)
