"""Operators on texts in two: what is done with numbers, and the texts at its border.

No target computes with texts.  What most operators do with them is a look-up: which
one of a few a text is, or the text that a number stands for.  The rest is about these
numbers, and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_compiler.frontend.call import Call, Infer, data_type
from onnxplug_kernels.ml.encode import Chosen, Found, Maps, Required

_I64: Final = np.dtype(np.int64)
_ML: Final = "ai.onnx.ml"


class Border(Call):
    """A look-up of texts, or what makes maps: what runs on arrays as a function that is
    prepared."""

    __slots__ = ()


def apart(call: Call) -> tuple[Call, ...]:
    """What *call* does with texts, and what it does with numbers, in order; nothing if
    it has no texts, or they cannot be told apart from the rest."""
    split = _SPLITS.get((call.domain, call.op_type))
    if split is None or None in (call.input(0), call.output(0)):
        return ()
    return split(call)


def _of_maps(call: Call) -> tuple[Call, ...]:
    """What makes maps is made once."""
    strings = call.attributes["classlabels_strings"]
    integers = call.attributes["classlabels_int64s"]
    if bool(strings) == bool(integers):
        return ()
    return (_border(call, call.inputs, call.outputs, Maps(strings, integers)),)


def _of_labels(call: Call) -> tuple[Call, ...]:
    """A classifier gives numbers of classes, then their labels."""
    integers = "classlabels_ints"
    if call.op_type == "TreeEnsembleClassifier":
        integers = "classlabels_int64s"
    texts = call.attributes["classlabels_strings"]
    if not texts or call.attributes[integers]:
        return ()
    changed = {"classlabels_strings": (), integers: tuple(range(len(texts)))}
    return _choosing(call, call.op_type, {**call.attributes, **changed}, texts)


def _of_categories(call: Call) -> tuple[Call, ...]:
    """Of texts their places among the categories."""
    texts = call.attributes["cats_strings"]
    if not texts or call.attributes["cats_int64s"]:
        return ()
    found = Found(texts) if call.attributes["zeros"] else Required(texts)
    numbers = tuple(range(len(texts)))
    changed = {"cats_strings": (), "cats_int64s": numbers, "zeros": 1}
    return _finding(call, found, {**call.attributes, **changed})


def _of_tokens(call: Call) -> tuple[Call, ...]:
    """Of words their numbers."""
    words = call.attributes["pool_strings"]
    if not words:
        return ()
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    pool = tuple([numbers[word] for word in words])
    changed = {"pool_strings": (), "pool_int64s": pool}
    return _finding(call, Found(numbers), {**call.attributes, **changed})


def _of_keys(call: Call) -> tuple[Call, ...]:
    """Of numbers those of the texts that they become, or of texts the numbers."""
    attributes = dict(call.attributes)
    found = _of_texts(call)
    if found:
        return found
    if call.op_type == "CategoryMapper":
        keys, texts = attributes["cats_int64s"], attributes["cats_strings"]
        keyed = {"keys_int64s": keys}
    elif "classes_strings" in attributes:
        texts = attributes["classes_strings"]
        keyed = {"keys_int64s": tuple(range(len(texts)))}
    else:
        texts = attributes["values_strings"]
        keyed = {
            name: attributes[name]
            for name in ("keys_int64s", "keys_floats", "keys_tensor")
        }
        others = ("keys_strings", "values_int64s", "values_floats", "values_tensor")
        if any(_given(attributes[name]) for name in others):
            return ()
        if attributes["default_tensor"] is not None:
            return ()
    count = len(texts)
    sizes = [len(keys) for keys in keyed.values() if _given(keys)]
    is_text = call.dtypes[0] is not None and call.dtypes[0].kind in "OT"
    if not count or sizes != [count] or not is_text:
        return ()
    changed = {"values_int64s": tuple(range(count)), "default_int64": count}
    default = attributes["default_string"]
    return _choosing(
        call, "LabelEncoder", {**_LOOKUP, **keyed, **changed}, (*texts, default)
    )


def _of_texts(call: Call) -> tuple[Call, ...]:
    """Of texts their places among those that are listed, and of these the numbers."""
    dtype, attributes = call.dtypes[0], dict(call.attributes)
    if dtype is None or dtype.kind not in "iuf":
        return ()
    if call.op_type == "CategoryMapper":
        texts, numbers = attributes["cats_strings"], attributes["cats_int64s"]
        values: dict[str, Any] = {"values_int64s": numbers}
    elif "classes_strings" in attributes:
        texts = attributes["classes_strings"]
        values = {"values_int64s": tuple(range(len(texts)))}
    else:
        texts = attributes["keys_strings"]
        values = {name: attributes[name] for name in _VALUES}
        if any(_given(attributes[name]) for name in _KEYS if name != "keys_strings"):
            return ()
    sizes = [len(each) for each in values.values() if _given(each)]
    if not texts or sizes != [len(texts)]:
        return ()
    given = attributes.keys() & set(_DEFAULTS)
    defaults: dict[str, Any] = {name: attributes[name] for name in sorted(given)}
    keys = {"keys_int64s": tuple(range(len(texts)))}
    changed: dict[str, Any] = {**_LOOKUP, **keys, **values, **defaults}
    return _finding(call, Found(texts), changed, "LabelEncoder")


_KEYS: Final = ("keys_floats", "keys_int64s", "keys_strings", "keys_tensor")
_VALUES: Final = ("values_floats", "values_int64s", "values_strings", "values_tensor")
_DEFAULTS: Final = (
    "default_float",
    "default_int64",
    "default_string",
    "default_tensor",
)


def _given(values: Any) -> bool:
    return values is not None and len(values) > 0


_LOOKUP: Final[Mapping[str, Any]] = {
    "default_float": 0.0,
    "default_string": "",
    "default_tensor": None,
    "keys_floats": (),
    "keys_int64s": (),
    "keys_strings": (),
    "keys_tensor": None,
    "values_floats": (),
    "values_strings": (),
    "values_tensor": None,
}
"""Attributes of a LabelEncoder that has none."""

_SPLITS: Final[Mapping[tuple[str, str], Callable[[Call], tuple[Call, ...]]]] = {
    (_ML, "CategoryMapper"): _of_keys,
    (_ML, "LabelEncoder"): _of_keys,
    (_ML, "LinearClassifier"): _of_labels,
    (_ML, "OneHotEncoder"): _of_categories,
    (_ML, "SVMClassifier"): _of_labels,
    (_ML, "TreeEnsembleClassifier"): _of_labels,
    (_ML, "ZipMap"): _of_maps,
    ("", "TfIdfVectorizer"): _of_tokens,
}


def _choosing(
    call: Call, op_type: str, attributes: Mapping[str, Any], texts: Sequence[str]
) -> tuple[Call, ...]:
    """*call* on numbers, and then the texts that these stand for."""
    output = call.outputs[0]
    assert output is not None
    number = _number_of(output)
    numbers = _changed(
        call,
        op_type,
        attributes,
        call.inputs,
        (number, *call.outputs[1:]),
        (_I64, *call.dtypes[1:]),
    )
    return numbers, _border(call, (number,), (output,), Chosen(texts))


def _finding(
    call: Call, found: Found, attributes: Mapping[str, Any], op_type: str = ""
) -> tuple[Call, ...]:
    """The places of texts that are *found*, and then *call* on these.

    Args:
        op_type: of the second, if it is another one's.
    """
    name = call.inputs[0]
    assert name is not None
    number = _number_of(name) + call.op_type + str(call.nodes[0])
    numbers = _changed(
        call,
        op_type or call.op_type,
        attributes,
        (number, *call.inputs[1:]),
        call.outputs,
        call.dtypes,
    )
    return _border(call, (name,), (number,), found), numbers


def _number_of(name: str) -> str:
    """A name that no model has, as texts of a model do not go on after a zero."""
    return f"{name}\0"


def _changed(
    call: Call,
    op_type: str,
    attributes: Mapping[str, Any],
    inputs: tuple[str | None, ...],
    outputs: tuple[str | None, ...],
    dtypes: tuple[np.dtype[Any] | None, ...],
) -> Call:
    """Of the same node, with the same rules of shapes."""
    numbers = Call(
        op_type,
        call.domain,
        call.version,
        inputs,
        outputs,
        attributes,
        call.nodes,
        dtypes,
        None,
        _shapes_of(call, dtypes),
    )
    # no other call has a negative one
    numbers.kind = None if call.kind is None else -1 - call.kind
    return numbers


def _shapes_of(call: Call, dtypes: tuple[np.dtype[Any] | None, ...]) -> Infer:
    """The call's rule, for results of other dtypes."""
    infer = call.infer
    assert infer is not None
    made_of = [None if dtype is None else data_type(dtype) for dtype in dtypes]

    def inferred(
        facts: Sequence[ep.TensorFacts | None],
    ) -> list[ep.TensorFacts | None]:
        return [
            None if made is None or dtype is None else ep.TensorFacts(dtype, made.shape)
            for made, dtype in zip(infer(facts), made_of, strict=False)
        ]

    return inferred


def _border(
    call: Call,
    inputs: tuple[str | None, ...],
    outputs: tuple[str | None, ...],
    function: Callable[..., Any],
) -> Border:
    dtypes = (_I64,) if isinstance(function, Found) else call.dtypes[:1]
    return Border(
        call.op_type,
        call.domain,
        call.version,
        inputs,
        outputs,
        {},
        call.nodes,
        dtypes,
        function,
    )
