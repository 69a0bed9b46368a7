"""What is known of a segment's values for one set of input shapes.

Calls are followed in order by the host's rules.  What follows is kept, for later plans
and for calls of the same kind, by what the rules can read of the inputs: when shapes
change, only calls are followed anew whose inputs did.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import zip_longest
from math import inf
from operator import itemgetter
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.bounds import sizes
from onnxplug.authoring.record import Record
from onnxplug.ep import raise_interruption
from onnxplug_compiler.frontend.call import (
    Abstract,
    Call,
    NotCompiled,
    data_type,
)
from onnxplug_compiler.frontend.elementwise import StepForm, check_form
from onnxplug_compiler.frontend.quantization import SCALED
from onnxplug_compiler.ir.pieces import Halo, Place
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.operations.registry import (
    Inputs,
    Results,
    find_operation,
)

MAX_KNOWN: Final = 1 << 20
"""Elements of a value above which it is not computed while planning."""

MAX_ALL_KNOWN: Final = 1 << 25
"""Elements of all values that are computed for one plan."""

NOTHING: Final = 0
"""The slot of an input that is left out."""

_UNUSED: Final = 1  # the slot of an output that is

numbers: Final = itertools.count()


class Tokens:
    """One number, or one object, for all that is equal, so that comparing takes no
    time; safe to use from several threads.

    No number is ever used again, so that what is kept of it elsewhere is never wrong.
    """

    def __init__(self) -> None:
        # with the values, as what keys name by identity must stay what it is
        self._tokens: dict[Hashable, tuple[int, Abstract]] = {}
        self._forms: dict[tuple[np.dtype[Any], tuple[int, ...]], int] = {}
        self._places: dict[tuple[Any, ...], Place] = {}

    def __len__(self) -> int:
        return len(self._tokens) + len(self._forms) + len(self._places)

    def form(self, value: Abstract) -> int:
        """The same for the same dtype and shape."""
        key = value.dtype, value.shape
        found = self._forms.get(key)
        if found is None:
            found = self._forms.setdefault(key, next(numbers))
        return found

    def place(self, *key: Any) -> Place:
        """The place that has these attributes, in their order."""
        found = self._places.get(key)
        return found or self._places.setdefault(key, Place(*key))

    def place_of(self, view: View, halo: Halo | None = None) -> tuple[Place, int]:
        """How a view lies in its buffer, and the offset of its first byte, or of its
        halo's."""
        key = type(view.buffer), view.dtype, view.shape, view.strides
        place = self.place(*key) if halo is None else self.place(*key, halo)
        return place, view.offset - place.offset

    def value(self, value: Abstract) -> int:
        """The same for values from which the same follows."""
        if value.content is None or not value.is_exact:
            return self.form(value)
        return self._token(value.key, value)

    def content(self, value: Abstract) -> int | None:
        """The same for the same content; ``None`` for one that is not known.

        Contents that may be others for other shapes are none that constants have.
        """
        content = value.content
        if content is None:
            return None
        token = self._token(value.key if value.is_exact else id(content), value)
        return -1 - token if value.varies else token

    def _token(self, key: Hashable, value: Abstract) -> int:
        found = self._tokens.get(key)
        if found is None:
            found = self._tokens.setdefault(key, (next(numbers), value))
        return found[0]

    def check_numbers(self, what: str) -> None:
        """Raise where sizes are no numbers and *what* takes nothing else."""

    def keep(self, latest: Sequence[Inferred]) -> None:
        """Forget all numbers but those of these values."""
        forms: dict[tuple[np.dtype[Any], tuple[int, ...]], int] = {}
        tokens: dict[Hashable, tuple[int, Abstract]] = {}
        for inferred in latest:
            for value, form, content in zip(
                inferred.values, inferred.forms, inferred.contents, strict=True
            ):
                if value is None or form is None:
                    continue
                forms[value.dtype, value.shape] = form
                if content is not None:
                    key = value.key if value.is_exact else id(value.content)
                    tokens[key] = content if content >= 0 else -1 - content, value
        self._forms, self._tokens, self._places = forms, tokens, {}


class _Found(Record):
    """What follows for the outputs of a call.

    Attributes:
        results: the outputs.
        tokens, forms, contents: of each.
        is_known: whether the contents of all that are wanted follow.
        computed: elements that were computed for that.
    """

    results: Results
    tokens: Sequence[int | None]
    forms: Sequence[int | None]
    contents: Sequence[int | None]
    is_known: bool
    computed: int


class _Step:
    """A call by the slots of its values."""

    __slots__ = ("call", "inputs", "key", "outputs", "table")

    def __init__(
        self,
        call: Call,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        table: dict[Any, _Found],
    ) -> None:
        self.call = call
        self.inputs = inputs
        self.outputs = outputs
        self.key: Callable[[list[Any]], Any]
        self.key = itemgetter(*inputs) if inputs else _no_inputs
        self.table = table


def _no_inputs(tokens: list[Any]) -> tuple[()]:
    return ()


class Inferred(Record):
    """What is known of all values.

    Attributes:
        values: by slot.
        tokens: of values, equal for those of which the same follows; by slot.
        forms, contents: tokens of dtype and shape, and of contents; by slot.
        results: what is known of each call's outputs, in the order of calls.
        known: for each call whether its results are known as a whole.
        computed: for each call the elements that were computed of its results.
        number: which it is; all have another.
        base: the number of what it was made from, if it was.
        changed: slots of all that is not as it was there.
    """

    values: list[Abstract | None]
    tokens: list[int | None]
    forms: list[int | None]
    contents: list[int | None]
    results: list[Results]
    known: list[bool]
    computed: list[int]
    number: int
    base: int = -1
    changed: Sequence[int] = ()

    def differing(self, other: Inferred) -> Sequence[int]:
        """The slots of what may not be as it is in *other*."""
        if self.base == other.number:
            return self.changed
        return [
            slot
            for slot, form in enumerate(self.forms)
            if form != other.forms[slot] or self.contents[slot] != other.contents[slot]
        ]


class Inference:
    """Follows the calls of a segment; safe to use from several threads.

    Args:
        calls: in topological order.
        forms: the calls that are element-wise, as steps of chains.
        constants: values that never change.
        inputs: names of what is fed.
        tokens: of values.

    Attributes:
        slots: the number of each value.
        places: the number of each call.
        contents: tokens of the contents of constants, as far as somebody asked.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        forms: Mapping[Call, StepForm],
        constants: Constants,
        inputs: Sequence[str],
        outputs: Sequence[str],
        tokens: Tokens,
    ) -> None:
        self.slots: dict[str, int] = {}
        self.places = {call: place for place, call in enumerate(calls)}
        self.tokens = tokens
        self._forms = forms
        self._inputs = [self._slot(name) for name in inputs]
        self._steps: list[_Step] = []
        self._latest: Inferred | None = None
        tables: dict[Hashable, dict[Any, _Found]] = {}
        for call in calls:
            ins = tuple(
                NOTHING if name is None else self._slot(name) for name in call.inputs
            )
            outs = tuple(
                _UNUSED if name is None else self._slot(name) for name in call.outputs
            )
            kind: Hashable = call
            if call.kind is not None:  # networks repeat their layers
                kind = call.kind, tuple(name is None for name in call.outputs)
            table = tables.setdefault(kind, {})
            self._steps.append(_Step(call, ins, outs, table))
        for name in outputs:
            self._slot(name)
        count = len(self.slots) + 2
        self._values: list[Abstract | None] = [None] * count
        self._tokens: list[int | None] = [None] * count
        self._known_forms: list[int | None] = [None] * count
        self.contents: list[int | None] = [None] * count
        for name, slot in self.slots.items():
            if name in constants:
                value = constants.known(name)
                self._values[slot] = value
                self._tokens[slot] = tokens.value(value)
                self._known_forms[slot] = tokens.form(value)

    def _slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots) + 2)

    def content_of_constant(self, slot: int) -> int:
        """The token of the content of a constant, from now on for all shapes."""
        value = self._values[slot]
        assert value is not None, f"value {slot} is no constant, and has no token"
        token = self.tokens.content(value)
        assert token is not None
        self.contents[slot] = token
        return token

    def keep(self, latest: Sequence[Inferred]) -> None:
        """Forget what followed for other values than these."""
        tables = {id(step.table): step.table for step in self._steps}
        kept: dict[int, dict[Any, _Found]] = {table: {} for table in tables}
        for step in self._steps:
            for inferred in latest:
                key = step.key(inferred.tokens)
                found = step.table.get(key)
                if found is not None:
                    kept[id(step.table)][key] = found
        for number, table in tables.items():
            # who looks meanwhile follows anew
            table.clear()
            table.update(kept[number])

    def infer(self, inputs: Sequence[Abstract], look: Callable[[], None]) -> Inferred:
        """What follows from inputs of these dtypes and shapes.

        Args:
            look: called before what is not known yet; it may raise.

        Raises:
            NotCompiled: the array tier has to compute some call.
        """
        found = None
        if self._latest is not None:
            found = self._infer_changed(self._latest, inputs, look)
        if found is None:
            found = self._infer_all(inputs, look)
        self._latest = found
        return found

    def _infer_all(
        self, inputs: Sequence[Abstract], look: Callable[[], None]
    ) -> Inferred:
        values, keys = self._values.copy(), self._tokens.copy()
        forms = self._known_forms.copy()
        contents = self.contents.copy()
        for slot, value in zip(self._inputs, inputs, strict=True):
            values[slot], keys[slot] = value, self.tokens.value(value)
            forms[slot] = self.tokens.form(value)
            contents[slot] = self.tokens.content(value)
        results: list[Results] = []
        known: list[bool] = []
        computed: list[int] = []
        left = MAX_ALL_KNOWN
        for step in self._steps:
            key = step.key(keys)
            found = step.table.get(key)
            if found is None or found.computed > left:
                look()
                found = self._follow(step, key, values, left)
            made, tokens, made_forms, made_contents, is_known, elements = found
            left -= elements
            results.append(made)
            known.append(is_known)
            computed.append(elements)
            for place, slot in enumerate(step.outputs):
                values[slot] = made[place]
                keys[slot] = tokens[place]
                forms[slot] = made_forms[place]
                contents[slot] = made_contents[place]
        return Inferred(
            values, keys, forms, contents, results, known, computed, next(numbers)
        )

    def _infer_changed(
        self,
        latest: Inferred,
        inputs: Sequence[Abstract],
        look: Callable[[], None],
    ) -> Inferred | None:
        """What follows, where most follows as it did before; ``None`` if so many
        elements are computed that not all may be."""
        values, keys = latest.values.copy(), latest.tokens.copy()
        forms, contents = latest.forms.copy(), latest.contents.copy()
        results, known = latest.results.copy(), latest.known.copy()
        computed = latest.computed.copy()
        steps, concerned = self._steps, self._concerned
        changed: list[int] = []
        waiting = bytearray(len(steps))
        for slot, value in zip(self._inputs, inputs, strict=True):
            token, content = self.tokens.value(value), self.tokens.content(value)
            if keys[slot] != token or contents[slot] != content:
                values[slot], keys[slot] = value, token
                forms[slot], contents[slot] = self.tokens.form(value), content
                changed.append(slot)
                for number in concerned[slot]:
                    waiting[number] = 1
        elements = sum(computed)
        number = waiting.find(1)
        while number >= 0:
            step = steps[number]
            key = step.key(keys)
            found = step.table.get(key)
            if found is None:
                look()
                # others that follow may be of as many elements as ever
                found = self._follow(step, key, values, MAX_KNOWN)
            made, tokens, made_forms, made_contents, is_known, count = found
            elements += count - computed[number]
            if elements > MAX_ALL_KNOWN - MAX_KNOWN:
                return None
            results[number], known[number], computed[number] = made, is_known, count
            for place, slot in enumerate(step.outputs):
                values[slot] = made[place]
                # contents may differ of which the same follows
                if (
                    keys[slot] != tokens[place]
                    or contents[slot] != made_contents[place]
                ):
                    keys[slot] = tokens[place]
                    forms[slot] = made_forms[place]
                    contents[slot] = made_contents[place]
                    changed.append(slot)
                    for other in concerned[slot]:
                        waiting[other] = 1
            number = waiting.find(1, number + 1)
        return Inferred(
            values,
            keys,
            forms,
            contents,
            results,
            known,
            computed,
            next(numbers),
            latest.number,
            changed,
        )

    @functools.cached_property
    def _concerned(self) -> Sequence[Sequence[int]]:
        """The calls that read a value, by its slot."""
        found: list[list[int]] = [[] for _ in self._values]
        for number, step in enumerate(self._steps):
            for slot in step.inputs:
                if slot != NOTHING:
                    found[slot].append(number)
        return found

    def _follow(
        self, step: _Step, key: Any, values: Sequence[Abstract | None], most: int
    ) -> _Found:
        call = step.call
        try:
            inputs = [values[slot] for slot in step.inputs]
            found, exact = self._followed(call, inputs, most)
        except NotCompiled as refusal:
            refusal.call = refusal.call or call
            raise
        except (IndexError, ValueError) as error:
            raise_interruption(error)
            # no result is right, which the array tier says in its own words
            raise NotCompiled(str(error), call) from error
        # what is not computed only because so much was is so for one plan
        if exact and most >= MAX_KNOWN:
            step.table[key] = found
        return found

    def _followed(self, call: Call, inputs: Inputs, most: int) -> tuple[_Found, bool]:
        """What follows for a call, and whether that is so for all of the same key."""
        results = self._inferred(call, inputs)
        computed: Results | None = None
        exact = True
        if any(value is None or value.content is None for value in results):
            computed = _computed(call, inputs, results, most)
            if computed is None:
                self._check(call, inputs, results)
            else:
                # of more, perhaps, than keys compare
                exact = all(value is None or value.is_exact for value in inputs)
                results = computed
        if len(results) < len(call.outputs):
            raise NotCompiled(
                f"{call.op_type} makes {len(results)} outputs, and not "
                f"{len(call.outputs)}",
                call,
            )
        is_known = True
        for name, dtype, result in zip(
            call.outputs, call.dtypes, results, strict=False
        ):
            if name is None:
                continue
            if result is None:
                raise NotCompiled(f"the shape of {name!r} does not follow", call)
            if result.content is None:
                sizes(result.shape, itemsize=result.dtype.itemsize, what=name)
            if dtype is not None and dtype != result.dtype:
                raise NotCompiled(f"{name!r} is {result.dtype}, not {dtype}", call)
            is_known = is_known and result.content is not None
        tokens = self.tokens
        forms = [None if r is None else tokens.form(r) for r in results]
        if not any(r is not None and r.content is not None for r in results):
            # of these nothing else is known
            found = _Found(results, forms, forms, [None] * len(forms), is_known, 0)
            return found, exact
        found = _Found(
            results,
            [None if r is None else tokens.value(r) for r in results],
            forms,
            [None if r is None else tokens.content(r) for r in results],
            is_known,
            0 if computed is None else int(_size(computed)),
        )
        return found, exact

    def _inferred(self, call: Call, inputs: Inputs) -> Results:
        """What follows for the outputs by the host's rules, or the operation's."""
        facts = [None if v is None else v.facts for v in inputs]
        operation = None if call in self._forms else find_operation(call)
        follows: Sequence[ep.TensorFacts | None]
        if operation is not None and operation.facts is not None:
            follows = operation.facts(call, facts)
        elif call.infer is not None:
            follows = call.infer(facts)
        else:
            raise NotCompiled(f"{call.op_type} has no rule", call)
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
        form = self._forms.get(call)
        # the sizes of scales are looked at as those of any operation
        is_step = form is not None and form.operator not in SCALED
        operation = None if is_step else find_operation(call)
        if not is_step and operation is None:
            raise NotCompiled(f"{call.op_type} has no kernel", call)
        for name, result in zip(call.outputs, results, strict=True):
            if name is not None and result is None:
                raise NotCompiled(f"the shape of {name!r} does not follow", call)
        if form is not None and is_step:
            assert results[0] is not None
            # not the inputs: CastLike takes only a type from one of them
            named = dict(zip(call.inputs, inputs, strict=True))
            operands = [named[name] for name in form.operands if isinstance(name, str)]
            check_form(call, [v for v in operands if v is not None], results[0])
        elif operation is not None and operation.check is not None:
            operation.check(call, inputs, results)


def _computed(
    call: Call, inputs: Inputs, inferred: Results, most: int
) -> Results | None:
    """The outputs, if they follow from shapes and constants and are small.

    A small model must not be able to have a plan that is large.

    Args:
        most: elements that may still be computed for the plan.
    """
    if call.function is None or not inputs or not call.traits.follows:
        return None
    contents = [None if value is None else value.content for value in inputs]
    for value, content in zip(inputs, contents, strict=True):
        if value is not None and (content is None or content.size > MAX_KNOWN):
            return None
        # a few texts may be of any length, and none is ever compiled
        if content is not None and content.dtype == object:
            return None
    if _size(inferred) > min(MAX_KNOWN, most):
        return None
    try:
        with np.errstate(all="ignore"):
            results = call.function(*contents)
    except Exception as error:  # whatever it is, a run is where to raise it
        raise_interruption(error)
        raise NotCompiled(str(error), call) from error
    if not isinstance(results, tuple):
        results = (results,)
    varies = any(value is not None and value.varies for value in inputs)
    return [Abstract.known(np.asarray(array), varies=varies) for array in results]


def _size(results: Results) -> float:
    """The elements of all *results*; ``inf`` if one is not known."""
    return sum(inf if value is None else value.size for value in results)
