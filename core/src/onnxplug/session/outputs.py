"""Makes outputs the caller's own: fresh, writeable, C-contiguous arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from gc import is_tracked
from operator import attrgetter
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug.authoring.arrays import check_bound
from onnxplug.authoring.memory_limit import check_room
from onnxplug.ep import Dimension, SparseTensor, TensorType, ValueType
from onnxplug.errors import ArgumentTypeError, ModelWarning, OutOfMemory, OutputMismatch
from onnxplug.names import as_names
from onnxplug.run.aliasing import parts
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from onnxplug.run.device import Device


MOST_COMPARED: Final = 1024
"""Sets of shapes that are remembered as having been compared with what is declared."""


def as_output_names(names: Any) -> list[str]:
    """The names of outputs that a caller wants, checked to be a list of texts."""
    return as_names(names, "output_names", ArgumentTypeError)


class DeclaredShapes:
    """The sizes that a model declares for its outputs, and whether results have them.

    A result of another shape is returned all the same, as in ONNX Runtime: exporters
    often declare what the sample input had.  It warns once for each output.
    """

    def __init__(self, types: Mapping[str, ValueType | None]) -> None:
        self._expected = [
            (position, name, value_type.shape)
            for position, (name, value_type) in enumerate(types.items())
            if isinstance(value_type, TensorType) and value_type.shape is not None
        ]
        self._latest: list[tuple[int, object]] = [
            (position, shape) for position, _, shape in self._expected
        ]
        self._compared: set[tuple[object, ...]] = set()

    def check(self, results: Sequence[Any]) -> None:
        """Warn of results whose rank or sizes are not those declared."""
        try:
            for position, shape in self._latest:
                if results[position].shape != shape:
                    break
            else:
                return
        except AttributeError:  # a list, a map or nothing
            pass
        shapes = tuple(
            [getattr(results[position], "shape", None) for position, _ in self._latest]
        )
        if shapes in self._compared:
            return
        self._compare(results)
        self._latest = [
            (position, shape)
            for (position, _), shape in zip(self._latest, shapes, strict=True)
        ]
        if len(self._compared) >= MOST_COMPARED:
            self._compared.clear()
        self._compared.add(shapes)

    def _compare(self, results: Sequence[Any]) -> None:
        for entry in self._expected:
            position, name, shape = entry
            if not isinstance(results[position], np.ndarray):
                continue
            found: tuple[int, ...] = results[position].shape
            if _contradict(found, shape):
                self._expected = [e for e in self._expected if e is not entry]
                _warn_of_shape(name, found, shape)


def _contradict(found: Sequence[int], declared: Sequence[Dimension]) -> bool:
    if len(found) != len(declared):
        return True
    for axis, size in enumerate(found):
        if size != declared[axis] and isinstance(declared[axis], int):
            return True
    return False


def _warn_of_shape(
    name: str, found: tuple[int, ...], declared: tuple[Dimension, ...]
) -> None:
    warn_user(
        f"output {name!r} has shape {list(found)}, and the model declares "
        f"{list(declared)}; the model's declaration is wrong",
        ModelWarning,
    )


def own(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """*results* such that writing to one changes no input, constant or other result.

    An array is copied when it is, or is a view of, an input, another result, or memory
    that is read-only; and when it is not C-contiguous.
    """
    owned: list[Any] = []
    others = False
    for result in results:
        # an input, or what another array is a view of, is referred to elsewhere too
        if type(result) is np.ndarray and getrefcount(result) == _REFERENCES:
            flags = result.flags
            if flags.carray:
                base = result.base
                if flags.owndata or (
                    type(base) is np.ndarray
                    and getrefcount(base) == _BASE_REFERENCES
                    and base.flags.owndata
                ):
                    owned.append(result)
                    continue
        elif type(result) is list:
            if _are_small_arrays(result):
                owned.append(list(map(_COPIED, result)))
                continue
            if getrefcount(result) == _REFERENCES and _are_own_maps(result):
                owned.append(result)
                continue
        owned.append(_UNKNOWN)
        others = True
    if others:
        taken: set[int] = set()
        for value in inputs:
            if type(value) is np.ndarray:
                taken.add(id(value if value.base is None else _root(value)))
            else:
                taken.update(id(_root(part)) for part in parts(value))
        for position, result in enumerate(results):
            if owned[position] is _UNKNOWN:
                owned[position] = _own(result, taken)
    return owned


def _references(results: Sequence[Any]) -> tuple[int, int]:
    """As in :func:`own`: how often a result and its base are referred to."""
    for result in results:
        base = result.base
        return getrefcount(result), getrefcount(base)
    return 0, 0


_REFERENCES, _BASE_REFERENCES = _references([np.empty(2)[:1]])
"""How often a result, and what it is a view of, is referred to if nothing else holds
it."""

_ONE: Final = frozenset(map(getrefcount, [{}]))
"""How often an element of a list is referred to if nothing else holds it."""

_ONLY_DICT: Final = frozenset({dict})
_ONLY_ARRAY: Final = frozenset({np.ndarray})

_SMALL: Final = 1 << 12
"""Bytes of all arrays of a list that are copied sooner than they are looked at."""

_NBYTES: Final = attrgetter("nbytes")
_COPIED: Final = np.ndarray.copy


def _are_own_maps(values: list[Any]) -> bool:
    """Whether all are maps of numbers or texts that nothing else refers to.

    No step for an element is one of Python.
    """
    return (
        _ONLY_DICT.issuperset(map(type, values))
        and _ONE.issuperset(map(getrefcount, values))
        # the collector leaves out what can lead to no other object
        and not any(map(is_tracked, values))
    )


def _are_small_arrays(values: list[Any]) -> bool:
    """Whether all are plain arrays, and take few bytes together."""
    return (
        _ONLY_ARRAY.issuperset(map(type, values))
        and sum(map(_NBYTES, values)) <= _SMALL
    )


_UNKNOWN: Final = object()


def _own(result: Any, taken: set[int]) -> Any:
    if type(result) is np.ndarray:
        return _own_array(result, taken)
    if isinstance(result, list):
        return [_own(item, taken) for item in result]
    if isinstance(result, SparseTensor):
        return SparseTensor(
            values=_own(result.values, taken),
            indices=_own(result.indices, taken),
            shape=result.shape,
        )
    if isinstance(result, dict):
        # numbers stay what they are: they cannot be written to
        return {
            key: item if isinstance(item, np.generic) else _own(item, taken)
            for key, item in result.items()
        }
    if isinstance(result, np.ndarray | np.generic):
        return _own_array(np.asarray(result), taken)
    return result  # an element of a map, or nothing


def _own_array(array: np.ndarray[Any, Any], taken: set[int]) -> np.ndarray[Any, Any]:
    root, flags = _root(array), array.flags
    if (
        id(root) in taken
        or not flags.writeable
        or not flags.c_contiguous
        or not _owns_memory(root)
    ):
        root = array = _copy(array)
    taken.add(id(root))
    return array


def _copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    try:
        # a view may stand for more than there is
        check_room(array.nbytes)
        return array.copy(order="C")
    except MemoryError as error:
        what = f"an output, {array.dtype}{list(array.shape)},"
        raise OutOfMemory.of(error, what, nbytes=array.nbytes) from error


def _root(value: Any) -> Any:
    """The array that *value* is a view of, at the end of the chain."""
    while type(value) is np.ndarray and isinstance(value.base, np.ndarray):
        value = value.base
    return value


def _owns_memory(root: Any) -> bool:
    return type(root) is np.ndarray and root.flags.owndata


def check_bound_output(
    name: str, result: Any, bound: Any, device: Device | None
) -> None:
    """Check that *bound* can take *result*, both on *device* if it is there.

    Raises:
        OutputMismatch: it differs in shape or element type.
    """
    if device is None or not (hasattr(result, "shape") and hasattr(bound, "shape")):
        check_bound(f"output {name!r}", result, bound)
        return
    given = device.data_type(bound)
    wrong = device.what_is_wrong(result, bound.shape, given)
    if wrong is not None:
        raise OutputMismatch(
            f"output {name!r} is {wrong}, and the array bound to it is "
            f"{given}{list(bound.shape)}; bind one like the output"
        )
