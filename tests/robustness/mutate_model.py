"""Changes of the structure of a model, each of which says what it changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

INTS: Final = (
    *(0, 1, -1, 2, -2, 3, 4, 5, 7, -3, -4, -5, 8, 100, 1000, 65536),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**62, -(2**62), 2**63 - 1, -(2**63)),
)
FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e38, -1e38, float("nan"))
FLOATS_INFINITE: Final = (float("inf"), float("-inf"))
TYPES: Final = tuple(range(28))
DOMAINS: Final = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "nobody", "local")
VERSIONS: Final = (-1, 0, 1, 6, 7, 9, 11, 13, 17, 18, 21, 23, 26, 99, 2**31, 2**62)
REDUCTIONS: Final = ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2")


def mutated_model(
    model: onnx.ModelProto, choose: random.Random
) -> tuple[onnx.ModelProto, str]:
    """A copy with one to three changes, and which."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    told: list[str] = []
    wanted = choose.choice((1, 1, 1, 1, 2, 3))
    for _ in range(50):
        change = choose.choice(MUTATIONS)(other, choose)
        if change:
            told.append(change)
            if len(told) == wanted:
                break
    return other, "; ".join(told)


# places


def graphs(model: onnx.ModelProto) -> Iterator[GraphProto]:
    """The graph and all within its nodes."""
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


def _holders(model: onnx.ModelProto) -> list[Any]:
    """What has nodes: graphs and functions."""
    return [*graphs(model), *model.functions]


def _node(model: onnx.ModelProto, choose: random.Random) -> tuple[Any, NodeProto]:
    holder = choose.choice([each for each in _holders(model) if each.node] or [None])
    return (holder, choose.choice(holder.node)) if holder else (None, NodeProto())


def _names(holder: Any) -> list[str]:
    """Names of values of a graph or a function."""
    names = [name for node in holder.node for name in (*node.input, *node.output)]
    if isinstance(holder, GraphProto):
        names += [value.name for value in (*holder.input, *holder.output)]
        names += [tensor.name for tensor in holder.initializer]
    else:
        names += [*holder.input, *holder.output]
    return names


def _label(node: NodeProto) -> str:
    return f"{node.op_type}({', '.join(node.input)})"


# nodes


def _rename_input(model: onnx.ModelProto, choose: random.Random) -> str:
    holder, node = _node(model, choose)
    if holder is None or not node.input:
        return ""
    place = choose.randrange(len(node.input))
    name = choose.choice(["", "nowhere", *_names(holder), *node.output])
    told = f"input {place} of {_label(node)} is {name!r}"
    node.input[place] = name
    return told


def _rename_output(model: onnx.ModelProto, choose: random.Random) -> str:
    holder, node = _node(model, choose)
    if holder is None or not node.output:
        return ""
    place = choose.randrange(len(node.output))
    name = choose.choice(["", "somewhere", *_names(holder)])
    told = f"output {place} of {_label(node)} is {name!r}"
    node.output[place] = name
    return told


def _change_arity(model: onnx.ModelProto, choose: random.Random) -> str:
    holder, node = _node(model, choose)
    if holder is None:
        return ""
    what = choose.choice(("input", "output"))
    names = getattr(node, what)
    told = f"{what}s of {_label(node)} "
    how = choose.randrange(5)
    if how == 0 and names:
        del names[choose.randrange(len(names))]
        return told + "one less"
    if how == 1:
        names.append(choose.choice(["", f"more_{len(names)}", *_names(holder)]))
        return told + f"and {names[-1]!r}"
    if how == 2 and len(names) > 1:
        a, b = choose.sample(range(len(names)), 2)
        names[a], names[b] = names[b], names[a]
        return told + f"{a} and {b} swapped"
    if how == 3:
        del names[:]
        return told + "none"
    if names:
        names.extend([names[-1]] * choose.choice((1, 3, 40)))
        return told + "the last one repeated"
    return ""


def _change_operator(model: onnx.ModelProto, choose: random.Random) -> str:
    _, node = _node(model, choose)
    told = f"{_label(node)} is "
    how = choose.randrange(4)
    if how == 0:
        node.domain = choose.choice(DOMAINS)
        return told + f"of domain {node.domain!r}"
    if how == 1:
        node.op_type = choose.choice(("", "Nothing", "add", "If", "Loop", "Scan"))
    else:
        node.op_type = choose.choice(_OPERATORS)
    return told + node.op_type


def _change_nodes(model: onnx.ModelProto, choose: random.Random) -> str:
    holder, node = _node(model, choose)
    if holder is None:
        return ""
    told = f"{_label(node)} "
    how = choose.randrange(3)
    if how == 0:
        holder.node.remove(node)
        return told + "removed"
    if how == 1:
        holder.node.append(node)
        return told + "twice"
    nodes = list(holder.node)
    choose.shuffle(nodes)
    del holder.node[:]
    holder.node.extend(nodes)
    return "nodes in another order"


def _insert_node(model: onnx.ModelProto, choose: random.Random) -> str:
    """Something between a node and one of its inputs."""
    holder, node = _node(model, choose)
    if holder is None or not node.input:
        return ""
    place = choose.randrange(len(node.input))
    name = node.input[place]
    fresh = f"between_{len(holder.node)}"
    kind = choose.choice(
        ("Unknown", "Transpose", "Reduce", "Identity", "Reshape", "Squeeze", "Cast")
    )
    inputs, attributes, domain = [name], {}, ""
    if kind == "Unknown":
        domain = choose.choice(("nobody", "com.microsoft", ""))
    elif kind == "Transpose" and choose.random() < 0.8:
        rank = choose.randrange(1, 6)
        attributes["perm"] = [choose.randrange(rank) for _ in range(rank)]
    elif kind == "Reduce":
        kind = choose.choice(REDUCTIONS)
        attributes["keepdims"] = choose.randrange(2)
    elif kind == "Cast":
        attributes["to"] = choose.choice(TYPES)
    elif kind == "Reshape":
        shape = [choose.choice((-1, 0, 1, 2, 3, 2**31)) for _ in range(3)]
        inputs.append(f"shape_{fresh}")
        tensor = numpy_helper.from_array(np.array(shape), inputs[1])
        if not isinstance(holder, GraphProto):
            return ""
        holder.initializer.append(tensor)
    made = helper.make_node(kind, inputs, [fresh], domain=domain, **attributes)
    node.input[place] = fresh
    holder.node.insert(list(holder.node).index(node), made)
    return f"{kind} {attributes} before input {place} of {_label(node)}"


# attributes


def _change_attribute(model: onnx.ModelProto, choose: random.Random) -> str:
    """Another value of the same type, or one more or less."""
    _, node = _node(model, choose)
    if not node.attribute:
        return ""
    attribute = choose.choice(node.attribute)
    before = f"{attribute.name} of {_label(node)} "
    kind = attribute.type
    if kind == AttributeProto.INT:
        attribute.i = choose.choice(INTS)
        return before + f"is {attribute.i}"
    if kind == AttributeProto.FLOAT:
        attribute.f = choose.choice((*FLOATS, *FLOATS_INFINITE))
        return before + f"is {attribute.f}"
    if kind == AttributeProto.STRING:
        attribute.s = choose.choice(
            (b"", b"\xff\xfe", b"SAME_UPPER", b"constant", b"x" * 100, attribute.s * 2)
        )
        return before + f"is {attribute.s!r}"
    if kind == AttributeProto.INTS:
        _change_list(attribute.ints, INTS, choose)
        return before + f"is {list(attribute.ints)[:12]}"
    if kind == AttributeProto.FLOATS:
        _change_list(attribute.floats, FLOATS, choose)
        return before + f"is {list(attribute.floats)[:12]}"
    if kind == AttributeProto.STRINGS:
        _change_list(attribute.strings, (b"", b"\xff", b"LSTM", b"Tanh"), choose)
        return before + f"is {list(attribute.strings)[:12]}"
    if kind == AttributeProto.TENSOR:
        return before + _damage_tensor(attribute.t, choose)
    return ""


def _change_list(values: Any, pool: Any, choose: random.Random) -> None:
    how = choose.randrange(6)
    if how == 0:
        del values[:]
    elif how == 1 and values:
        values.append(values[0])
    elif how == 2 and values:
        del values[-1]
    elif how == 3:
        values.append(choose.choice(pool))
    elif how == 4 and len(values) < 100:
        values.extend([choose.choice(pool)] * choose.choice((2, 8, 70)))
    elif values:
        values[choose.randrange(len(values))] = choose.choice(pool)


def _retype_attribute(model: onnx.ModelProto, choose: random.Random) -> str:
    """Another type, another name, none, twice, or one that nobody knows."""
    _, node = _node(model, choose)
    how = choose.randrange(6)
    if how == 0 or not node.attribute:
        name = choose.choice(("axis", "axes", "perm", "to", "keepdims", "body", "zz"))
        made = helper.make_attribute(name, choose.choice(([1], 3, 2.0, "q", [0, 0])))
        node.attribute.append(made)
        return f"{_label(node)} has {name}"
    attribute = choose.choice(node.attribute)
    told = f"{attribute.name} of {_label(node)} "
    if how == 1:
        node.attribute.remove(attribute)
        return told + "removed"
    if how == 2:
        node.attribute.append(attribute)
        return told + "twice"
    if how == 3:
        attribute.type = choose.choice(AttributeProto.AttributeType.values())
        return told + f"is of type {attribute.type}"
    if how == 4:
        attribute.ref_attr_name = choose.choice(("alpha", "missing", attribute.name))
        return told + f"refers to {attribute.ref_attr_name}"
    name = attribute.name
    value = choose.choice(
        (0, -1, 2**62, 1.5, "NOTSET", [1], [-1, 2**62], [0.5], [b"a"])
    )
    attribute.CopyFrom(helper.make_attribute(name, value))
    return told + f"is {value!r}"


# tensors


def _tensors(model: onnx.ModelProto) -> list[TensorProto]:
    found = []
    for graph in graphs(model):
        found += graph.initializer
        for each in graph.sparse_initializer:
            found += [each.values, each.indices]
    return found


def _change_tensor(model: onnx.ModelProto, choose: random.Random) -> str:
    tensors = _tensors(model)
    if not tensors:
        return ""
    tensor = choose.choice(tensors)
    return f"tensor {tensor.name} " + _damage_tensor(tensor, choose)


def _damage_tensor(tensor: TensorProto, choose: random.Random) -> str:
    how = choose.randrange(7)
    if how == 0 and tensor.dims:
        place = choose.randrange(len(tensor.dims))
        tensor.dims[place] = choose.choice(INTS)
        return f"has sizes {list(tensor.dims)}"
    if how == 1:
        tensor.dims.append(choose.choice((0, 1, 2, -1, 2**62)))
        return f"has sizes {list(tensor.dims)}"
    if how == 2:
        tensor.data_type = choose.choice(TYPES)
        return f"is of type {tensor.data_type}"
    if how == 3:
        tensor.name = choose.choice(("", "nowhere", "x", "y"))
        return f"is called {tensor.name!r}"
    if how == 4 and tensor.external_data:
        entry = choose.choice(tensor.external_data)
        entry.value = choose.choice(
            (
                "",
                "-1",
                "0",
                "1",
                "999999999999",
                str(2**63),
                "x",
                "../up",
                "/etc/passwd",
            )
        )
        return f"has {entry.key} {entry.value!r}"
    return _change_content(tensor, choose)


def _change_content(tensor: TensorProto, choose: random.Random) -> str:
    try:
        array = numpy_helper.to_array(tensor).copy()
    except Exception:  # noqa: BLE001 (it was damaged before)
        return "left as it is"
    if array.dtype.kind not in "iufb":
        return "left as it is"
    name, how = tensor.name, choose.randrange(4)
    if how == 0 and array.size:
        pool: tuple[Any, ...] = INTS
        if array.dtype.kind == "f":
            pool = (*FLOATS, *FLOATS_INFINITE)
        value = choose.choice(pool)
        if array.dtype.kind in "iu":
            value = np.array(value % 2**64, np.uint64).astype(array.dtype)
        array.reshape(-1)[choose.randrange(array.size)] = value
    elif how == 1:
        array = array.reshape(-1)[: choose.randrange(array.size + 1)]
    elif how == 2:
        array = array.reshape(choose.choice(((-1,), (1, *array.shape), (-1, 1))))
    else:
        array = np.concatenate([array.reshape(-1)] * 2)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))
    text = np.array2string(array.reshape(-1)[:12], threshold=12)
    return f"is {array.dtype}{list(array.shape)} {text}"


# declared types


def _values(model: onnx.ModelProto) -> list[Any]:
    return [
        value
        for graph in graphs(model)
        for value in (*graph.input, *graph.output, *graph.value_info)
    ]


def _change_type(model: onnx.ModelProto, choose: random.Random) -> str:
    values = _values(model)
    if not values:
        return ""
    value = choose.choice(values)
    return f"value {value.name} " + _other_type(value, choose)


def _other_type(value: Any, choose: random.Random) -> str:
    tensor = value.type.tensor_type
    how = choose.randrange(8)
    if how == 0:
        tensor.elem_type = choose.choice(TYPES)
        return f"is of type {tensor.elem_type}"
    if how == 1:
        tensor.ClearField("shape")
        return "has no shape"
    if how == 2:
        value.ClearField("type")
        return "has no type"
    if how == 3:
        name = value.name
        kind = choose.choice(("sequence_type", "optional_type", "sparse_tensor_type"))
        inner = onnx.TypeProto()
        if kind == "sparse_tensor_type":
            inner.sparse_tensor_type.elem_type = 1
        else:
            getattr(inner, kind).elem_type.tensor_type.elem_type = 1
        value.type.CopyFrom(inner)
        value.name = name
        return f"is a {kind}"
    if how == 4 and tensor.shape.dim:
        dim = choose.choice(tensor.shape.dim)
        dim.dim_param = choose.choice(("N", "M", "", "unseen", "N + 1"))
        return f"has a size {dim.dim_param!r}"
    if how == 5 and tensor.shape.dim:
        dim = choose.choice(tensor.shape.dim)
        dim.dim_value = choose.choice(INTS)
        return f"has a size {dim.dim_value}"
    if how == 6:
        tensor.shape.dim.add(dim_value=choose.choice((0, 1, 2, 2**62)))
        return "has an axis more"
    if tensor.shape.dim:
        del tensor.shape.dim[-1]
        return "has an axis less"
    return "left as it is"


def _declare(model: onnx.ModelProto, choose: random.Random) -> str:
    """A wrong statement of a value that a node gives."""
    graph = choose.choice(list(graphs(model)))
    names = [name for name in _names(graph) if name]
    if not names:
        return ""
    name = choose.choice(names)
    rank = choose.randrange(5)
    shape = [choose.choice((0, 1, 2, 3, 4, 6, "N", None, 2**40)) for _ in range(rank)]
    kind = choose.choice((1, 1, 7, choose.choice(TYPES)))
    value = graph.value_info.add(name=name)
    value.type.CopyFrom(helper.make_tensor_type_proto(kind, shape))
    return f"{name} is declared to be {kind}{shape}"


def _change_interface(model: onnx.ModelProto, choose: random.Random) -> str:
    """Inputs and outputs of graphs and functions: one more, less, twice, renamed."""
    holder = choose.choice(_holders(model))
    what = choose.choice(("input", "output"))
    values = getattr(holder, what)
    told = f"{what}s of {holder.name or 'a graph'} "
    how = choose.randrange(4)
    if how == 0 and values:
        del values[choose.randrange(len(values))]
        return told + "one less"
    if how == 1 and values:
        values.append(choose.choice(values))
        return told + "one twice"
    if how == 2 and len(values) > 1:
        changed = list(values)[::-1]
        del values[:]
        values.extend(changed)
        return told + "reversed"
    name = choose.choice(["", "other", *_names(holder)])
    if not isinstance(holder, GraphProto):
        values.append(name)
    elif how == 3 and values:
        choose.choice(values).name = name
    else:
        made = helper.make_tensor_value_info(name, choose.choice((1, 7)), None)
        values.append(made)
    return told + f"with {name!r}"


def _change_model(model: onnx.ModelProto, choose: random.Random) -> str:
    how = choose.randrange(5)
    if how == 0 and model.opset_import:
        entry = choose.choice(model.opset_import)
        entry.version = choose.choice(VERSIONS)
        return f"opset {entry.domain!r} is {entry.version}"
    if how == 1:
        domain, version = choose.choice(DOMAINS), choose.choice(VERSIONS)
        model.opset_import.add(domain=domain, version=version)
        return f"opset {domain!r} {version} too"
    if how == 2:
        model.ir_version = choose.choice((-1, 0, 1, 3, 4, 8, 13, 99, 2**62))
        return f"IR version {model.ir_version}"
    if how == 3:
        model.metadata_props.add(key=choose.choice(("", "k")), value="\ud7ff" * 3)
        model.metadata_props.add(key="k", value="twice")
        return "metadata twice"
    if model.functions:
        function = choose.choice(model.functions)
        function.name = choose.choice(("", "twice", "norm", "Add"))
        function.domain = choose.choice(("", "local"))
        return f"function {function.domain}.{function.name}"
    del model.opset_import[:]
    return "no opset"


MUTATIONS: Final[tuple[Callable[[onnx.ModelProto, random.Random], str], ...]] = (
    *(_rename_input, _rename_output, _change_arity, _change_operator),
    *(_change_nodes, _insert_node, _insert_node, _change_attribute),
    *(_change_attribute, _change_attribute, _retype_attribute, _change_tensor),
    *(_change_tensor, _change_tensor, _change_type, _change_type, _declare),
    *(_declare, _change_interface, _change_model),
)

_OPERATORS: Final = tuple(
    sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})
)
