"""Makes the commands of a segment for one set of input shapes.

What is known is inferred call by call; calls are grouped; each group records commands.
Values live in buffers and are seen through views, so that transposing, slicing and
reshaping cost nothing until a kernel needs the elements in order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import zip_longest
from math import inf
from typing import Any, Final

import numpy as np

from onnxplug.ep.bounds import sizes
from onnxplug.ep.record import Record
from onnxplug_cpu.compiler.frontend.call import Abstract, Call, NotCompiled, data_type
from onnxplug_cpu.compiler.frontend.elementwise import StepForm, check_form
from onnxplug_cpu.compiler.frontend.fusion import ANCHORS, RESHAPES, Group, fuse
from onnxplug_cpu.compiler.frontend.patterns import rewrite
from onnxplug_cpu.compiler.ir.commands import Input, Output
from onnxplug_cpu.compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.matmul.left_factor import left_factor, rows_collide
from onnxplug_cpu.compiler.schedule.constants import Constants
from onnxplug_cpu.compiler.schedule.groups import record_group
from onnxplug_cpu.compiler.schedule.operations.registry import (
    Inputs,
    Results,
    find_operation,
)

MAX_KNOWN: Final = 1 << 20
"""Elements of a value above which it is not computed while planning."""

MAX_ALL_KNOWN: Final = 1 << 25
"""Elements of all values that are computed for one plan."""


MOST_VIEWS: Final = 32
"""Views in a row through which a value is written where the last of them is wanted."""


class Result(Record):
    """One output of a plan.

    Attributes:
        dtype, shape: of the array that the caller provides.
        content: the output itself, when it does not depend on what is fed.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    content: np.ndarray[Any, Any] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


class Planned(Record):
    """A segment for one set of input shapes."""

    recorder: Recorder
    results: tuple[Result, ...]


def make_plan(
    calls: Sequence[Call],
    forms: Mapping[Call, StepForm],
    constants: Constants,
    inputs: Mapping[str, Abstract],
    outputs: Sequence[str],
    recorder: Recorder,
    look: Callable[[], None] = lambda: None,
) -> Planned:
    """The commands of *calls*, and what they give.

    Args:
        calls: in topological order.
        forms: the calls that are element-wise, as steps of chains.
        constants: values that never change.
        inputs: dtype and shape of what is fed, in order.
        outputs: names of what is wanted, in order.
        recorder: takes the commands.
        look: called before each call and each group; it may raise.

    Raises:
        NotCompiled: the array tier has to compute some call.
    """
    planner = _Planner(calls, forms, constants, inputs, outputs, recorder, look)
    return planner.make()


class _Planner:
    """See :class:`~.operations.registry.Plan`."""

    def __init__(
        self,
        calls: Sequence[Call],
        forms: Mapping[Call, StepForm],
        constants: Constants,
        inputs: Mapping[str, Abstract],
        outputs: Sequence[str],
        recorder: Recorder,
        look: Callable[[], None],
    ) -> None:
        self.look = look
        self.known_elements = 0
        self.calls = calls
        self.forms = forms
        self.constants = constants
        self.inputs = inputs
        self.outputs = outputs
        self.recorder = recorder
        self.abstracts: dict[str, Abstract] = dict(inputs)
        self.views: dict[str, View] = {}
        self.readers: defaultdict[str, list[Call]] = defaultdict(list)
        self.positions = {name: place for place, name in enumerate(outputs)}
        self.written: set[str] = set()
        self.made: dict[Call, Results] = {}
        self.followed: dict[tuple[Hashable, ...], Results] = {}

    def make(self) -> Planned:
        """Infer, group, record."""
        remaining = [call for call in self.calls if not self._is_known(call)]
        remaining = rewrite(self._needed(remaining), self.known, self.outputs)
        for call in remaining:
            for name in call.inputs:
                if name is not None:
                    self.readers[name].append(call)
        for position, (name, value) in enumerate(self.inputs.items()):
            nbytes = value.size * value.dtype.itemsize
            self.views[name] = View.contiguous(
                Input(position, nbytes), value.dtype, value.shape
            )
        for group in fuse(remaining, self.forms, self.abstracts, self.outputs):
            self.look()
            try:
                self._record(group)
            except NotCompiled as refusal:
                refusal.call = refusal.call or group.all_calls[0]
                raise
            except (IndexError, ValueError) as error:
                # a kernel does not take what the array tier may take, or refuse better
                raise NotCompiled(str(error), group.all_calls[0]) from error
        return Planned(
            self.recorder, tuple(self._result(name) for name in self.outputs)
        )

    # what is known

    def known(self, name: str) -> Abstract:
        """What is known of a value."""
        if name not in self.abstracts:
            self.abstracts[name] = self.constants.known(name)
        return self.abstracts[name]

    def _is_known(self, call: Call) -> bool:
        """Note what is known of the call's outputs; whether that is all of them."""
        self.look()
        try:
            return self._infer(call)
        except NotCompiled as refusal:
            refusal.call = refusal.call or call
            raise
        except (IndexError, ValueError) as error:
            # no result is right, which the array tier says in its own words
            raise NotCompiled(str(error), call) from error

    def _infer(self, call: Call) -> bool:
        inputs = [None if name is None else self.known(name) for name in call.inputs]
        results = self._followed(call, inputs)
        if len(results) < len(call.outputs):
            raise NotCompiled(
                f"{call.op_type} makes {len(results)} outputs, and not "
                f"{len(call.outputs)}",
                call,
            )
        self.made[call] = results
        is_known = True
        for name, dtype, result in zip(
            call.outputs, call.dtypes, results, strict=False
        ):
            if name is None:
                continue
            if result is None:
                raise NotCompiled(f"the shape of {name!r} does not follow", call)
            sizes(result.shape, itemsize=result.dtype.itemsize, what=repr(name))
            if dtype is not None and dtype != result.dtype:
                raise NotCompiled(f"{name!r} is {result.dtype}, not {dtype}", call)
            self.abstracts[name] = result
            is_known = is_known and result.content is not None
        return is_known

    def _needed(self, calls: Sequence[Call]) -> list[Call]:
        """Without calls of whose results nothing but the shape is read."""
        wanted = set(self.outputs)
        needed: list[Call] = []
        for call in reversed(calls):
            if not wanted.isdisjoint(call.outputs):
                needed.append(call)
                wanted.update(name for name in call.inputs if name is not None)
        return needed[::-1]

    def _followed(self, call: Call, inputs: Inputs) -> Results:
        """What is known of the call's outputs, of inputs that a kernel takes."""
        key = (call.kind, *[None if value is None else value.key for value in inputs])
        results = self.followed.get(key)
        if results is None:
            results = self._inferred(call, inputs)
            if any(value is None or value.content is None for value in results):
                computed = self._computed(call, inputs, results)
                if computed is not None:
                    return computed  # of more, perhaps, than the key compares
                self._check(call, inputs, results)
            if call.kind is not None:  # networks repeat their layers
                self.followed[key] = results
        return results

    def _inferred(self, call: Call, inputs: Inputs) -> Results:
        """What follows for the outputs by the host's rules."""
        if call.infer is None:
            raise NotCompiled(f"{call.op_type} has no rule", call)
        follows = call.infer([None if v is None else v.facts for v in inputs])
        results: list[Abstract | None] = []
        for found, dtype in zip_longest(follows[: len(call.outputs)], call.dtypes):
            if found is None:
                results.append(None)
                continue
            # mostly it is what the graph says, which has a dtype object already
            if found.dtype is not None and (
                dtype is None or data_type(dtype) is not found.dtype
            ):
                dtype = found.dtype.numpy
            known = None if dtype is None else Abstract.following(found, dtype)
            results.append(known)
        return results

    def _check(self, call: Call, inputs: Inputs, results: Results) -> None:
        """Raise what hinders a kernel from taking inputs of these sizes."""
        form = self.forms.get(call)
        operation = find_operation(call) if form is None else None
        if form is None and operation is None:
            raise NotCompiled(f"{call.op_type} has no kernel", call)
        if results[0] is None:
            raise NotCompiled(f"the shape of {call.outputs[0]!r} does not follow", call)
        if form is not None:
            # not the inputs: CastLike takes only a type from one of them
            operands = [self.known(n) for n in form.operands if isinstance(n, str)]
            check_form(call, operands, results[0])
        elif operation is not None and operation.check is not None:
            operation.check(call, inputs, results)

    def _computed(
        self, call: Call, inputs: Inputs, inferred: Results
    ) -> Results | None:
        """The outputs, if they follow from shapes and constants and are small.

        A small model must not be able to have a plan that is large.
        """
        if call.function is None or not inputs:
            return None
        contents = [None if value is None else value.content for value in inputs]
        for value, content in zip(inputs, contents, strict=True):
            if value is not None and (content is None or content.size > MAX_KNOWN):
                return None
            # a few texts may be of any length, and none is ever compiled
            if content is not None and content.dtype == object:
                return None
        if _size(inferred) > min(MAX_KNOWN, MAX_ALL_KNOWN - self.known_elements):
            return None
        try:
            with np.errstate(all="ignore"):
                results = call.function(*contents)
        except Exception as error:  # whatever it is, a run is where to raise it
            raise NotCompiled(str(error), call) from error
        if not isinstance(results, tuple):
            results = (results,)
        arrays = [np.asarray(array) for array in results]
        self.known_elements += sum(array.size for array in arrays)
        return [Abstract.known(array, varies=True) for array in arrays]

    def results(self, call: Call) -> Results:
        """What is known of the call's outputs, also of those that nobody wants."""
        return self.made[call]

    # where values are

    def view(self, name: str) -> View:
        """Where a value is; constants are taken in when they are asked for."""
        if name not in self.views:
            if name in self.constants:
                self.views[name] = self.constants.view(name)
            else:
                content = self.known(name).content
                assert content is not None, f"{name} is not computed yet"
                self.views[name] = self.recorder.constant(content)
        return self.views[name]

    def target(self, name: str, *, apart: bool = False) -> View:
        """Where to write a value: as it will be read, where that is known.

        With *apart* there may be gaps between rows, for a product that wants them.
        """
        value = self.abstracts[name]
        self.views[name] = view = self._place(name, value, apart)
        return view

    def _place(
        self, name: str, value: Abstract, apart: bool, views: int = MOST_VIEWS
    ) -> View:
        if name in self.positions and name not in self.written:
            self.written.add(name)
            nbytes = value.size * value.dtype.itemsize
            buffer = Output(self.positions[name], nbytes)
            return View.contiguous(buffer, value.dtype, value.shape)
        readers = self.readers[name]
        if len(readers) == 1 and name not in self.positions and views:
            reader = readers[0]
            follower = reader.outputs[0]
            if follower is not None and follower in self.abstracts:
                through = self._place_through(reader, follower, value, apart, views - 1)
                if through is not None:
                    return through
        if apart and self._multiplies(name):
            return left_factor(self.recorder, value.dtype, value.shape)
        return self.recorder.temporary(value.dtype, value.shape)

    def _place_through(
        self, reader: Call, name: str, value: Abstract, apart: bool, views: int
    ) -> View | None:
        """The place of what only *reader*, a view, reads; in the order it gives."""
        follower = self.abstracts[name]
        if reader.op_type in RESHAPES:
            if self._ends_in_output(name) or (apart and self._multiplies(name)):
                place = self._place(name, follower, apart, views).reshape(value.shape)
                # behind it a last axis of size 1 may have been moved
                return place if place and _has_rows(place) else None
            return None
        if reader.op_type == "Transpose" and self._wants_order(name):
            from onnxplug_cpu.compiler.schedule.operations.views import permutation

            perm = permutation(reader, len(value.shape))
            if perm and perm[-1] == len(perm) - 1:
                inverse = tuple(sorted(range(len(perm)), key=perm.__getitem__))
                return self._place(name, follower, apart, views).transpose(inverse)
        return None

    def _multiplies(self, name: str) -> bool:
        """Whether *name* is read by products, as their left factor, and nothing else,
        and its rows would evict each other."""
        readers = self.readers[name]
        value = self.abstracts[name]
        if name in self.positions or not readers or not value.shape:
            return False
        return rows_collide(value.shape[-1] * value.dtype.itemsize) and all(
            reader.op_type in ANCHORS
            and reader.inputs[0] == name
            and name not in reader.inputs[1:]
            and not reader.attributes.get("transA")
            for reader in readers
        )

    def _ends_in_output(self, name: str) -> bool:
        """Whether *name* is an output, or becomes one by nothing but views."""
        for _ in range(MOST_VIEWS):
            if name in self.positions:
                return name not in self.written
            readers = self.readers[name]
            if len(readers) != 1 or readers[0].op_type not in (*RESHAPES, "Transpose"):
                return False
            follower = readers[0].outputs[0]
            if follower is None:
                return False
            name = follower
        return False

    def _wants_order(self, name: str) -> bool:
        """Whether *name* is wanted in C order: an output, or read by a reshape."""
        return name in self.positions or any(
            reader.op_type in RESHAPES for reader in self.readers[name]
        )

    def alias(self, name: str, view: View) -> None:
        """A value is a view of what was computed."""
        value = self.known(name)
        if (view.shape, view.dtype) != (value.shape, value.dtype):
            raise NotCompiled(
                f"{name} is {value.dtype}{list(value.shape)}, but would be seen as "
                f"{view.dtype}{list(view.shape)}"
            )
        self.views[name] = view

    def contiguous(self, view: View) -> View:
        """*view* in C order."""
        if view.is_contiguous:
            return view
        copy = self.recorder.temporary(view.dtype, view.shape)
        self._record_copy(view, copy)
        return copy

    # commands

    def _record(self, group: Group) -> None:
        self.recorder.nodes = tuple(
            node for call in group.all_calls for node in call.nodes
        )
        if group.forms or group.calls[0].op_type in ANCHORS:
            record_group(self, group, self._needed_outside(group))
            return
        (call,) = group.calls
        operation = find_operation(call)
        assert operation is not None
        operation.record(self, call)

    def _needed_outside(self, group: Group) -> list[str]:
        """The values of a group that others read, or that are outputs."""
        inside = set(map(id, group.all_calls))
        return [
            name
            for call in group.all_calls
            for name in call.outputs
            if name is not None
            and (
                name in self.positions
                or any(id(reader) not in inside for reader in self.readers[name])
            )
        ]

    def _result(self, name: str) -> Result:
        value = self.known(name)
        if value.content is not None:
            return Result(value.dtype, value.shape, value.content)
        view = self.view(name)
        wanted = (
            isinstance(view.buffer, Output)
            and view.buffer.position == self.positions[name]
            and view.is_contiguous
        )
        if not wanted:
            self.recorder.nodes = ()
            nbytes = value.size * value.dtype.itemsize
            buffer = Output(self.positions[name], nbytes)
            target = View.contiguous(buffer, value.dtype, value.shape)
            self._record_copy(view, target)
        return Result(value.dtype, value.shape)

    def _record_copy(self, source: View, target: View) -> None:
        # most plans copy nothing
        from onnxplug_cpu.compiler.kernels.movement.copy import record_copy

        record_copy(self.recorder, source, target)


def _size(results: Results) -> float:
    """The elements of all *results*; ``inf`` if one is not known."""
    return sum(inf if value is None else value.size for value in results)


def _has_rows(view: View) -> bool:
    """Whether the elements of the last axis are consecutive."""
    return view.shape[-1:] in ((), (1,)) or view.strides[-1] == 1
