"""Bodies of control flow as parts of what is around them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.bounds import normal_axis
from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Abstract, Call, NotCompiled, numpy_dtype
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.plan import Plans

NUMBER: Final = Abstract(np.dtype(np.int64), ())
"""Which turn it is."""

CONDITION: Final = Abstract(np.dtype(np.bool_), ())
"""Whether there is a turn."""

_FEW: Final = 64
"""Elements of contents that are told apart when plans are made."""


class Body:
    """A body that is planned whole, or not at all.

    Args:
        partition: the body.
        calls: its nodes, in order.
        constants: what it reads that never changes.
        dtypes: of what it takes.
        find_forms: the element-wise calls, as steps of chains, or why some call is not
            compiled for a target.
        captures: names that it takes from the graphs around it, but for constants.

    Attributes:
        inputs: names of what a plan takes: the inputs of the body, then the captures.
        names: those of the outputs of the body.
        results: names of the outputs, or of what they are other names of.
        outputs: names of what a plan gives: the results that are no inputs, each once.
    """

    def __init__(
        self,
        partition: ep.Partition,
        calls: Sequence[Call],
        constants: Constants,
        dtypes: Mapping[str, np.dtype[Any] | None],
        find_forms: Callable[[Support], Mapping[Call, StepForm] | str],
        captures: Sequence[str],
    ) -> None:
        self.inputs: Final = (*partition.graph.inputs, *captures)
        self._first_capture = len(partition.graph.inputs)
        origins = {
            call.outputs[0]: call.inputs[0]
            for call in calls
            if call.op_type == "Identity" and not call.domain
        }

        def origin(name: str) -> str:
            while (other := origins.get(name)) is not None:
                name = other
            return name

        self.names: Final = tuple(partition.graph.outputs)
        self.results: Final = tuple(map(origin, self.names))
        given = set(self.inputs)
        self.outputs: Final = tuple(
            dict.fromkeys(name for name in self.results if name not in given)
        )
        self._calls = calls
        self._constants = constants
        self._dtypes = dtypes
        self._find_forms = find_forms
        self._lock = new_lock()
        self._plans: Plans | None = None

    @property
    def captures(self) -> Sequence[str]:
        """The names of what it captures, but for constants."""
        return self.inputs[self._first_capture :]

    def why_not(self, target: Support) -> str | None:
        """Why it is not compiled for *target*; ``None`` if it is."""
        with self._lock:
            if self._plans is not None:
                return None
            for name in self.inputs:
                if self._dtypes[name] is None:
                    return f"the type of {name!r} is unknown"
            forms = self._find_forms(target)
            if isinstance(forms, str):
                return forms
            self._plans = Plans(
                self._calls, forms, self._constants, self.inputs, self.outputs
            )
            return None

    @property
    def is_planned(self) -> bool:
        """Whether there are plans of it."""
        return self._plans is not None

    @property
    def plans(self) -> Plans:
        """Makes plans of it, once :meth:`why_not` has nothing to say."""
        assert self._plans is not None
        return self._plans

    def follow(self, inputs: Sequence[Abstract]) -> list[Abstract]:
        """What is known of the results.

        Raises:
            NotCompiled: the array tier has to compute some call.
        """
        try:
            found = self.plans.inference.infer(inputs, lambda: None)
        except NotCompiled as refusal:
            raise self.refused(refusal) from refusal
        values = dict(zip(self.inputs, inputs, strict=True))
        for name in self.outputs:
            value = found.values[self.plans.slots[name]]
            if value is None:
                raise NotCompiled(f"the shape of {name!r} does not follow")
            values[name] = value
        return [values[name] for name in self.results]

    def refused(self, refusal: NotCompiled) -> NotCompiled:
        """What a call of the body says, as said of the call that has the body."""
        name = "" if refusal.call is None else f"{refusal.call.op_type} of a body: "
        return NotCompiled(f"{name}{refusal}")


class ControlFlowCall(Call):
    """A call of If, Loop or Scan.

    Its inputs are those of the node, of a Loop two at least, and then what bodies
    capture, constants included.

    Attributes:
        bodies: by the attribute that holds them.
        count: how many inputs there are before the captures.
    """

    __slots__ = ("bodies", "count")

    def __init__(
        self,
        partition: ep.Partition,
        node: ep.Node,
        bodies: Mapping[str, Body],
        function: Callable[..., Any],
    ) -> None:
        given = node.inputs
        if node.op_type == "Loop":
            given += (None,) * (2 - len(given))
        super().__init__(
            node.op_type,
            node.domain,
            partition.graph.opset(),
            (*given, *node.captures),
            tuple(node.outputs),
            node.attributes,
            (node.index,),
            tuple(numpy_dtype(partition, name) for name in node.outputs),
            function,
            functools.partial(_infer, self),
        )
        self.bodies = bodies
        self.count = len(given)

    def captured(self, body: Body, values: Sequence[Abstract | None]) -> list[Abstract]:
        """What a plan of *body* knows of its captures.

        Args:
            values: what is known of the call's inputs, by position.
        """
        found: list[Abstract] = []
        for name in body.captures:
            value = values[self.inputs.index(name, self.count)]
            if value is None:
                raise NotCompiled(f"nothing is known of {name!r}", self)
            few = value.content is not None and value.content.size <= _FEW
            content = value.content if few else None
            found.append(Abstract(value.dtype, value.shape, content, few))
        return found

    def item_shapes(
        self, values: Sequence[Abstract | None]
    ) -> dict[str, tuple[int, ...]]:
        """The shapes of what the body of a Loop or Scan gives in a turn, by name.

        Raises:
            NotCompiled: they do not follow.
        """
        (body,) = self.bodies.values()
        if not body.is_planned:
            raise NotCompiled("a body is not compiled", self)
        made = (_loop if self.op_type == "Loop" else _scan)(self, values).made
        names = body.names
        return {name: value.shape for name, value in zip(names, made, strict=True)}


def _own(name: str) -> str:
    """A name that no value of a model has."""
    return f"\0{name}"


class BatchCall(ControlFlowCall):
    """Some turns of a Loop.

    Its inputs are how many there are at most, a number of at least 1; the number of the
    first; the states; and the captures.  Its outputs are the states; what is gathered,
    with as many places as there may be turns; how many there were; and whether there
    is to be another.

    Args:
        call: the Loop.
        most: turns at most.
    """

    __slots__ = ("most",)

    def __init__(self, call: ControlFlowCall, most: int) -> None:
        states = range(call.count - 2)
        gathered = [
            None if name is None else _own(f"gathered {position}")
            for position, name in enumerate(call.outputs[len(states) :])
        ]
        Call.__init__(
            self,
            call.op_type,
            call.domain,
            call.version,
            (
                _own("limit"),
                _own("first turn"),
                *[_own(f"state {number}") for number in states],
                *call.inputs[call.count :],
            ),
            (
                *[_own(f"new state {number}") for number in states],
                *gathered,
                _own("turns"),
                _own("another turn"),
            ),
            call.attributes,
            call.nodes,
            (*call.dtypes, NUMBER.dtype, CONDITION.dtype),
            None,
            functools.partial(_infer, self),
        )
        self.bodies = call.bodies
        self.count = call.count
        self.most = most


def only(call: Call, value: Abstract | None, what: str) -> Any:
    """The element of a value of one; ``None`` if it is not known, or left out.

    Raises:
        NotCompiled: it has none, or several.
    """
    if value is None:
        return None
    if value.size != 1:
        raise NotCompiled(
            f"{what} has shape {list(value.shape)}, not one element", call
        )
    return None if value.content is None else value.content.item()


class Scanned(Record):
    """What is gone through in turns, or gathered.

    Attributes:
        axis: along which turns are, at least 0.
        backward: the first turn is the last along it.
    """

    axis: int
    backward: bool


class Rounds(Record):
    """A Loop or Scan, as a plan sees it.

    Attributes:
        body: what is done in each turn.
        taken: what is known of the inputs of the body, its captures included.
        made: what is known of its results.
        lead: how many inputs of the node, and of the body, are before the states.
        results_lead: how many results of the body are before the states.
        states: how many values go from turn to turn.
        scanned: of each input that is gone through.
        gathered: of each result that is gathered.
        turns: how many there are; ``None`` if that is not known.
    """

    body: Body
    taken: list[Abstract]
    made: list[Abstract]
    lead: int
    results_lead: int
    states: int
    scanned: Sequence[Scanned]
    gathered: Sequence[Scanned]
    turns: int | None

    @property
    def ends_early(self) -> bool:
        """Whether the body decides if there is another turn."""
        if not self.results_lead:
            return False
        name = self.body.results[0]
        if name == self.body.inputs[1]:
            return False
        content = self.made[0].content
        return content is None or not content.item()


def rounds(call: ControlFlowCall, values: Sequence[Abstract | None]) -> Rounds:
    """How a Loop or Scan is done.

    Args:
        values: what is known of the call's inputs, by position.

    Raises:
        NotCompiled: it is not compiled for such inputs.
    """
    found = (_loop if call.op_type == "Loop" else _scan)(call, values)
    states = slice(found.lead, found.lead + found.states)
    made = found.made[found.results_lead :]
    for value, result in zip(found.taken[states], made, strict=False):
        if (value.dtype, value.shape) != (result.dtype, result.shape):
            raise NotCompiled(
                f"a state of {value.dtype}{list(value.shape)} becomes one of "
                f"{result.dtype}{list(result.shape)}",
                call,
            )
    gathers = any(call.outputs[found.states : len(found.gathered) + found.states])
    if gathers and found.turns is None:
        raise NotCompiled("how many turns there are is not known", call)
    return found


def _state(call: Call, value: Abstract | None) -> Abstract:
    """A value that is another one in each turn."""
    if value is None:
        raise NotCompiled("a state is left out", call)
    return Abstract(value.dtype, value.shape)


def _loop(call: ControlFlowCall, values: Sequence[Abstract | None]) -> Rounds:
    (body,) = call.bodies.values()
    limit = only(call, values[0], "the number of turns")
    given = only(call, values[1], "the condition")
    if isinstance(call, BatchCall):
        given = True
    states = [_state(call, value) for value in values[2 : call.count]]
    taken = [NUMBER, CONDITION, *states, *call.captured(body, values)]
    made = body.follow(taken)
    only(call, made[0], "the condition of a body")
    first = values[1] is None or given
    turns = None if limit is None or not first else max(0, limit)
    gathered = [Scanned(0, False)] * (len(made) - 1 - len(states))
    found = Rounds(body, taken, made, 2, 1, len(states), (), gathered, turns)
    if isinstance(call, BatchCall):
        return found._replace(turns=call.most)
    return found._replace(turns=None) if found.ends_early else found


def _scan(call: ControlFlowCall, values: Sequence[Abstract | None]) -> Rounds:
    (body,) = call.bodies.values()
    attributes = call.attributes
    count = int(attributes["num_scan_inputs"])
    states = [_state(call, value) for value in values[: call.count - count]]
    axes = attributes.get("scan_input_axes") or (0,) * count
    ways = attributes.get("scan_input_directions") or (0,) * count
    scanned: list[Scanned] = []
    slices: list[Abstract] = []
    lengths: set[int] = set()
    for value, axis, backward in zip(
        values[call.count - count : call.count], axes, ways, strict=True
    ):
        whole = _state(call, value)
        axis = normal_axis(axis, len(whole.shape), "one of scan_input_axes")
        lengths.add(whole.shape[axis])
        scanned.append(Scanned(axis, bool(backward)))
        shape = whole.shape[:axis] + whole.shape[axis + 1 :]
        slices.append(Abstract(whole.dtype, shape))
    if len(lengths) != 1:
        raise NotCompiled(f"scan inputs have the lengths {sorted(lengths)}", call)
    taken = [*states, *slices, *call.captured(body, values)]
    made = body.follow(taken)
    results = made[len(states) :]
    out_axes = attributes.get("scan_output_axes") or (0,) * len(results)
    out_ways = attributes.get("scan_output_directions") or (0,) * len(results)
    gathered = [
        Scanned(
            normal_axis(axis, len(value.shape) + 1, "one of scan_output_axes"),
            bool(backward),
        )
        for value, axis, backward in zip(results, out_axes, out_ways, strict=True)
    ]
    turns = lengths.pop()
    return Rounds(body, taken, made, 0, 0, len(states), scanned, gathered, turns)


def _infer(
    call: ControlFlowCall, facts: Sequence[ep.TensorFacts | None]
) -> list[ep.TensorFacts]:
    """What follows for the outputs of a call."""
    values = [
        None
        if each is None or each.dtype is None
        else Abstract.following(each, each.dtype.numpy)
        for each in facts
    ]
    if call.op_type == "If":
        chosen, results = choose(call, values)
        if chosen is not None:  # and what it gives may follow, too
            return [value.facts for value in results]
    else:
        found = rounds(call, values)
        made = found.made[found.results_lead :]
        results = made[: found.states]
        for value, each in zip(made[found.states :], found.gathered, strict=True):
            shape = (
                *value.shape[: each.axis],
                found.turns or 0,
                *value.shape[each.axis :],
            )
            results.append(Abstract(value.dtype, shape))
        if isinstance(call, BatchCall):
            results += [NUMBER, CONDITION]
    return [Abstract(value.dtype, value.shape).facts for value in results]


def choose(
    call: ControlFlowCall, values: Sequence[Abstract | None]
) -> tuple[Body | None, list[Abstract]]:
    """The branch of an If that is done whatever is fed, ``None`` if that may be either;
    and what is known of the results.

    Raises:
        NotCompiled: the results of the branches are not alike.
    """
    condition = only(call, values[0], "the condition")
    if condition is not None:
        body = call.bodies["then_branch" if condition else "else_branch"]
        return body, body.follow(call.captured(body, values))
    then, otherwise = (
        body.follow(call.captured(body, values))
        for body in (call.bodies["then_branch"], call.bodies["else_branch"])
    )
    for one, other in zip(then, otherwise, strict=True):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            raise NotCompiled(
                f"branches give {one.dtype}{list(one.shape)} and "
                f"{other.dtype}{list(other.shape)}",
                call,
            )
    return None, then
