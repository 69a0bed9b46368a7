"""Lets operators on codes be what they stand for, as quantizers otherwise write it.

``QLinearConv`` and the like have in one node what others write as ``DequantizeLinear``,
an operator of floats, and ``QuantizeLinear``.  As these they are found, and joined with
what is around them, by one way for both: see :mod:`~.frontend.patterns.quantised`.

Sources: ONNX operators QLinearConv-10 and QLinearMatMul-21, and ContribOperators.md of
ONNX Runtime, which state results as that of the numbers, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug_compiler.frontend.call import Call, attribute_defaults, data_type
from onnxplug_compiler.frontend.elementwise import step_form
from onnxplug_compiler.frontend.patterns.quantised import MOST_TERMS, are_windows
from onnxplug_compiler.frontend.traits import NONE
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.segmentation import why_not
from onnxplug_kernels import find_kernel

_F32: Final = np.dtype(np.float32)
_I32: Final = np.dtype(np.int32)
_BYTES: Final = frozenset({"i8", "u8"})

_LIKELY: Final = 1e-30, 1e30
"""Between which a scale neither makes zeros nor infinities of codes."""

Dtypes: TypeAlias = Mapping[str, "np.dtype[Any] | None"]
Array: TypeAlias = np.ndarray[Any, Any]


class Unfolded:
    """The calls of a partition, those unfolded whose scales and zero points are
    constants.

    Args:
        calls: in topological order.
        dtypes: of all values that calls read or that are given out.
        constants: of the partition.
        target: what they are compiled for.
        opset: the version of ONNX's operators in the model.

    Attributes:
        calls: in topological order.
        dtypes: of values that only they have.
        names: of these, and of values of the same shapes.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        dtypes: Dtypes,
        constants: Constants,
        target: Support,
        opset: int,
    ) -> None:
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.names: dict[str, str] = {}
        self._whole = calls
        self._parts: dict[Call, Sequence[Call]] = {}
        if _BYTES.issubset(target.elements("MatMulInteger")):
            for call in calls:
                form = _FORMS.get((call.domain, call.op_type))
                if form is not None:
                    unfolding = _Unfolding(call, dtypes, constants, opset)
                    if form(unfolding) and unfolding.is_compiled(target):
                        self._parts[call] = unfolding.calls
                        self.dtypes |= unfolding.dtypes
                        self.names |= unfolding.names
        self.calls = self.but_for(())

    def but_for(self, whole: Collection[int]) -> list[Call]:
        """The calls of which those of some nodes, which run on arrays, are whole."""
        found: list[Call] = []
        for call in self._whole:
            is_whole = not set(call.nodes).isdisjoint(whole)
            found += [call] if is_whole else self._parts.get(call, (call,))
        return found


class _Unfolding:
    """One call while it is unfolded.

    Attributes:
        calls: those that it becomes.
        dtypes, names: as of :class:`Unfolded`.
    """

    def __init__(
        self, call: Call, dtypes: Dtypes, constants: Constants, opset: int
    ) -> None:
        self.call = call
        self.constants = constants
        self.opset = opset
        self.calls: list[Call] = []
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.names: dict[str, str] = {}
        self._given = dtypes

    def is_compiled(self, target: Support) -> bool:
        """Whether *target* has all of the calls."""
        every = {**self._given, **self.dtypes}
        for call in self.calls:
            found = tuple(None if n is None else every[n] for n in call.inputs)
            is_step = step_form(call, found, target) is not None
            if not is_step and why_not(call, found, (), target) is not None:
                return False
        return True

    # what is known of inputs

    def dtype(self, position: int) -> np.dtype[Any] | None:
        name = self.call.input(position)
        return None if name is None else self._given.get(name)

    def are_codes(self, *positions: int) -> bool:
        """Whether the inputs at *positions*, and the result if it is no float, have
        bytes."""
        result = self.call.dtypes[0]
        found = [self.dtype(position) for position in positions]
        if result != _F32:
            found.append(result)
        return all(each is not None and element_of(each) in _BYTES for each in found)

    def shape(self, position: int) -> tuple[int, ...] | None:
        """The shape of a constant."""
        name = self.call.input(position)
        if name is None or name not in self.constants:
            return None
        return self.constants.known(name).shape

    def are_scales(self, *positions: int, count: int = 1) -> bool:
        """Whether there are constant scales at *positions*, and zero points behind
        them: one, or as many as *count* says."""
        for position in positions:
            if self.dtype(position) != _F32:
                return False
            scale, zero = self.shape(position), self.shape(position + 1)
            if scale is None or zero is None:
                return False
            is_one = math.prod(scale) == math.prod(zero) == 1
            if not is_one and not scale == zero == (count,):
                return False
            name = self.call.inputs[position]
            assert name is not None
            content = self.constants.known(name).content
            low, high = _LIKELY
            if content is None or not ((content > low) & (content < high)).all():
                return False
        return True

    # the calls

    def factor(self, position: int, axis: int = 1) -> str:
        """Floats of the codes at *position*, whose scale and zero point follow, which
        are wanted as codes."""
        inputs = self.call.inputs[position : position + 3]
        return self._dequantized(inputs, axis)

    def floats(self, position: int) -> str:
        """The same, of what is wanted as floats: those of constants are constants."""
        found = self.factor(position)
        self._follows()
        return found

    def _follows(self) -> None:
        """Let the floats of constants that the last call makes be constants."""
        made = self.calls[-1]
        made.traits, made.function = NONE, dequantised

    def bias(self, position: int, scales: tuple[int, int]) -> str | None:
        """Floats of int32 at *position*, whose scale is the product of others."""
        name = self.call.input(position)
        if name is None:
            return None
        one, other = (self.call.inputs[each] for each in scales)
        of_many = self.shape(scales[1]) or ()
        shape = of_many if math.prod(of_many) > 1 else self.shape(scales[0]) or ()
        infer = _Known(_F32, shape)
        named = one if shape is not of_many else other
        scale = self._made("Mul", (one, other), _F32, infer, {}, named)
        found = self._dequantized((name, scale), axis=0)
        self._follows()
        return found

    def _dequantized(self, inputs: Sequence[str | None], axis: int) -> str:
        given = {**_defaults("DequantizeLinear", self.opset), "axis": axis}
        infer = _same_shape
        return self._made(
            "DequantizeLinear", tuple(inputs), _F32, infer, given, inputs[0]
        )

    def finish(
        self,
        operator: str,
        inputs: Sequence[str | None],
        places: Sequence[int],
        result: int,
        attributes: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Let *operator* compute the result of floats.

        Args:
            places: of the inputs of the call of which these are.
            result: the position of the scale of the result; it is floats if there is
                none.
        """
        call, of_floats = self.call, _Result(self.call, self.constants, places)
        given = {**_defaults(operator, self.opset), **attributes}
        if call.input(result) is None:
            self._put(operator, inputs, call.outputs, _F32, of_floats, given)
            return
        name = call.outputs[0]
        floats = self._made(operator, inputs, _F32, of_floats, given, name)
        dtype = call.dtypes[0]
        assert dtype is not None
        given = {**_defaults("QuantizeLinear", self.opset), "axis": 1}
        codes = (floats, *call.inputs[result : result + 2])
        self._put("QuantizeLinear", codes, call.outputs, dtype, _Shaped(dtype), given)

    def _made(
        self,
        operator: str,
        inputs: Sequence[str | None],
        dtype: np.dtype[Any],
        infer: Callable[..., Any],
        attributes: Mapping[str, Any],
        like: str | None,
    ) -> str:
        """The name of the result of one more call, of the shape of *like*."""
        assert like is not None
        name = f"{operator} {len(self.calls)} of {self.call.outputs[0]}"
        while name in self._given:
            name += "'"
        self.dtypes[name], self.names[name] = dtype, like
        self._put(operator, inputs, (name,), dtype, infer, attributes)
        return name

    def _put(
        self,
        operator: str,
        inputs: Sequence[str | None],
        outputs: Sequence[str | None],
        dtype: np.dtype[Any],
        infer: Callable[..., Any],
        attributes: Mapping[str, Any],
    ) -> None:
        self.calls.append(
            Call(
                operator,
                "",
                self.opset,
                tuple(inputs),
                tuple(outputs),
                dict(attributes),
                self.call.nodes,
                (dtype,),
                np.multiply if operator == "Mul" and dtype == _F32 else None,
                infer,
            )
        )


def dequantised(codes: Array, scale: Array, zero: Array | None = None) -> Array:
    """What codes stand for, as float32.

    Args:
        scale: one, or one for each code of a vector.
        zero: one.
    """
    floats = codes.astype(np.float32)
    if zero is not None:
        floats -= zero.reshape(()).astype(np.float32)
    return np.asarray(floats * (scale.reshape(()) if scale.size == 1 else scale))


def _defaults(operator: str, opset: int) -> Mapping[str, Any]:
    kernel = find_kernel("", operator, opset)
    return {} if kernel is None else attribute_defaults(kernel.function)


# what follows for results

Facts: TypeAlias = Sequence["ep.TensorFacts | None"]


class _Shaped:
    """An array of a dtype, shaped as the first input."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = data_type(dtype)

    def __call__(self, facts: Facts) -> Facts:
        given = facts[0]
        return [None if given is None else ep.TensorFacts(self._dtype, given.shape)]


_same_shape: Final = _Shaped(_F32)


class _Known:
    """An array of a dtype and shape."""

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._facts = ep.TensorFacts(data_type(dtype), shape)

    def __call__(self, facts: Facts) -> Facts:
        return [self._facts]


class _Result:
    """Floats of the shape of what a call on codes gives."""

    def __init__(self, call: Call, constants: Constants, places: Sequence[int]) -> None:
        self._call, self._places = call, places
        self._others: list[ep.TensorFacts | None] = [
            None
            if name is None or name not in constants
            else constants.known(name).facts
            for name in call.inputs
        ]

    def __call__(self, facts: Facts) -> Facts:
        given = list(self._others)
        dtype = data_type(np.dtype(np.uint8))
        for place, of_floats in zip(self._places, facts, strict=False):
            if of_floats is not None:
                given[place] = ep.TensorFacts(dtype, of_floats.shape)
        assert self._call.infer is not None
        found = self._call.infer(given)[0]
        if found is None:
            return [None]
        return [ep.TensorFacts(data_type(_F32), found.shape)]


# operators


def _product(of: _Unfolding) -> bool:
    """QLinearMatMul."""
    shape = of.shape(3)
    columns = shape[-1] if shape is not None and len(shape) == 2 else 1
    if shape is not None and (len(shape) < 2 or shape[-2] > MOST_TERMS):
        return False
    if not (of.are_codes(0, 2, 3, 5, 7) and of.are_scales(1, 6)):
        return False
    if not of.are_scales(4, count=columns):
        return False
    of.finish("MatMul", (of.factor(0), of.factor(3)), (0, 3), 6)
    return True


def _convolution(of: _Unfolding) -> bool:
    """QLinearConv."""
    filters, call = of.shape(3), of.call
    if filters is None or len(filters) < 3:
        return False
    groups = int(call.attributes.get("group", 1))
    terms = math.prod(filters[1:])
    if not 0 < terms <= MOST_TERMS or not (groups == 1 or are_windows(groups, filters)):
        return False
    if not (of.are_codes(0, 2, 3, 5, 7) and of.are_scales(1, 6)):
        return False
    if not of.are_scales(4, count=filters[0]) or not _has_bias(of, 8, filters[:1]):
        return False
    inputs = [of.factor(0), of.factor(3, axis=0)]
    bias = of.bias(8, (1, 4))
    of.finish("Conv", [*inputs, bias] if bias else inputs, (0, 3), 6, call.attributes)
    return True


def _has_bias(of: _Unfolding, position: int, shape: tuple[int, ...]) -> bool:
    """Whether there is none at *position*, or a constant one of that shape."""
    if of.call.input(position) is None:
        return True
    return of.dtype(position) == _I32 and of.shape(position) == shape


def _gemm(of: _Unfolding) -> bool:
    """QGemm, whose addend has the scale of the sums."""
    b, attributes = of.shape(3), of.call.attributes
    if b is None or len(b) != 2:
        return False
    turns = {f"trans{name}": int(attributes.get(f"trans{name}", 0)) for name in "AB"}
    columns, terms = b[1 - turns["transB"]], b[turns["transB"]]
    if not 0 < terms <= MOST_TERMS or not of.are_codes(0, 2, 3, 5):
        return False
    if of.call.input(7) is not None and not of.are_scales(7):
        return False
    if not of.are_scales(1) or not of.are_scales(4, count=columns):
        return False
    if not _has_bias(of, 6, (columns,)):
        return False
    alpha = float(attributes.get("alpha", 1.0))
    axis = 1 - turns["transB"]
    inputs = [of.factor(0), of.factor(3, axis=axis)]
    bias = of.bias(6, (1, 4))
    given = {**turns, "alpha": alpha, "beta": alpha}
    of.finish("Gemm", [*inputs, bias] if bias else inputs, (0, 3), 7, given)
    return True


def _elements(operator: str) -> Callable[[_Unfolding], bool]:
    """QLinearAdd and QLinearMul."""

    def form(of: _Unfolding) -> bool:
        if not (of.are_codes(0, 2, 3, 5, 7) and of.are_scales(1, 4, 6)):
            return False
        of.finish(operator, (of.floats(0), of.floats(3)), (0, 3), 6)
        return True

    return form


_FORMS: Final[Mapping[tuple[str, str], Callable[[_Unfolding], bool]]] = {
    ("", "QLinearMatMul"): _product,
    ("", "QLinearConv"): _convolution,
    ("com.microsoft", "QGemm"): _gemm,
    ("com.microsoft", "QLinearAdd"): _elements("Add"),
    ("com.microsoft", "QLinearMul"): _elements("Mul"),
}
