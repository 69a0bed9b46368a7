"""Lets models of float16 and bfloat16 keep float32 between their calls.

What such a model says of a value is how it is stored.  Processors compute it in
float32, and each rounding in between is an error that nobody asked for.  So a call that
the target has for float32 becomes one of float32, and casts stand where a value comes
from or goes to what is narrow: inputs, outputs, calls that are not widened.  A ``Cast``
of the model to a narrow type rounds as it says.  Weights of products and convolutions
stay as they are, to be widened in registers or while they are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Call, Infer, data_type
from onnxplug_compiler.frontend.elementwise import step_form
from onnxplug_compiler.ir.elements import is_half
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.segmentation import why_not

_F32: Final = np.dtype(np.float32)

_FACTORS: Final = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})
"""Whose second input may be narrow where the first one is float32."""

_LAYERS: Final = frozenset({"GRU", "LSTM", "RNN"})
"""Whose second and third input may, if they are constants."""

_CACHES: Final[Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "Attention": ((4, 5), (1, 2)),
    "TensorScatter": ((0,), (0,)),
    "com.microsoft.GroupQueryAttention": ((3, 4), (1, 2)),
    "com.microsoft.MultiHeadAttention": ((6, 7), (1, 2)),
    "com.microsoft.DecoderMaskedMultiHeadAttention": ((5, 6), (1, 2)),
}
"""Inputs that are caches of keys and values, and outputs that are these with new rows:
they stay narrow."""

_MOVES: Final = frozenset(
    "Compress Concat DepthToSpace Dropout Expand Flatten Gather GatherElements "
    "GatherND Identity Pad Reshape ReverseSequence Scatter ScatterElements ScatterND "
    "Slice SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze".split()
)
"""Which give elements of their inputs, and are widened where these are."""

_TYPED: Final = frozenset(
    "BitCast Cast CastLike DequantizeLinear DynamicQuantizeLinear If Loop "
    "QuantizeLinear Scan".split()
)
"""Which are about types, or have bodies that are."""

Dtypes: TypeAlias = Mapping[str, "np.dtype[Any] | None"]


class Widened(Record):
    """The calls of a partition, widened.

    Attributes:
        calls: in topological order.
        dtypes: of values that only they have.
        names: of these, and of the values that they stand for.
    """

    calls: tuple[Call, ...]
    dtypes: Mapping[str, np.dtype[Any]]
    names: Mapping[str, str]


def widened(
    calls: Sequence[Call],
    dtypes: Dtypes,
    constants: Collection[str],
    outputs: Sequence[str],
    target: Support,
    kinds: dict[Any, int],
) -> Widened:
    """The calls with float32 between them, for a target that computes narrow floats so.

    Args:
        calls: in topological order.
        dtypes: of all values that calls read or that are given out.
        constants: names of values that never change.
        outputs: names of what the partition gives out.
        target: what they are compiled for.
        kinds: of :func:`~.frontend.call.call_of`; grows.
    """
    made = {
        name: dtype
        for call in calls
        for name, dtype in zip(call.outputs, call.dtypes, strict=True)
        if name is not None
    }
    found = {**dtypes, **made}
    if not any(map(is_half, found.values())):
        return Widened(tuple(calls), {}, {})
    in_bodies = {
        name for call in calls if call.traits.has_bodies for name in call.inputs if name
    }
    kept = in_bodies.union(outputs)
    widening = _Widening(found, constants, outputs, kept, target, kinds)
    for call in calls:
        widening.add(call)
    return widening.finish()


def widened_types(
    call: Call, dtypes: Sequence[np.dtype[Any] | None]
) -> tuple[np.dtype[Any] | None, ...]:
    """The types of the inputs of a call once it is widened, if that is one that keeps
    caches; else as they are."""
    caches, _ = _CACHES.get(_name_of(call), ((), ()))
    return tuple(
        _F32 if caches and is_half(dtype) and position not in caches else dtype
        for position, dtype in enumerate(dtypes)
    )


class _Widening:
    """Widens one call after the other.

    Attributes:
        wide: of narrow values the names of what has them as float32.
        same: of values of float32 that are only casts of narrow ones, the names of
            what has these as float32.
        known: names of what follows from constants.
        kept: names that others go by: outputs, and what bodies read.
    """

    def __init__(
        self,
        dtypes: Dtypes,
        constants: Collection[str],
        outputs: Sequence[str],
        kept: Collection[str],
        target: Support,
        kinds: dict[Any, int],
    ) -> None:
        self.dtypes = dict(dtypes)
        self.outputs, self.kept = outputs, kept
        self.target = target
        self.kinds = kinds
        self.known = set(constants)
        self.wide: dict[str, str] = {}
        self.same: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.unpacked: set[str] = set()
        self.calls: list[Call] = []
        # narrow values that are made wide, until somebody reads them as they are
        self.missing: dict[str, Call] = {}
        self.after: dict[Call, list[Call]] = {}

    def add(self, call: Call) -> None:
        """Add *call*, wide or as it is."""
        names = [name for name in call.inputs if name is not None]
        if call.domain == "" and (
            call.traits.of_shapes
            or (
                names
                and self.known.issuperset(names)
                and call.traits.follows
                and call.function is not None
            )
        ):
            self.known.update(name for name in call.outputs if name is not None)
            self._as_it_is(call)
        elif call.op_type == "Cast" and not call.domain and self._casts(call):
            pass
        else:
            candidate = self._candidate(call)
            if candidate is None:
                self._as_it_is(call)
            else:
                self._add_wide(call, candidate)
        if call.op_type == "DequantizeLinear":
            self.unpacked.update(name for name in call.outputs if name is not None)

    def finish(self) -> Widened:
        """The calls."""
        self._give([name for name in self.outputs if name in self.missing])
        ordered: list[Call] = []
        for call in self.calls:
            ordered += [call, *self.after.get(call, ())]
        dtypes = {name: self.dtypes[name] for name in self.names}
        return Widened(
            tuple(ordered), {name: d for name, d in dtypes.items() if d}, self.names
        )

    def _as_it_is(self, call: Call) -> None:
        """Add *call*, with what it reads as the model has it."""
        self._give([name for name in call.inputs if name in self.missing])
        renames = self.same and not call.traits.has_bodies
        if renames and not self.same.keys().isdisjoint(call.inputs):
            inputs = tuple([self.same.get(name or "", name) for name in call.inputs])
            call = with_values(
                call, inputs, call.outputs, call.dtypes, call.infer, call.kind
            )
        self._put(call)

    def _casts(self, call: Call) -> bool:
        """Whether *call* casts a value that is wide, and what is to be done was."""
        name, out, dtype = call.input(0), call.output(0), call.dtypes[0]
        if name not in self.wide or name is None or out is None:
            return False
        if dtype == _F32:
            wide = self.same[out] = self.wide[name]
            if out in self.kept:
                self._put(_Cast(wide, out, call.nodes, _F32, _F32))
            return True
        inputs = (self.wide[name], *call.inputs[1:])
        given = (self.dtypes[name],)
        infer = call.infer and Followed(call.infer, given, call.dtypes)
        kind = self._kind(call, inputs)
        self._put(with_values(call, inputs, call.outputs, call.dtypes, infer, kind))
        return True

    def _candidate(self, call: Call) -> Call | None:
        """*call* for float32, if it has narrow values and is compiled so."""
        is_narrow = [
            name is not None and is_half(self.dtypes.get(name)) for name in call.inputs
        ]
        if not any(is_narrow) or call.op_type in _TYPED or call.traits.has_bodies:
            return None
        if call.domain and _name_of(call) not in _CACHES:
            return None  # codes, which are read as they are
        if call.op_type in _MOVES and not self._moves_wide(call):
            return None
        inputs: list[str | None] = []
        dtypes: list[np.dtype[Any] | None] = []
        for position, name in enumerate(call.inputs):
            dtype = None if name is None else self.dtypes.get(name)
            if is_narrow[position] and not self._stays(call, position):
                assert name is not None
                name, dtype = self.wide.get(name) or self._name(name), _F32
            inputs.append(self.same.get(name or "", name))
            dtypes.append(dtype)
        kept = _CACHES[_name_of(call)][1] if self._keeps_caches(call) else ()
        becomes_wide = [
            is_half(dtype) and position not in kept
            for position, dtype in enumerate(call.dtypes)
        ]
        outputs = tuple(
            self._name(name) if name is not None and is_wide else name
            for name, is_wide in zip(call.outputs, becomes_wide, strict=True)
        )
        made = tuple(
            _F32 if is_wide else dtype
            for dtype, is_wide in zip(call.dtypes, becomes_wide, strict=True)
        )
        given = tuple(
            None if name is None else self.dtypes.get(name) for name in call.inputs
        )
        infer = call.infer and Followed(call.infer, given, made)
        kind = self._kind(call, inputs)
        wide = with_values(call, tuple(inputs), outputs, made, infer, kind)
        mixed = _name_of(call) in _CACHES or call.op_type in {*_LAYERS, "Einsum"}
        if mixed and call.function is not None:
            wide.function = _OnArrays(call.function, made)
        found = tuple(dtypes)
        is_step = step_form(wide, found, self.target) is not None
        if not is_step and why_not(wide, found, self.known, self.target) is not None:
            return None
        return wide

    def _moves_wide(self, call: Call) -> bool:
        """Whether what *call* moves is wide."""
        if call.op_type == "Concat":
            # a cache that grows stays narrow
            grows = call.output(0) in self.outputs
            return not grows and any(name in self.wide for name in call.inputs)
        return call.input(0) in self.wide

    def _stays(self, call: Call, position: int) -> bool:
        """Whether an input of *call* that is narrow stays so."""
        name = call.input(position)
        if self._keeps_caches(call):
            return position in _CACHES[_name_of(call)][0]
        if call.op_type == "Attention" and not call.domain:
            return position in (1, 2) and self._attends_narrow(call)
        if call.op_type in _LAYERS:
            both = {call.input(1), call.input(2)}
            return (
                position in (1, 2)
                and self.target.has_narrow_factors
                and self.known.issuperset(both)
                and self.wide.keys().isdisjoint(both)
            )
        if call.op_type == "Einsum" and not call.domain:
            # all but one may be constants
            return (
                name in self.known
                and self.target.has_narrow_factors
                and not self.known.issuperset(filter(None, call.inputs))
                and name not in self.wide
            )
        if position != 1 or call.op_type not in _FACTORS or name in self.wide:
            return False
        return name in self.unpacked or (
            name in self.known and self.target.has_narrow_factors
        )

    def _keeps_caches(self, call: Call) -> bool:
        """Whether caches that *call* reads and gives stay narrow."""
        places, _ = _CACHES.get(_name_of(call), ((), ()))
        return (
            bool(places)
            and self.target.has_narrow_factors
            and all(
                is_half(self.dtypes.get(call.input(place) or "")) for place in places
            )
        )

    def _attends_narrow(self, call: Call) -> bool:
        """Whether keys and values that *call* attends to stay narrow."""
        names = call.input(1), call.input(2)
        return self.target.has_narrow_factors and all(
            name not in self.wide and is_half(self.dtypes.get(name or ""))
            for name in names
        )

    def _add_wide(self, call: Call, wide: Call) -> None:
        stay = self.missing.keys() & set(wide.inputs)
        self._give([name for name in call.inputs if name in stay])
        for name, own in zip(call.inputs, wide.inputs, strict=True):
            if name is None or own is None or name == own or own in self.dtypes:
                continue
            if name not in self.wide:
                cast = _Cast(name, own, call.nodes, self._dtype(name), _F32)
                self._take(name, own)
                self._put(cast)
                if name in self.known:
                    self.known.add(own)
        for name, own in zip(call.outputs, wide.outputs, strict=True):
            if name is not None and own is not None and name != own:
                self._take(name, own)
                self.missing[name] = wide
        self._put(wide)

    def _take(self, name: str, own: str) -> None:
        """Let *own* be the name of a value as float32."""
        self.wide[name] = own
        self.names[own] = name
        self.dtypes[own] = _F32

    def _give(self, names: Sequence[str | None]) -> None:
        """Narrow values that were only made wide, behind what makes them."""
        for name in dict.fromkeys(names):
            assert name is not None
            source = self.missing.pop(name)
            cast = _Cast(self.wide[name], name, source.nodes, _F32, self._dtype(name))
            self._number(cast)
            self.after.setdefault(source, []).append(cast)

    def _put(self, call: Call) -> None:
        if isinstance(call, _Cast):
            self._number(call)
        self.calls.append(call)

    def _number(self, cast: _Cast) -> None:
        signature = "widening", cast.attributes["to"], cast.source
        cast.kind = self.kinds.setdefault(signature, len(self.kinds))

    def _kind(self, call: Call, inputs: Sequence[str | None]) -> int | None:
        """That of *call* for other inputs, which follow by other types."""
        if call.kind is None:
            return None
        given = tuple(
            None if name is None else self.dtypes.get(name) for name in call.inputs
        )
        signature = "widened", call.kind, given
        return self.kinds.setdefault(signature, len(self.kinds))

    def _dtype(self, name: str) -> np.dtype[Any]:
        dtype = self.dtypes[name]
        assert dtype is not None
        return dtype

    def _name(self, name: str) -> str:
        """Of a value as float32, which no value of the model has."""
        own = f"{name} as float32"
        while own in self.dtypes and own not in self.names:
            own += "'"
        return own


class _Cast(Call):
    """A cast between a value and its form in float32.

    Attributes:
        source: the type that it casts from.
    """

    __slots__ = ("source",)

    is_of_widening = True

    def __init__(
        self,
        name: str,
        out: str,
        nodes: tuple[int, ...],
        source: np.dtype[Any],
        dtype: np.dtype[Any],
    ) -> None:
        convert = _Converted(dtype)
        to = {"to": data_type(dtype).onnx}
        super().__init__(
            "Cast", "", 13, (name,), (out,), to, nodes, (dtype,), convert, convert.infer
        )
        self.source = source


class _Converted:
    """Arrays as those of a dtype."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype

    def __call__(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with np.errstate(over="ignore"):
            return array.astype(self._dtype)

    def infer(
        self, facts: Sequence[ep.TensorFacts | None]
    ) -> Sequence[ep.TensorFacts | None]:
        """The type and shape of what it gives."""
        given = facts[0]
        if given is None:
            return [None]
        # contents are computed, as they are more than what rules may read of them
        return [ep.TensorFacts(data_type(self._dtype), given.shape)]


class _OnArrays:
    """A function of arrays of one type, for some that are narrow and some that are
    not."""

    def __init__(
        self, function: Callable[..., Any], made: Sequence[np.dtype[Any] | None]
    ) -> None:
        self._function, self._made = function, made

    def __call__(self, *arrays: Any) -> Any:
        wide = [
            array.astype(_F32) if array is not None and is_half(array.dtype) else array
            for array in arrays
        ]
        found = self._function(*wide)
        several = isinstance(found, tuple)
        results = [
            result if dtype is None or result is None else result.astype(dtype)
            for result, dtype in zip(
                found if several else (found,), self._made, strict=False
            )
        ]
        return tuple(results) if several else results[0]


class Followed:
    """What follows for a call whose values have other types than the model says."""

    def __init__(
        self,
        infer: Infer,
        given: Sequence[np.dtype[Any] | None],
        made: Sequence[np.dtype[Any] | None],
    ) -> None:
        self._infer = infer
        self._given, self._made = given, made

    def __call__(
        self, facts: Sequence[ep.TensorFacts | None]
    ) -> Sequence[ep.TensorFacts | None]:
        model = [_as(f, d) for f, d in zip(facts, self._given, strict=True)]
        found = self._infer(model)
        return [_as(f, d) for f, d in zip(found, self._made, strict=False)]


def _name_of(call: Call) -> str:
    return f"{call.domain}.{call.op_type}" if call.domain else call.op_type


def _as(
    facts: ep.TensorFacts | None, dtype: np.dtype[Any] | None
) -> ep.TensorFacts | None:
    """What is known of a value, as one of another type."""
    if facts is None or facts.dtype is None or dtype is None:
        return facts
    wanted, content = data_type(dtype), facts.content
    if facts.dtype is wanted:
        return facts
    if content is not None:
        with np.errstate(over="ignore"):
            content = content.astype(dtype)
    return ep.TensorFacts(wanted, facts.shape, content)


def with_values(
    call: Call,
    inputs: tuple[str | None, ...],
    outputs: tuple[str | None, ...],
    dtypes: tuple[np.dtype[Any] | None, ...],
    infer: Infer | None,
    kind: int | None,
) -> Call:
    """*call* with other inputs and outputs, which have *dtypes*."""
    other = Call(
        call.op_type,
        call.domain,
        call.version,
        inputs,
        outputs,
        call.attributes,
        call.nodes,
        dtypes,
        call.function,
        infer,
    )
    other.kind = kind
    return other
