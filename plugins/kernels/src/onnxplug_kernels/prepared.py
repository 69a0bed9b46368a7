"""Work that depends on attributes alone, done once per node.

A kernel gets the same attribute objects at every call (they are bound to it), so
identity is enough to recognise them, and hashing a forest's million numbers is not
needed to find out that nothing changed.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
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
    """Remember *prepare*'s latest results by the identity of its arguments.

    Integers, strings and dtypes are recognised by their values.
    """
    # the arguments are kept with the result: an identity is theirs while they live
    results: OrderedDict[tuple[Any, ...], tuple[Any, Result]] = OrderedDict()
    lock = new_lock()

    @functools.wraps(prepare)
    def remembered(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        key = (*map(_identity, args), *map(_identity, kwargs.values()), *kwargs)
        with lock:
            if key in results:
                results.move_to_end(key)
                return results[key][1]
        result = prepare(*args, **kwargs)
        with lock:
            results[key] = ((args, kwargs), result)
            if len(results) > _CAPACITY:
                results.popitem(last=False)
        return result

    return remembered


def _identity(value: Any) -> Any:
    return value if isinstance(value, int | str | np.dtype) else (id(value),)


@prepared_once
def attribute_array(xp: Any, values: Any, dtype: Any) -> Any:
    """The array of *xp* with the *values* of an attribute."""
    return xp.asarray(values, dtype=dtype)
