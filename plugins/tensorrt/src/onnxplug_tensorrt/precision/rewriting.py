"""Writes a model anew so that the chosen nodes compute in fewer bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from onnxplug.authoring.record import Record
from onnxplug.ep import DataType, ExportedModel
from onnxplug_tensorrt.precision.choice import (
    Choice,
    Chooser,
    Exclusions,
    Scope,
    bodies_of,
)
from onnxplug_tensorrt.precision.elements import ELEMENTS, Element
from onnxplug_tensorrt.precision.signatures import Signature, opset_of

_INLINE_UP_TO: Final = 1024
"""Bytes of a constant up to which it stays in the model, where an engine reads it."""


class NarrowedModel(Record):
    """A model that computes in fewer bits where it can.

    Attributes:
        exported: the model, and the weights that its external data name.
        narrowed: how many nodes compute in the element type.
        casts: how many casts were written.
        kept: why nodes stay float32 that compute with values of float32, by the node's
            name, or its operator and position where it has none, and the body's name.
    """

    exported: ExportedModel
    narrowed: int
    casts: int
    kept: Mapping[str, str]


def narrow_model(
    exported: ExportedModel,
    dtype: DataType,
    exclusions: Exclusions = Exclusions(),  # noqa: B008  a record does not change
) -> NarrowedModel:
    """*exported* with its float32 nodes in *dtype*, as far as they can be.

    Inputs and outputs, of bodies of control flow as well, keep their types, and so does
    all that is no float32.  A node stays float32, and has a reason in the result, if
    its operator does not take *dtype* in the model's opset, if it reads constants that
    *dtype* cannot hold, if an integer kernel is to compute it between codes, or if
    *exclusions* say so.  What follows from sizes, integers and constants alone
    (positions, masks) stays float32 until it meets what is computed.  Masks that only
    lead to a softmax are held to a number within the range, of which the softmax makes
    0 as well.

    Values that are computed as the model runs may leave the range of float16, which
    ends at 65504; where these are not known to the user, bfloat16 is the safe choice.

    Args:
        exported: a model whose values have known types or can be inferred; it is not
            changed.  Its external weights are read.
        dtype: ``FLOAT16`` or ``BFLOAT16``.
        exclusions: what stays float32 besides.

    Raises:
        ValueError: *dtype* is another.
        onnx.shape_inference.InferenceError: the model is no valid one.
    """
    if dtype not in ELEMENTS:
        raise ValueError(
            f"a model is narrowed to {' or '.join(ELEMENTS)}, not to {dtype}"
        )
    # without bytes of weights, which stay outside, so its size is no matter
    model = onnx.shape_inference.infer_shapes(exported.model, data_prop=False)
    weights = dict(exported.weights)
    rewriting = _Rewriting(model, weights, ELEMENTS[dtype], exclusions)
    main = _Graph(rewriting, model.graph, None)
    main.rewrite()
    # to whose open sizes inference has given names
    del model.graph.output[:]
    model.graph.output.extend(exported.model.graph.output)
    used = set(_external_locations(model.graph))
    return NarrowedModel(
        exported=ExportedModel(
            model, {name: weights[name] for name in weights if name in used}
        ),
        narrowed=rewriting.narrowed,
        casts=rewriting.casts,
        kept=rewriting.kept,
    )


class _Rewriting:
    """What the graphs of one model have in common."""

    def __init__(
        self,
        model: Any,
        weights: dict[str, Any],
        element: Element,
        exclusions: Exclusions,
    ) -> None:
        self.weights = weights
        self.element = element
        self.chooser = Chooser(element, opset_of(model), exclusions)
        self.external = bool(weights)
        self.narrowed = 0
        self.casts = 0
        self.kept: dict[str, str] = {}
        self._names = set(_names(model.graph))

    def fresh_name(self, name: str, suffix: str) -> str:
        """*name* with *suffix*, as no value of the model is called."""
        candidate = f"{name}_{suffix}"
        count = 1
        while candidate in self._names:
            count += 1
            candidate = f"{name}_{suffix}_{count}"
        self._names.add(candidate)
        return candidate

    def content(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The elements of an initializer of float32, wherever they are."""
        if tensor.data_location != tensor.EXTERNAL:
            return numpy_helper.to_array(tensor)
        entries = {entry.key: entry.value for entry in tensor.external_data}
        raw = self.weights[entries["location"]]
        return np.frombuffer(raw, np.float32).reshape(tuple(tensor.dims))

    def make_tensor(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        """An initializer of *array*, whose bytes travel as the model's others do."""
        tensor = onnx.TensorProto(
            name=name,
            dims=array.shape,
            data_type=DataType.from_numpy(array.dtype).onnx,
        )
        if not self.external or array.nbytes <= _INLINE_UP_TO:
            tensor.raw_data = array.tobytes()
            return tensor
        location = name
        while location in self.weights:
            location += "_"
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.weights[location] = raw
        tensor.data_location = tensor.EXTERNAL
        entries = {"location": location, "offset": "0", "length": str(raw.nbytes)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        return tensor


class _Graph:
    """Rewrites one graph, and the bodies in it."""

    def __init__(self, model: _Rewriting, graph: Any, outer: _Graph | None) -> None:
        self._model = model
        self._graph = graph
        self._outer = outer
        self._constants = dict(_constants(model, graph))
        around = outer._scope if outer is not None else None
        self._scope: Scope = Scope(graph, around, self._constants)
        self._casts_from = {
            node.output[0]: node.input[0]
            for node in graph.node
            if node.op_type == "Cast" and node.domain in ("", "ai.onnx")
        }
        self._nodes: list[Any] = []
        self._narrow: dict[tuple[str, bool], str] = {}
        """Names in fewer bits, by the float32 name and whether it is a mask."""
        self._missing: set[str] = set()
        """What is made in fewer bits, and in no other way so far."""

    def rewrite(self) -> None:
        """Make the graph's nodes and constants anew, in place."""
        choices = self._model.chooser.choose(self._scope)
        for position, (node, choice) in enumerate(
            zip(self._graph.node, choices, strict=True)
        ):
            if choice.reason:
                name = node.name or f"{node.op_type} {position}"
                if self._outer is not None:
                    name = f"{name} of {self._graph.name!r}"
                self._model.kept[name] = choice.reason
            if choice.narrow is None:
                self._keep(node)
            else:
                self._model.narrowed += 1
                self._narrow_node(node, choice, choice.narrow)
        for value in self._graph.output:
            self.widen(value.name)
        self._write()

    def _keep(self, node: Any) -> None:
        kept = _copy(node)
        for position, name in enumerate(node.input):
            if node.op_type == "Cast" and name in self._missing:
                kept.input[position] = self._narrow[name, False]
            else:
                self.widen(name)
        for body in bodies_of(kept):
            _Graph(self._model, body, self).rewrite()
        self._nodes.append(kept)

    def _narrow_node(self, node: Any, choice: Choice, signature: Signature) -> None:
        made = _copy(node)
        for position, name in enumerate(node.input):
            if not self._scope.is_float32(name):
                continue
            if signature.input(position):
                made.input[position] = self.narrow(
                    name, clipped=position in choice.clipped
                )
            else:
                self.widen(name)
        suffix = str(self._model.element.dtype)
        for position, name in enumerate(node.output):
            if self._scope.is_float32(name) and signature.output(position):
                made.output[position] = self._model.fresh_name(name, suffix)
                self._narrow[name, False] = made.output[position]
                self._missing.add(name)
        if signature.by_attribute:
            kept = [a for a in made.attribute if a.name != signature.by_attribute]
            del made.attribute[:]
            made.attribute.extend(kept)
            number = self._model.element.dtype.onnx
            made.attribute.append(
                onnx.helper.make_attribute(signature.by_attribute, number)
            )
        self._nodes.append(made)

    def widen(self, name: str) -> None:
        """See that *name* is there as float32."""
        graph: _Graph | None = self
        while graph is not None:
            if name in graph._missing:
                graph._missing.remove(name)
                graph._cast(graph._narrow[name, False], name, DataType.FLOAT32)
                return
            graph = graph._outer

    def narrow(self, name: str, *, clipped: bool) -> str:
        """What float32 value *name* is called in fewer bits, or held to the range."""
        graph: _Graph | None = self
        while graph is not None:
            if (name, clipped) in graph._narrow:
                return graph._narrow[name, clipped]
            if name in graph._constants:
                return graph._narrow_constant(name, clipped=clipped)
            graph = graph._outer
        element = self._model.element
        source = self._casts_from.get(name, name)
        if clipped:
            self.widen(name)
            source = self._clip(name)
        elif source != name and self._scope.element_type(source) in (
            None,
            DataType.FLOAT32,
        ):
            source = name
        made = self._model.fresh_name(name, str(element.dtype))
        self._cast(source, made, element.dtype)
        self._narrow[name, clipped] = made
        return made

    def _narrow_constant(self, name: str, *, clipped: bool) -> str:
        element = self._model.element
        array = self._constants[name]
        if clipped:
            array = np.maximum(array, np.float32(element.mask))
        made = self._model.fresh_name(name, str(element.dtype))
        self._graph.initializer.append(
            self._model.make_tensor(made, element.round(array))
        )
        self._narrow[name, clipped] = made
        return made

    def _clip(self, name: str) -> str:
        """Hold the mask *name* to the range; what it is called then, in float32."""
        lowest = np.array(self._model.element.mask, np.float32)
        bound = self._model.fresh_name(name, "lowest")
        self._graph.initializer.append(self._model.make_tensor(bound, lowest))
        made = self._model.fresh_name(name, "held")
        self._nodes.append(onnx.helper.make_node("Max", [name, bound], [made]))
        return made

    def _cast(self, source: str, result: str, dtype: DataType) -> None:
        self._model.casts += 1
        self._nodes.append(
            onnx.helper.make_node("Cast", [source], [result], to=dtype.onnx)
        )

    def _write(self) -> None:
        """Put the new nodes in place, without what nothing reads any more."""
        read = {value.name for value in self._graph.output}
        kept = []
        for node in reversed(self._nodes):
            if node.op_type in ("Cast", "Constant") and not read & set(node.output):
                continue
            kept.append(node)
            read.update(node.input)
            for body in bodies_of(node):
                read.update(_names(body))
        del self._graph.node[:]
        self._graph.node.extend(reversed(kept))
        read.update(value.name for value in self._graph.input)
        tensors = [t for t in self._graph.initializer if t.name in read]
        made = {name for node in kept for name in node.output}
        types = [v for v in self._graph.value_info if v.name in made]
        _replace(self._graph.initializer, tensors)
        _replace(self._graph.value_info, types)


def _replace(field: Any, messages: list[Any]) -> None:
    """Have *messages*, which are of the repeated *field*, be all of it."""
    if len(messages) == len(field):
        return
    copies = [_copy(message) for message in messages]
    del field[:]
    field.extend(copies)


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _constants(
    model: _Rewriting, graph: Any
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The constants of float32 that *graph* has, as initializers or nodes."""
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.name not in inputs:
            yield tensor.name, model.content(tensor)
    for node in graph.node:
        if node.op_type != "Constant":
            continue
        for attribute in node.attribute:
            if attribute.name == "value_float":
                yield node.output[0], np.array(attribute.f, np.float32)
            elif attribute.name == "value_floats":
                yield node.output[0], np.array(attribute.floats, np.float32)
            elif (
                attribute.name == "value"
                and attribute.t.data_type == onnx.TensorProto.FLOAT
            ):
                yield node.output[0], numpy_helper.to_array(attribute.t)


def _names(graph: Any) -> Iterator[str]:
    """All names of values that *graph* and its bodies mention."""
    for value in (*graph.input, *graph.output, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from node.input
        yield from node.output
        for body in bodies_of(node):
            yield from _names(body)


def _external_locations(graph: Any) -> Iterator[str]:
    for tensor in graph.initializer:
        yield from (e.value for e in tensor.external_data if e.key == "location")
    for node in graph.node:
        for body in bodies_of(node):
            yield from _external_locations(body)
