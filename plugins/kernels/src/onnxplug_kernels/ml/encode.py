"""Features made ready for a predictor: mapped, scaled, filled in, put together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import at_least, sizes
from onnxplug_kernels.gather import as_int64, require_in_range
from onnxplug_kernels.ml.scores import label_array, labels_at
from onnxplug_kernels.prepared import attribute_array, prepared_once
from onnxplug_kernels.registry import operator

_DOMAIN = "ai.onnx.ml"


@operator("ArrayFeatureExtractor", since=1, domain=_DOMAIN)
def array_feature_extractor(xp: Any, x: Any, indices: Any) -> Any:
    """Columns of *x*; a vector is one row, and so is what is taken of it."""
    rows = x if x.ndim > 1 else xp.reshape(x, (1, -1))
    # from the back, too: converters mark neighbours that are none by -1, and hide them
    require_in_range(xp, indices, rows.shape[-1], "the features")
    return xp.take(rows, xp.reshape(indices, (-1,)), axis=rows.ndim - 1)


@operator("Binarizer", since=1, domain=_DOMAIN)
def binarizer(xp: Any, x: Any, *, threshold: float = 0.0) -> Any:
    return xp.astype(xp.asarray(x > threshold), x.dtype)


@operator("FeatureVectorizer", since=1, domain=_DOMAIN)
def feature_vectorizer(
    xp: Any, *tensors: Any, inputdimensions: tuple[int, ...] = ()
) -> Any:
    """All features of each row, each input cut or filled to its number of them."""
    columns = [_matrix(xp, x) for x in tensors]
    widths = inputdimensions or tuple(x.shape[1] for x in columns)
    at_least(0, widths, "inputdimensions")
    rows = [x.shape[0] for x in columns]
    sizes((rows[0], sum(widths)), itemsize=4)
    if len(set(rows)) > 1:
        raise ValueError(
            f"FeatureVectorizer has inputs with {rows} rows; expected equally many"
        )
    if len(widths) != len(columns):
        raise ValueError(
            f"FeatureVectorizer: inputdimensions has {len(widths)} entries "
            f"for {len(columns)} inputs"
        )
    result = xp.zeros((rows[0], sum(widths)), dtype=xp.float32)
    start = 0
    for x, width in zip(columns, widths, strict=True):
        kept = min(width, x.shape[1])
        columns_of_x = xp.astype(x[:, :kept], xp.float32, copy=False)
        result[:, start : start + kept] = columns_of_x
        start += width
    return result


def _matrix(xp: Any, x: Any) -> Any:
    # sizes rather than -1, which is unknown where there are no rows
    if x.ndim < 2:
        return xp.reshape(x, (1, xp.size(x)))
    return xp.reshape(x, (x.shape[0], math.prod(x.shape[1:])))


@operator("Imputer", since=1, domain=_DOMAIN)
def imputer(
    xp: Any,
    x: Any,
    *,
    imputed_value_floats: tuple[float, ...] = (),
    imputed_value_int64s: tuple[int, ...] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:
    floating = xp.kind(x.dtype) == "f"
    values = imputed_value_floats if floating else imputed_value_int64s
    replaced = replaced_value_float if floating else replaced_value_int64
    _check_per_feature("imputed values", len(values), x)
    missing = x == replaced if replaced == replaced else xp.isnan(x)
    return xp.where(missing, attribute_array(xp, values, x.dtype), x)


@operator("Normalizer", since=1, domain=_DOMAIN)
def normalizer(xp: Any, x: Any, *, norm: str = "MAX") -> Any:
    """Each row divided by its norm, unless that is zero."""
    x = xp.astype(x, xp.float32 if x.dtype == xp.float32 else xp.float64)
    match norm:
        case "MAX":
            size = xp.max(x, axis=-1, keepdims=True)
        case "L1":
            size = xp.sum(xp.abs(x), axis=-1, keepdims=True)
        case "L2":
            size = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
        case _:
            raise ValueError(f"Normalizer: norm is {norm!r}, not 'MAX', 'L1' or 'L2'")
    return xp.astype(x / xp.where(size == 0, 1, size), xp.float32)


@operator("Scaler", since=1, domain=_DOMAIN)
def scaler(
    xp: Any,
    x: Any,
    *,
    offset: tuple[float, ...] = (0.0,),
    scale: tuple[float, ...] = (1.0,),
) -> Any:
    _check_per_feature("offsets", len(offset), x)
    _check_per_feature("scales", len(scale), x)
    x = xp.astype(x, xp.float32 if x.dtype == xp.float32 else xp.float64)
    shifted = x - attribute_array(xp, offset, x.dtype)
    return xp.astype(shifted * attribute_array(xp, scale, x.dtype), xp.float32)


def _check_per_feature(what: str, count: int, x: Any) -> None:
    features = x.shape[-1] if x.ndim else 1
    if count not in (1, features):
        raise ValueError(
            f"found {count} {what} for {features} features; "
            f"there should be one, or one per feature"
        )


@operator("OneHotEncoder", since=1, domain=_DOMAIN)
def one_hot_encoder(
    xp: Any,
    x: Any,
    *,
    cats_int64s: tuple[int, ...] = (),
    cats_strings: tuple[str, ...] = (),
    zeros: int = 1,
) -> Any:
    """Along a new last axis, a one in the place of the category."""
    categories = label_array(cats_strings, cats_int64s)
    values = x if x.dtype == object else as_int64(xp, x)
    places = xp.reshape(_places(xp, values, categories), values.shape)
    if not zeros and bool(xp.any(places < 0)):
        raise unknown_category(xp.to_numpy(values)[xp.to_numpy(places) < 0][0])
    hot = places[..., None] == xp.arange(len(categories))
    return xp.astype(hot, xp.float32)


@operator("CategoryMapper", since=1, domain=_DOMAIN, host_only=True)
def category_mapper(
    xp: Any,
    x: Any,
    *,
    cats_int64s: tuple[int, ...] = (),
    cats_strings: tuple[str, ...] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:
    if len(cats_int64s) != len(cats_strings):
        raise ValueError(
            f"CategoryMapper has {len(cats_int64s)} integers for "
            f"{len(cats_strings)} strings; there should be as many"
        )
    strings = attribute_array(xp, cats_strings, object)
    integers = attribute_array(xp, cats_int64s, xp.int64)
    if x.dtype == object:
        return _mapped(xp, x, strings, _with_default(integers, default_int64))
    return _mapped(xp, x, integers, _with_default(strings, default_string))


@operator("LabelEncoder", since=1, until=1, domain=_DOMAIN, host_only=True)
def label_encoder_1(
    xp: Any,
    x: Any,
    *,
    classes_strings: tuple[str, ...] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:
    """Strings to their places in the list, and places to strings."""
    strings = attribute_array(xp, classes_strings, object)
    if x.dtype == object:
        places = xp.reshape(_places(xp, x, strings), x.shape)
        return xp.where(places < 0, default_int64, places).astype(xp.int64)
    result = xp.full(x.shape, default_string, dtype=object)
    known = (x >= 0) & (x < len(strings))
    result[known] = strings[x[known]]
    return result


@operator("LabelEncoder", since=2, domain=_DOMAIN)
def label_encoder(
    xp: Any,
    x: Any,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Any = None,
    keys_floats: tuple[float, ...] = (),
    keys_int64s: tuple[int, ...] = (),
    keys_strings: tuple[str, ...] = (),
    keys_tensor: Any = None,
    values_floats: tuple[float, ...] = (),
    values_int64s: tuple[int, ...] = (),
    values_strings: tuple[str, ...] = (),
    values_tensor: Any = None,
) -> Any:
    """The value of each key; of a repeated key, the last one."""
    keys, values = values_and_default(
        {
            "default_float": default_float,
            "default_int64": default_int64,
            "default_string": default_string,
            "default_tensor": default_tensor,
            "keys_floats": keys_floats,
            "keys_int64s": keys_int64s,
            "keys_strings": keys_strings,
            "keys_tensor": keys_tensor,
            "values_floats": values_floats,
            "values_int64s": values_int64s,
            "values_strings": values_strings,
            "values_tensor": values_tensor,
        }
    )
    return _mapped(xp, x, keys, values)


def values_and_default(attributes: Mapping[str, Any]) -> tuple[Any, Any]:
    """The keys of ``LabelEncoder``, and the value of each, with the default behind.

    Raises:
        ValueError: the attributes do not say so.
    """
    kinds = ("strings", "int64s", "floats", "tensor")
    keys, values = (
        _one_kind(name, *[attributes[f"{name}_{kind}"] for kind in kinds])
        for name in ("keys", "values")
    )
    if len(keys) != len(values):
        raise ValueError(
            f"LabelEncoder has {len(keys)} keys for {len(values)} values; "
            f"there should be as many"
        )
    default = attributes["default_tensor"]
    if default is not None:
        if default.size != 1:
            raise ValueError(
                f"default_tensor has shape {default.shape}, expected one element"
            )
    elif values.dtype == object:
        default = attributes["default_string"]
    else:
        kind = "float" if values.dtype.kind == "f" else "int64"
        default = attributes[f"default_{kind}"]
    return keys, _with_default(values, default)


@prepared_once
def _one_kind(
    name: str,
    strings: tuple[str, ...],
    integers: tuple[int, ...],
    floats: tuple[float, ...],
    tensor: Any,
) -> Any:
    """The one array that was given."""
    found = [
        np.asarray(values, dtype=dtype)
        for values, dtype in ((strings, object), (integers, np.int64), (floats, "f"))
        if values
    ]
    if tensor is not None:
        text = tensor.dtype.kind in "OUT"
        found.append(tensor.reshape(-1).astype(object if text else tensor.dtype))
    if len(found) != 1:
        raise ValueError(
            f"LabelEncoder takes its {name} from one attribute, but found "
            f"{len(found)} of {name}_strings, {name}_int64s, {name}_floats and "
            f"{name}_tensor"
        )
    return found[0]


def _mapped(xp: Any, x: Any, keys: Any, values: Any) -> Any:
    """The value of each key in *x*; strings are on the host, whatever *xp* is.

    Args:
        values: the last one is that of what is no key.
    """
    on_host = values.dtype == object
    # an unknown key's place is -1, which is the last one
    placed = values if on_host else _on_device(xp, values)
    found = labels_at(xp, placed, _places(xp, x, keys))
    return found.reshape(x.shape) if on_host else xp.reshape(found, x.shape)


@prepared_once
def _on_device(xp: Any, values: Any) -> Any:
    return xp.from_numpy(values)


@prepared_once
def _with_default(values: Any, default: Any) -> Any:
    """*values*, and after them *default*, which may be an array of one element."""
    if isinstance(default, np.ndarray):
        default = default.item()
    return np.concatenate((values, np.full(1, default, dtype=values.dtype)))


def _places(xp: Any, x: Any, keys: Any) -> Any:
    """For each element of *x*, row by row, where in *keys* it is (last), or -1.

    All NaN are one key.
    """
    if (x.dtype == object) != (keys.dtype == object):
        raise ValueError(
            f"the keys are {_kind(keys)}, but the input to look up is {_kind(x)}"
        )
    if keys.dtype == object:
        return xp.from_numpy(_found(keys)(x).reshape(-1))
    x = xp.reshape(x, (-1,))
    ordered, places, of_nan = _sorted_on_device(xp, keys)
    if ordered.shape[0]:
        nearest = xp.minimum(xp.searchsorted(ordered, x), ordered.shape[0] - 1)
        known = xp.take(ordered, nearest, axis=0) == x
        found = xp.where(known, xp.take(places, nearest, axis=0), -1)
    else:
        found = xp.full(x.shape, -1, dtype=xp.int64)
    return found if of_nan < 0 else xp.where(x != x, of_nan, found)


def _kind(array: Any) -> str:
    return "strings" if array.dtype == object else "numbers"


class Found:
    """Where in a list the texts of an array are, the last of equal ones; -1 for others.

    Args:
        texts: the list.

    Attributes:
        texts: as given.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: Final = tuple(texts)
        self._place = {text: place for place, text in enumerate(self.texts)}.get

    def __call__(self, x: Any) -> Any:
        """As an int64 array of the shape of *x*, an array of objects."""
        if x.size == 1:
            places = np.empty(x.shape, np.int64)
            places.fill(self._place(x.item(), -1))
            return places
        # no step of this is one of Python
        found = map(self._place, x.ravel().tolist(), itertools.repeat(-1))
        return np.fromiter(found, np.int64, x.size).reshape(x.shape)


class Required(Found):
    """As :class:`Found`, for categories that all texts have to be among.

    Raises:
        ValueError: one is not.
    """

    def __call__(self, x: Any) -> Any:
        places = super().__call__(x)
        if places.min(initial=0) < 0:
            raise unknown_category(x[places < 0][0])
        return places


def unknown_category(category: object) -> ValueError:
    """What is raised of what is none of an encoder's categories."""
    return ValueError(
        f"OneHotEncoder: {category!r} is not among the categories, and zeros is 0"
    )


class Chosen:
    """The texts of a list that have the places in an array.

    Args:
        texts: the list.

    Attributes:
        texts: as given.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts: Final = tuple(texts)
        self._texts = np.array(texts, object)

    def __call__(self, places: Any) -> Any:
        """As an array of objects of the shape of *places*, int64."""
        return self._texts[places]


_found: Final = prepared_once(Found)


@prepared_once
def _sorted_on_device(xp: Any, keys: Any) -> tuple[Any, Any, int]:
    ordered, places, of_nan = sorted_keys(keys)
    return xp.from_numpy(ordered), xp.from_numpy(places), of_nan


@prepared_once
def sorted_keys(keys: Any) -> tuple[Any, Any, int]:
    """The distinct keys but NaN in order, their last places, and that of NaN, or -1."""
    # unique finds first places, and the last one is the first from behind
    ordered, behind = np.unique(keys[::-1], return_index=True)
    places = len(keys) - 1 - behind
    of_nan = -1
    if len(ordered) and ordered[-1] != ordered[-1]:
        of_nan = int(places[-1])
        ordered, places = ordered[:-1], places[:-1]
    return ordered, places, of_nan


@operator("CastMap", since=1, domain=_DOMAIN, host_only=True)
def cast_map(
    xp: Any,
    x: Mapping[int, Any],
    *,
    cast_to: str = "TO_FLOAT",
    map_form: str = "DENSE",
    max_map: int = 1,
) -> Any:
    """The values by ascending key, or each in the place of its key, as one row."""
    if cast_to not in _CASTS:
        raise ValueError(
            f"CastMap: cast_to is {cast_to!r}, "
            f"not one of {', '.join(map(repr, _CASTS))}"
        )
    dtype, cast, empty = _CASTS[cast_to]
    keys = sorted(x)
    if map_form == "DENSE":
        places: Iterable[int] = range(len(keys))
        result = xp.full((1, len(keys)), empty, dtype=dtype)
    elif map_form == "SPARSE":
        if keys and not 0 <= keys[0] <= keys[-1] < max_map:
            raise ValueError(
                f"CastMap: the map has keys from {keys[0]} to {keys[-1]}, "
                f"but a sparse result holds keys from 0 to max_map - 1, {max_map - 1}"
            )
        places = keys
        sizes([max_map], itemsize=8, what="max_map")
        result = xp.full((1, max_map), empty, dtype=dtype)
    else:
        raise ValueError(f"CastMap: map_form is {map_form!r}, not 'DENSE' or 'SPARSE'")
    for place, key in zip(places, keys, strict=True):
        result[0, place] = cast(x[key])
    return result


def _spelled(value: Any) -> str:
    # numbers as C++'s std::to_string spells them, which ONNX Runtime uses
    return value if isinstance(value, str) else f"{value:f}"


# element type, conversion, and what is in a place without a value
_CASTS: Final[Mapping[str, tuple[Any, Callable[[Any], Any], Any]]] = {
    "TO_FLOAT": (np.float32, float, 0.0),
    "TO_INT64": (np.int64, int, 0),
    # "0.f" is what ONNX Runtime has there
    "TO_STRING": (object, _spelled, "0.f"),
}


@operator("DictVectorizer", since=1, domain=_DOMAIN, host_only=True)
def dict_vectorizer(
    xp: Any,
    x: Mapping[Any, Any],
    *,
    int64_vocabulary: tuple[int, ...] = (),
    string_vocabulary: tuple[str, ...] = (),
) -> Any:
    """The values of the map in the order of the vocabulary, as one row.

    They are of the type of the map's values; a plain float is a float32.
    """
    value = next(iter(x.values()), 0.0)
    dtype: Any = xp.float32 if type(value) is float else xp.asarray(value).dtype
    empty: Any = 0
    if isinstance(value, str):
        dtype, empty = object, ""
    vocabulary = string_vocabulary or int64_vocabulary
    return xp.array([[x.get(key, empty) for key in vocabulary]], dtype=dtype)


@operator("ZipMap", since=1, domain=_DOMAIN, host_only=True)
def zip_map(
    xp: Any,
    x: Any,
    *,
    classlabels_int64s: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
) -> list[dict[Any, float]]:
    """For each row, a map from the labels to its values."""
    return _maps(classlabels_strings, classlabels_int64s)(x)


class Maps:
    """For each row of an array a map from labels to its values.

    Few labels are written into the code of a function, as a map whose keys the code
    has takes Python a third of the time.

    Args:
        strings, integers: the labels; one of both is empty.
    """

    def __init__(self, strings: tuple[str, ...], integers: tuple[int, ...]) -> None:
        labels = self._labels = label_array(strings, integers).tolist()
        self._write: Callable[[list[list[float]]], list[dict[Any, float]]] | None = None
        if 1 < len(labels) <= _MOST_WRITTEN and len(set(labels)) == len(labels):
            names = [f"v{place}" for place in range(len(labels))]
            pairs = ", ".join(
                f"{key!r}: {name}" for key, name in zip(labels, names, strict=True)
            )
            written = f"[{{{pairs}}} for {', '.join(names)} in zip(*columns)]"
            # of texts and integers Python's own spelling, and names from above
            self._write = eval(f"lambda columns: {written}", {})

    def __call__(self, x: Any) -> list[dict[Any, float]]:
        """Of *x*, [rows, labels], or of one row."""
        labels = self._labels
        rows = x if x.ndim == 2 else np.atleast_2d(x)
        if rows.ndim != 2 or rows.shape[1] != len(labels):
            raise ValueError(
                f"ZipMap with {len(labels)} labels takes an input of shape "
                f"[N, {len(labels)}], not {x.shape}"
            )
        if self._write is not None:
            return self._write(rows.T.tolist())
        return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]


_maps: Final = prepared_once(Maps)

_MOST_WRITTEN: Final = 64
"""Labels of which maps are made by a function written for them."""
