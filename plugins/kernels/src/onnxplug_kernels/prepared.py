"""Work that depends on attributes alone, done once per node.

A kernel gets the same attribute objects at every call (they are bound to it), so
identity is enough to recognise them, and hashing a forest's million numbers is not
needed to find out that nothing changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from onnxplug.authoring.locks import new_lock

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_CAPACITY: Final = 1024


def prepared_once(
    prepare: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
    """Remember *prepare*'s last results by the identity of its arguments.

    Integers, strings and dtypes are recognised by their values.
    """
    # the arguments are kept with the result: an identity is theirs while they live
    results: dict[tuple[Any, ...], tuple[Any, Result]] = {}
    lock = new_lock()

    @functools.wraps(prepare)
    def remembered(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        key = (*map(_identity, args), *map(_identity, kwargs.values()), *kwargs)
        found = results.get(key)
        if found is not None:
            return found[1]
        result = prepare(*args, **kwargs)
        with lock:
            results[key] = ((args, kwargs), result)
            if len(results) > _CAPACITY:
                del results[next(iter(results))]
        return result

    return remembered


def _identity(value: Any) -> Any:
    kind = type(value)
    if kind is tuple or kind is np.ndarray:  # as most attributes are
        return (id(value),)
    return value if isinstance(value, int | str | np.dtype) else (id(value),)


@prepared_once
def attribute_array(xp: Any, values: Any, dtype: Any) -> Any:
    """The array of *xp* with the *values* of an attribute."""
    return xp.asarray(values, dtype=dtype)
