"""Arrays of the host as native code expects them.

Owns: what an array of numpy's may differ in from another one of the same elements.
numpy is imported when there is an array.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from onnxplug.ep.types import EXTENSIONS, DataType
from onnxplug.errors import OutputMismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


_ONLY_TEXT: Final = frozenset({str})


@functools.cache
def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether *dtype* is one of ml_dtypes', which few functions of numpy take.

    What numpy says of the dtype object is not asked: one that was unpickled is a copy,
    and says that it is not builtin.

    Raises:
        TypeError: ONNX has no such element type.
    """
    return DataType.from_numpy(dtype) in EXTENSIONS


def usual_form(array: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """*array* as no subclass, in C layout, aligned, its dtype the object *dtype*.

    A dtype that was unpickled, or has metadata, is equal to the one that every other
    array has, and another object; native code compares addresses.

    Args:
        array: of *dtype*, in any order of bytes.

    Returns:
        *array* itself or a view where nothing else is needed, a copy otherwise.
    """
    import numpy as np

    plain = np.asarray(array)
    if plain.dtype is not dtype:
        if plain.dtype != dtype:
            return np.array(plain, dtype, order="C")
        plain = plain.view(dtype)
    flags = plain.flags
    if flags.c_contiguous and flags.aligned:
        return plain
    return np.array(plain, dtype, order="C")


def has_element_twice(array: np.ndarray[Any, Any]) -> bool:
    """Whether elements of *array* may share memory, as those of a broadcast one do.

    Arrays whose axes are interleaved, such that none lies within a step of another, are
    taken for such, too.
    """
    if not array.size:
        return False
    extent = array.dtype.itemsize
    axes = zip(array.strides, array.shape, strict=True)
    for stride, size in sorted((abs(stride), size) for stride, size in axes):
        if size > 1 and stride < extent:
            return True
        extent += (size - 1) * stride
    return False


def is_masked(array: Any) -> bool:
    """Whether some elements of *array* are hidden, below which there is anything."""
    import numpy as np

    return (
        type(array) is not np.ndarray
        and isinstance(array, np.ma.MaskedArray)
        and bool(np.ma.is_masked(array))
    )


def as_texts(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """*array* of any of numpy's kinds of text as a new one of objects, each a ``str``.

    Bytes are taken as UTF-8.

    Raises:
        TypeError: an element is no text.
    """
    import numpy as np

    if array.dtype.kind in "OUT":
        result = array.astype(object, order="C")
        if result.size == 1 and type(result.item()) is str:  # as one row has
            return result
        items = result.ravel().tolist()
        # no step of this is one of Python
        if _ONLY_TEXT.issuperset(map(type, items)):
            return result
    else:
        items = array.ravel().tolist()
    result = np.empty(array.size, dtype=object)
    result[:] = [item if type(item) is str else as_text(item) for item in items]
    return result.reshape(array.shape)


def as_text(item: Any) -> str:
    """A text as a ``str``, and no subclass of it; bytes are taken as UTF-8.

    Raises:
        TypeError: *item* is no text.
    """
    if isinstance(item, bytes):
        try:
            return item.decode()
        except UnicodeDecodeError as error:
            raise TypeError(
                f"has an element that is no text in UTF-8: {error}"
            ) from error
    if isinstance(item, str):
        # what a subclass, such as an enum's, shows of itself may be another text
        return str.__str__(item)
    raise TypeError(f"has an element of type {type(item).__name__}; expected strings")


def check_bound(what: str, result: Any, bound: Any) -> None:
    """Check that *bound* can take *result*.

    Args:
        what: the output in words, for the error.

    Raises:
        OutputMismatch: it differs in shape or element type.
    """
    if not hasattr(result, "shape") or not hasattr(bound, "shape"):
        raise OutputMismatch(
            f"{what} is a {type(result).__name__}, and a {type(bound).__name__} is "
            "bound to it; only a tensor is filled, so bind the output without a value"
        )
    if tuple(bound.shape) != tuple(result.shape) or bound.dtype != result.dtype:
        raise OutputMismatch(
            f"{what} is {result.dtype}{list(result.shape)}, and the array bound to "
            f"it is {bound.dtype}{list(bound.shape)}; bind one like the output"
        )


def fill_bound(results: Sequence[Any], outputs: Sequence[Any | None]) -> Sequence[Any]:
    """*results*, each copied into the array bound for it, if one is.

    Raises:
        OutputMismatch: a bound array differs in shape or dtype; nothing was written.
    """
    for bound in outputs:
        if bound is not None:
            break
    else:
        return results
    import numpy as np

    for position, (result, bound) in enumerate(zip(results, outputs, strict=True)):
        if bound is not None:
            check_bound(f"output {position}", result, bound)
    filled = []
    for result, bound in zip(results, outputs, strict=True):
        if bound is not None and bound is not result:
            np.copyto(bound, result)
        filled.append(result if bound is None else bound)
    return filled
