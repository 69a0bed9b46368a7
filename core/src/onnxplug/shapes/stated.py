"""What two sources say of a value's type, put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from onnxplug.authoring.generated import GENERATED
from onnxplug.authoring.sizes import Size, TooLong, named, substituted
from onnxplug.ep import (
    DataType,
    Dimension,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
)


class Contradiction(Exception):
    """Two types that no value can both have."""


def is_known(type: ValueType | None) -> bool:
    """Whether the element type and the rank are known."""
    match type:
        case TensorType(dtype, shape) | SparseTensorType(dtype, shape):
            return dtype is not None and shape is not None
        case SequenceType(element) | OptionalType(element):
            return element is not None
    return type is not None


def has_sizes(type: ValueType | None, *, made_up: bool = False) -> bool:
    """Whether nothing is unknown, sizes included.

    Args:
        made_up: names that inference made up count as sizes, as those of the model do.
    """
    match type:
        case TensorType(dtype, shape) | SparseTensorType(dtype, shape):
            return (
                dtype is not None
                and shape is not None
                and not any(
                    size is None
                    or (not made_up and isinstance(size, str) and GENERATED in size)
                    for size in shape
                )
            )
    return is_known(type)


def merged(ours: ValueType | None, theirs: ValueType | None) -> ValueType | None:
    """What is known when both are true; sizes that contradict become unknown.

    Sizes are forgiven since many models carry stale ones; element types are not.

    Raises:
        Contradiction: the kinds or element types differ.
    """
    if ours is None or theirs is None or ours == theirs:
        return ours if theirs is None else theirs
    match ours, theirs:
        case TensorType(), TensorType():
            dtype = _merged_dtype(ours.dtype, theirs.dtype)
            return TensorType(dtype, _merged_shape(ours.shape, theirs.shape))
        case SparseTensorType(), SparseTensorType():
            dtype = _merged_dtype(ours.dtype, theirs.dtype)
            return SparseTensorType(dtype, _merged_shape(ours.shape, theirs.shape))
        case SequenceType(), SequenceType():
            return SequenceType(merged(ours.element, theirs.element))
        case OptionalType(), OptionalType():
            return OptionalType(merged(ours.element, theirs.element))
        case MapType(), MapType():
            return ours
    raise Contradiction


def _merged_dtype(ours: DataType | None, theirs: DataType | None) -> DataType | None:
    if ours is None or theirs is None:
        return ours or theirs
    if ours is not theirs:
        raise Contradiction
    return ours


def _merged_shape(
    ours: tuple[Dimension, ...] | None, theirs: tuple[Dimension, ...] | None
) -> tuple[Dimension, ...] | None:
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    if len(ours) != len(theirs):
        return None
    return tuple(map(_merged_size, ours, theirs))


def _merged_size(ours: Dimension, theirs: Dimension) -> Dimension:
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    if isinstance(ours, int):
        return ours if isinstance(theirs, str) or ours == theirs else None
    if isinstance(theirs, int) or GENERATED in ours:
        return theirs
    return ours


def joined(ours: ValueType | None, theirs: ValueType | None) -> ValueType | None:
    """What is known of a value that is of one of two types, whichever it is."""
    if ours == theirs:
        return ours
    match ours, theirs:
        case TensorType(), TensorType():
            shape = _joined_shape(ours.shape, theirs.shape)
            return TensorType(ours.dtype if ours.dtype is theirs.dtype else None, shape)
        case SequenceType(), SequenceType():
            return SequenceType(joined(ours.element, theirs.element))
        case OptionalType(), OptionalType():
            return OptionalType(joined(ours.element, theirs.element))
    return None


def _joined_shape(
    ours: tuple[Dimension, ...] | None, theirs: tuple[Dimension, ...] | None
) -> tuple[Dimension, ...] | None:
    if ours is None or theirs is None or len(ours) != len(theirs):
        return None
    return tuple(
        one if one == other else None for one, other in zip(ours, theirs, strict=True)
    )


def with_sizes(
    type: ValueType | None, sizes: Mapping[str, int | str]
) -> ValueType | None:
    """*type* with what *sizes* says in place of the names of dimensions in it."""
    return _reshaped(
        type, lambda size: _resized(size, sizes) if isinstance(size, str) else size
    )


def without_names(type: ValueType | None, part: str = "") -> ValueType | None:
    """*type* without the names of dimensions that contain *part*."""
    return _reshaped(
        type, lambda size: None if isinstance(size, str) and part in size else size
    )


def without_sizes(type: ValueType | None, sizes: Collection[str]) -> ValueType | None:
    """*type* without the dimensions' names and expressions that are in *sizes*."""
    return _reshaped(type, lambda size: None if size in sizes else size)


def _reshaped(
    type: ValueType | None, change: Callable[[Dimension], Dimension]
) -> ValueType | None:
    """*type* with each dimension changed."""
    match type:
        case TensorType(dtype, shape) if shape is not None:
            return TensorType(dtype, tuple(map(change, shape)))
        case SparseTensorType(dtype, shape) if shape is not None:
            return SparseTensorType(dtype, tuple(map(change, shape)))
        case SequenceType(element):
            return SequenceType(_reshaped(element, change))
        case OptionalType(element):
            return OptionalType(_reshaped(element, change))
    return type


def without_shapes(type: ValueType | None) -> ValueType | None:
    """The kind of *type* and its element types, and no more."""
    match type:
        case TensorType(dtype):
            return TensorType(dtype)
        case SparseTensorType(dtype):
            return SparseTensorType(dtype)
        case SequenceType(element):
            return SequenceType(without_shapes(element))
        case OptionalType(element):
            return OptionalType(without_shapes(element))
    return type


def names_of_sizes(type: ValueType | None) -> tuple[str, ...]:
    """The names of dimensions in *type*."""
    match type:
        case TensorType(_, shape) | SparseTensorType(_, shape) if shape is not None:
            return tuple(size for size in shape if isinstance(size, str))
        case SequenceType(element) | OptionalType(element):
            return names_of_sizes(element)
    return ()


def _resized(size: str, sizes: Mapping[str, int | str]) -> int | str:
    if size in sizes or size.isidentifier():
        return sizes.get(size, size)
    expression = Size.parse(size)
    if expression is None:
        return size
    known = {
        name: named(new) if isinstance(new, str) else new for name, new in sizes.items()
    }
    try:
        found = substituted(expression, known)
    except TooLong:
        return size
    if found is None or found == expression:
        return size
    return found if isinstance(found, int) else str(found)
