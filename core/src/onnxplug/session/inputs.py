"""Checks what is fed to a session, before any EP sees it.

What fits is passed on as it is.  What can be brought into form without a change of
value is: lists, scalars, other byte orders, other layouts.  The rest is an error that
names the input, what was found and what is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring import bounds
from onnxplug.authoring.arrays import as_text, as_texts, is_masked, usual_form
from onnxplug.ep import (
    DataType,
    Dimension,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensor,
    SparseTensorType,
    TensorType,
    ValueType,
)
from onnxplug.ep.types import EXTENSIONS
from onnxplug.errors import InputError, InputTypeError
from onnxplug.escape import escape
from onnxplug.guard import in_words, type_in_words
from onnxplug.interruption import raise_interruption
from onnxplug.session.model_info import type_name
from onnxplug.shapes.symbols import SharedSymbols

Shape: TypeAlias = tuple[int, ...]

Check: TypeAlias = Callable[[Any], Any]

_Expected: TypeAlias = tuple[str, Check, "np.dtype[Any] | None", "Shape | None"]
"""An input's name, its check and, of a tensor, its dtype and its shape in a run
before."""

_OBJECT: Final = np.dtype(object)

MOST_SEEN: Final = 1024
"""Sets of shapes that are remembered as having fit."""


class InputChecker:
    """The checks of one session's inputs.

    *types* gives the type of each input, in order; *defaults* the arrays of the inputs
    that may be left out, which come after the others.
    """

    def __init__(
        self, types: Mapping[str, ValueType | None], defaults: Mapping[str, Any]
    ) -> None:
        self._types = dict(types)
        self._defaults = dict(defaults)
        self._checks = [
            (name, _checker(name, value_type)) for name, value_type in types.items()
        ]
        self._required = {name: types[name] for name in types if name not in defaults}
        self._default_values = list(defaults.values())
        self._expected = [
            _expected(name, self._required[name], check)
            for name, check in self._checks
            if name in self._required
        ]
        self._fitting: set[tuple[Shape | None, ...]] = set()
        self._shared = SharedSymbols(
            types, {name: array.shape for name, array in defaults.items()}
        )

    def pass_on(self, feed: Mapping[str, Any]) -> list[Any] | None:
        """As :meth:`check`, for what most feeds are: a dict with a value for each input
        that has no default.

        ``None``, which says nothing of the feed, when it is not so, or a value does not
        fit.

        Raises:
            InputError, BeliedSymbols: see :meth:`check`.
        """
        expected = self._expected
        if type(feed) is not dict or len(feed) != len(expected):
            return None
        values: list[Any] = []
        sizes_are_known = True
        try:
            for name, check, dtype, shape in expected:
                value = feed[name]
                if dtype is None:
                    values.append(check(value))
                    continue
                if type(value) is not np.ndarray:
                    value = check(value)
                elif dtype is _OBJECT:
                    value = as_texts(value)
                elif value.dtype is not dtype:
                    # as of an unpickled array; native code compares addresses
                    value = check(value)
                else:
                    flags = value.flags
                    if not flags.carray and not (flags.c_contiguous and flags.aligned):
                        value = usual_form(value, dtype)
                if value.shape != shape:
                    sizes_are_known = False
                values.append(value)
        except (KeyError, TypeError, InputError):
            return None  # what is wrong first is for the check to find
        if not sizes_are_known:
            shapes = tuple([getattr(value, "shape", None) for value in values])
            if shapes not in self._fitting:
                self._check_shapes(values)
                if len(self._fitting) >= MOST_SEEN:
                    self._fitting.clear()
                self._fitting.add(shapes)
        return values + self._default_values if self._default_values else values

    def _check_shapes(self, values: Sequence[Any]) -> None:
        """Check the shapes of all that must be fed, and expect them of the next run."""
        expected: list[_Expected] = []
        shapes: dict[str, Shape] = {}
        for before, value in zip(self._expected, values, strict=True):
            name, check, dtype, _ = before
            if dtype is None:
                expected.append(before)
                continue
            value_type = self._required[name]
            assert isinstance(value_type, TensorType)
            shapes[name] = value.shape
            if value_type.shape is not None:
                _check_shape(name, value.shape, value_type.shape)
            expected.append((name, check, dtype, value.shape))
        if self._shared:
            self._shared.check(shapes)
        self._expected = expected

    def check(
        self,
        feed: Mapping[str, Any],
        placed: Mapping[str, DataType] = MappingProxyType({}),
    ) -> list[Any]:
        """The values to run on, in order of the inputs.

        Args:
            placed: the element types of values that are arrays of a device's memory,
                which are only looked at.

        Raises:
            InputError: an input is missing, unknown, or does not fit.
            BeliedSymbols: all fit, and what the types state alike has several sizes.
        """
        require_mapping(feed)
        values = []
        known = 0
        for name, check in self._checks:
            known += name in feed
            if name in placed:
                _check_placed(name, self._types[name], feed[name], placed[name])
                values.append(feed[name])
            elif name in feed:
                values.append(check(feed[name]))
            elif name in self._defaults:
                values.append(self._defaults[name])
            else:
                raise self._missing(feed)
        if len(feed) != known:
            raise self._unknown(feed)
        if self._shared:
            self._shared.check(
                {
                    name: value.shape
                    for name, value in zip(self._types, values, strict=True)
                    if hasattr(value, "shape")
                }
            )
        return values

    def _missing(self, feed: Mapping[str, Any]) -> InputError:
        names = list(self._required)
        missing = [name for name in names if name not in feed]
        return InputError(
            f"Required inputs ({missing}) are missing from input feed "
            f"({list(feed)}).  The model's inputs are {names}",
            input=missing[0],
        )

    def _unknown(self, feed: Mapping[str, Any]) -> InputError:
        import difflib

        known = [name for name, _ in self._checks]
        name = next(name for name in feed if name not in known)
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return InputError(
            f"Invalid input name: {escape(name)}{hint}  The model's inputs are {known}",
            input=str(name),
        )


def require_mapping(feed: object) -> None:
    """Check that values are given by the names of inputs.

    Raises:
        InputTypeError: they are not.
    """
    # asked first of what most feeds are, since this runs at each call
    if type(feed) is not dict and not isinstance(feed, Mapping):
        raise InputTypeError(
            f"the feed is a {type(feed).__name__}; expected a dict from the names of "
            "inputs to their values"
        )


def _expected(name: str, value_type: ValueType | None, check: Check) -> _Expected:
    """What is expected of an input, of which no shape has been seen yet."""
    match value_type:
        case TensorType(dtype=DataType() as dtype):
            return name, check, dtype.numpy, None
    return name, check, None, None


def _checker(name: str, value_type: ValueType | None) -> Check:
    match value_type:
        case TensorType(dtype=DataType() as dtype, shape=shape):
            return _tensor_checker(name, dtype, shape)
        case SequenceType(element=element):
            return _sequence_checker(name, element)
        case OptionalType(element=element):
            return _optional_checker(name, element)
        case MapType(key=key, value=value):
            return _map_checker(name, key, value)
        case SparseTensorType(dtype=DataType() as dtype, shape=shape):
            return _sparse_checker(name, dtype, shape)
    return lambda value: value


def _tensor_checker(
    name: str, dtype: DataType, shape: tuple[Dimension, ...] | None
) -> Check:
    expected = dtype.numpy
    is_string = dtype is DataType.STRING
    static = shape if shape and all(type(size) is int for size in shape) else None
    scalar = shape == ()

    def check(value: Any) -> Any:
        if (
            is_string
            or type(value) is not np.ndarray
            or value.dtype is not expected
            or not (value.flags.c_contiguous and value.flags.aligned)
        ):
            value = _as_tensor(name, dtype, value)
        found = value.shape
        if found == static or shape is None or (scalar and found == ()):
            return value
        _check_shape(name, found, shape)
        return value

    return check


def _check_placed(
    name: str, value_type: ValueType | None, value: Any, dtype: DataType
) -> None:
    """Check an array of *dtype* that is not the host's."""
    if not isinstance(value_type, TensorType) or value_type.dtype is None:
        raise InputTypeError(
            f"input {name!r} is bound to device memory, and the model takes no tensor "
            "of a known element type there",
            input=name,
        )
    if dtype is not value_type.dtype:
        raise _wrong_dtype(name, value_type.dtype, dtype.numpy)
    if value_type.shape is not None:
        _check_shape(name, tuple(value.shape), value_type.shape)


def _check_shape(
    name: str, found: tuple[int, ...], expected: tuple[Dimension, ...]
) -> None:
    if len(found) != len(expected):
        raise InputError(
            f"Invalid rank for input: {escape(name)} Got: {len(found)} Expected: "
            f"{len(expected)} (shape {list(found)} where the model has "
            f"{_shown(expected)}).  Please fix either the inputs/outputs or the model.",
            input=name,
        )
    for axis, size in enumerate(found):
        dimension = expected[axis]
        if isinstance(dimension, int) and size != dimension:
            raise InputError(
                f"Got invalid dimensions for input: {escape(name)} for the following "
                f"indices\n index: {axis} Got: {size} Expected: {dimension}\n "
                f"(shape {list(found)} where the model has {_shown(expected)}).  "
                "Please fix either the inputs/outputs or the model.",
                input=name,
            )


def _shown(shape: Sequence[Dimension]) -> str:
    sizes = ("?" if size is None else escape(size) for size in shape)
    return f"[{', '.join(sizes)}]"


def _as_tensor(name: str, dtype: DataType, value: Any) -> np.ndarray[Any, Any]:
    """*value* in the form that EPs take, if it has the dtype."""
    array = _as_array(name, dtype, value)
    if dtype is DataType.STRING:
        return _as_strings(name, array)
    if array.dtype != dtype.numpy and array.dtype.newbyteorder("=") != dtype.numpy:
        raise _wrong_dtype(name, dtype, array.dtype)
    return usual_form(array, dtype.numpy)


def _as_array(name: str, dtype: DataType, value: Any) -> np.ndarray[Any, Any]:
    if value is None:
        raise InputTypeError(
            f"input {name!r} is None; expected a tensor of {dtype}", input=name
        )
    if isinstance(value, np.ndarray | np.generic):
        if is_masked(value):
            raise InputTypeError(
                f"input {name!r} is a masked array with elements that are hidden; "
                "expected all elements, which .filled(value) gives",
                input=name,
            )
        return np.asarray(value)
    if isinstance(value, type):
        raise InputTypeError(
            f"input {name!r} is the class {type_in_words(value)}; expected a tensor of "
            f"{dtype}",
            input=name,
        )
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return _from_library(name, value)
    if dtype is DataType.STRING:
        return np.array(value, dtype=object)
    try:
        array = np.array(value)
    except ValueError as error:
        raise InputTypeError(
            f"input {name!r} is a {type(value).__name__} that is no tensor: {error}",
            input=name,
        ) from error
    converted = _from_python(array, dtype)
    if converted is None:
        held = array.dtype.kind
        if held == "O":
            raise InputTypeError(
                f"input {name!r} is {in_words(value)}; expected a tensor of {dtype}",
                input=name,
            )
        held_in_words = "texts" if held in "US" else f"{array.dtype} values"
        raise InputTypeError(
            f"input {name!r} is a {type(value).__name__} of {held_in_words}, which do "
            f"not fit the expected element type {dtype}",
            input=name,
        )
    return converted


def _from_library(name: str, value: Any) -> np.ndarray[Any, Any]:
    """Another library's array, if that library hands it over."""
    try:
        if hasattr(value, "__array__"):
            return np.asarray(value)
        from onnxplug.session.dlpack import as_source, import_host  # seldom fed

        return import_host(as_source(value))
    # whatever the library raises, such as for a tensor that requires a gradient, lies
    # on a device, or has an element type that numpy lacks
    except Exception as error:
        raise_interruption(error)
        raise InputTypeError(
            f"input {name!r} is a {type(value).__name__} that gives numpy no array: "
            f"{error}",
            input=name,
        ) from error


def _from_python(
    array: np.ndarray[Any, Any], dtype: DataType
) -> np.ndarray[Any, Any] | None:
    """Python numbers in *dtype*; ``None`` when that would change their value."""
    order = "biufc"
    expected = dtype.numpy
    kind = expected.kind if expected.kind in order else "f"
    if dtype in (DataType.INT4, DataType.UINT4, DataType.INT2, DataType.UINT2):
        kind = "i"
    found = "i" if array.dtype.kind == "u" else array.dtype.kind
    if array.size == 0:
        return array.astype(expected)
    if found not in order or order.index(found) > order.index(kind):
        return None
    converted = array.astype(expected)
    if found in "bi" and kind in "iu" and not np.array_equal(converted, array):
        return None
    return converted


def _as_strings(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # of bytes to their last zeros, which np.bytes_ would cut off
    is_void = array.dtype.type is np.void and array.dtype.fields is None
    if array.dtype.kind not in "OUST" and not is_void:
        raise _wrong_dtype(name, DataType.STRING, array.dtype)
    try:
        return as_texts(array)
    except TypeError as error:
        raise InputTypeError(f"input {name!r} {error}", input=name) from error


def _wrong_dtype(name: str, expected: DataType, found: np.dtype[Any]) -> InputTypeError:
    remedy = f"; convert it with .astype({str(expected)!r})"
    if expected is DataType.STRING:
        remedy = ""
    elif expected in EXTENSIONS and (found.kind == "u" or found.type is np.void):
        remedy = f"; where these are its bits, .view(ml_dtypes.{expected}) reads them"
    return InputTypeError(
        f"Unexpected input data type. Actual: ({_dtype_name(found)}) , expected: "
        f"({type_name(TensorType(expected))}), for input {name!r}{remedy}",
        input=name,
    )


def _dtype_name(dtype: np.dtype[Any]) -> str:
    try:
        return type_name(TensorType(DataType.from_numpy(dtype)))
    except TypeError:
        return str(dtype)


def _sequence_checker(name: str, element: ValueType | None) -> Check:
    check_element = _checker(name, element)

    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            value = _held(value)
        if not isinstance(value, list | tuple):
            raise _wrong_kind(name, value, "a list", "a sequence")
        return [check_element(item) for item in value]

    return check


def _optional_checker(name: str, element: ValueType | None) -> Check:
    check_element = _checker(name, element)

    def check(value: Any) -> Any:
        held = _held(value)
        return None if held is None else check_element(held)

    return check


def _map_checker(name: str, key: DataType, value_type: ValueType | None) -> Check:
    if isinstance(value_type, TensorType):
        # a number, whatever shape is declared; Python's get the type of the values
        value_type = TensorType(value_type.dtype)
    check_value = _checker(name, value_type)

    def check(value: Any) -> Any:
        value = _held(value)
        if not isinstance(value, Mapping):
            raise _wrong_kind(name, value, "a dict", "a map")
        checked = {}
        for found, item in value.items():
            if isinstance(item, np.generic):  # a number, as Python's are
                item = item.item()
            item = check_value(item)
            is_scalar = isinstance(item, np.ndarray) and item.ndim == 0
            checked[_as_key(name, key, found)] = item[()] if is_scalar else item
        if len(checked) != len(value):
            raise InputTypeError(
                f"input {name!r} has keys that are the same text, once as bytes and "
                f"once not: {list(value)[:10]}",
                input=name,
            )
        return checked

    return check


def _as_key(name: str, dtype: DataType, key: Any) -> str | int:
    if dtype is DataType.STRING:
        try:
            return as_text(key)
        except TypeError as error:
            raise InputTypeError(f"input {name!r} {error}", input=name) from error
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        info = np.iinfo(dtype.numpy)
        if info.min <= key <= info.max:
            return int(key)
    raise InputTypeError(
        f"input {name!r} has the key {key!r} of type {type(key).__name__}; the keys of "
        f"the model's map are {dtype}",
        input=name,
    )


def _sparse_checker(
    name: str, dtype: DataType, shape: tuple[Dimension, ...] | None
) -> Check:
    from onnxplug.graph.graph import outside  # few models have sparse inputs

    def check(value: Any) -> Any:
        value = _held(value)
        if not isinstance(value, SparseTensor):
            wanted = "an onnxplug.ep.SparseTensor"
            raise _wrong_kind(name, value, wanted, "a sparse tensor")
        values = _as_tensor(name, dtype, value.values)
        indices = _as_tensor(name, DataType.INT64, value.indices)
        found = tuple(value.shape)
        if shape is not None:
            _check_shape(name, found, shape)
        count = len(values) if values.ndim == 1 else -1
        if indices.shape not in ((count,), (count, len(found))):
            raise InputError(
                f"input {name!r}, sparse, of shape {list(found)}, has values of "
                f"shape {list(values.shape)} and indices of shape "
                f"{list(indices.shape)}; expected indices [n] or [n, rank] for values "
                "[n]",
                input=name,
            )
        try:
            found = bounds.sizes(found)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"input {name!r}, sparse, has no shape: {error}", input=name
            ) from error
        wrong = outside(indices, found)
        if wrong.any():
            raise InputError(
                f"input {name!r}, sparse, of shape {list(found)}, has an index outside "
                f"it: {indices[wrong][0]}",
                input=name,
            )
        return SparseTensor(values=values, indices=indices, shape=found)

    return check


def _held(value: Any) -> Any:
    """What is in an ``OrtValue``, copied from a device, or *value* itself."""
    from onnxplug.session.ort_value import OrtValue

    if not isinstance(value, OrtValue):
        return value
    return value.raw if value.device is None else value.numpy()


def _wrong_kind(name: str, value: Any, wanted: str, kind: str) -> InputTypeError:
    return InputTypeError(
        f"input {name!r} is a {type(value).__name__}; expected {wanted}, since the "
        f"model's input is {kind}",
        input=name,
    )
