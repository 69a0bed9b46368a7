"""Images with their channels in blocks become ones with channels first.

ONNX Runtime keeps images [N, C, H, W] as [N, C / b, H, W, b] where that is faster, with
as many channels b in a block as a vector of the processor has elements, and saves
models like this at ``ORT_ENABLE_ALL``.  Shapes are written as if there were no blocks,
and weights are reordered already, so which b it was is not written anywhere: it follows
from how channels were rounded up, or has to be told.

All values in blocks are read by operators that know of them, or that treat elements
alike, so none needs to be in blocks here.  That it is so is checked for a whole graph
before its nodes are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.operators import having
from onnxplug.ep import (
    ComputedConstant,
    Graph,
    GraphEditor,
    Node,
    UnsupportedModel,
    ValueInfo,
)
from onnxplug_microsoft.functions.body import Body, NoFunction
from onnxplug_microsoft.functions.makers import (
    Outputs,
    check_form,
    formal_inputs,
    write,
)
from onnxplug_microsoft.functions.matmul import activate
from onnxplug_microsoft.names import MICROSOFT, NCHWC
from onnxplug_microsoft.table import traits_of

BLOCK_SIZES: Final = (8, 16)
"""How many channels a block may have."""

BLOCK_ENTRY: Final = "session.nchwc_block_size"
"""The session config entry that tells how many it has."""

_FIRST: Final = (0, 3, 1, 2)
"""What transposes images from channels last to first."""

_LAST: Final = (0, 2, 3, 1)


def rewrite(editor: GraphEditor) -> list[str]:
    """Replace all operators of the domain in a graph.

    Raises:
        UnsupportedModel: how many channels a block has does not follow from the model;
            or the model is none that ONNX Runtime would have made.
    """
    graph = editor.graph
    if not _has_blocks(graph):
        return []
    editor.infer_types()
    stated = editor.entry(BLOCK_ENTRY)
    # what tells it is gone when bodies come, which may not tell it themselves
    size = editor.shared.get(NCHWC, int(stated) if stated else None)
    blocks = _blocks_of(graph, size)
    editor.shared[NCHWC] = blocks.size
    nodes: list[Node] = []
    replaced: list[str] = []
    for node in graph.nodes:
        if node.domain == NCHWC:
            nodes.extend(_replacement(editor, node, blocks))
            replaced.append(describe(node))
        else:
            nodes.append(node)
    editor.replace_nodes(nodes)
    return replaced


def _is_unary(node: Node) -> bool:
    """Whether *node* is of each element of the first input, ONNX Runtime's included."""
    if node.domain == MICROSOFT:
        return "unary" in traits_of(node.op_type)
    return not node.domain and node.op_type in having("unary")


def _has_blocks(graph: Graph) -> bool:
    return any(node.domain == NCHWC for node in graph.nodes)


def _graphs_within(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for body in node.subgraphs.values():
            yield from _graphs_within(body)


def _blocks_of(graph: Graph, size: int | None) -> _Blocks:
    """What is in blocks in *graph*, by all that the model's graphs say of their size.

    Raises:
        UnsupportedModel: no size fits, or several do.
    """
    main = graph
    while main.parent is not None:
        main = main.parent
    graphs = [each for each in _graphs_within(main) if _has_blocks(each)]
    fitting: list[_Blocks] = []
    why: dict[int, str] = {}
    for candidate in BLOCK_SIZES if size is None else (size,):
        try:
            found = {id(each): _Blocks(each, candidate) for each in graphs}
        except NoFunction as error:
            why[candidate] = str(error)
        else:
            fitting.append(found[id(graph)])
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UnsupportedModel(
            "ONNX Runtime saved this model with channels in blocks "
            f"({NCHWC}), and nothing in it tells whether of 8 or of 16: all its "
            "channels are multiples of 16. It is 16 where it was saved on a processor "
            "with AVX-512, and 8 on others of x86. Set the session config entry "
            f"{BLOCK_ENTRY!r} to that, or save the model with ORT_ENABLE_EXTENDED, "
            "which makes no blocks"
        )
    reasons = [f"if of {each}, {reason}" for each, reason in why.items()]
    if len(set(why.values())) == 1:
        reasons = [*why.values()][:1]
    raise UnsupportedModel(
        f"the model has channels in blocks ({NCHWC}) in a way that onnxplug "
        f"does not know: {'; '.join(reasons)}. Save the model with "
        "ORT_ENABLE_EXTENDED, which makes no blocks"
    )


class _Blocks:
    """The values of a graph whose channels are in blocks.

    Attributes:
        size: of a block.
        channels: how many there are, by values; multiples of *size*.

    Raises:
        NoFunction: blocks are not of that size, or something reads their elements that
            tells them apart.
    """

    def __init__(self, graph: Graph, size: int) -> None:
        self.size = size
        self.channels: dict[str, int] = {}
        self._graph = graph
        if not graph.opset():
            raise NoFunction("it imports no version of ONNX's operators")
        for node in graph.nodes:
            own = node.domain == NCHWC
            channels = self._of_own(node) if own else self._of_other(node)
            made = node.outputs[0] if node.outputs else None
            if channels is not None and made is not None:
                self.channels[made] = channels
        for name in graph.outputs:
            if name in self.channels:
                raise NoFunction(f"the output {name!r} has its channels in blocks")

    def within_input(self, weights: tuple[int, ...], group: int) -> bool:
        """Whether weights have channels of the input in blocks, and not only filters.

        A filter of one channel, and one of few that reads what is not in blocks, have
        none.
        """
        filters, channels = weights[:2]
        if group == 1:
            return channels >= self.size
        return channels > 1 or filters != group

    def _of_own(self, node: Node) -> int | None:
        """How many channels in blocks a node of the domain makes; ``None``: none."""
        maker = _MAKERS.get(node.op_type)
        if maker is None:
            raise NoFunction(f"{describe(node)} is an operator that it does not have")
        try:
            check_form(maker, node)
        except NoFunction as error:
            raise NoFunction(f"{describe(node)}: {error}") from None
        if len(node.outputs) != 1:
            raise NoFunction(f"{describe(node)} has {len(node.outputs)} outputs")
        x = node.inputs[0]
        assert x is not None  # of all operators
        found = self.channels.get(x)
        if node.op_type == "Conv":
            return self._of_conv(node, found)
        if node.op_type == "ReorderInput":
            return self._of_reordered(node, x, found)
        if found is None:
            raise NoFunction(f"{describe(node)} reads {x!r}, which is not in blocks")
        if node.op_type != "ReorderOutput":
            return found
        stated = node.attributes["channels"]
        if stated < 1 or self._rounded(stated) != found:
            raise NoFunction(f"{describe(node)} takes {stated} channels of {found}")
        return None

    def _of_reordered(self, node: Node, x: str, found: int | None) -> int:
        shape = self._graph.value(x).shape
        axis = 3 if node.attributes.get("channels_last", 0) else 1
        if found is not None:
            raise NoFunction(
                f"{describe(node)} reads {x!r}, which is in blocks already"
            )
        if shape is None or len(shape) != 4 or not isinstance(shape[axis], int):
            raise NoFunction(
                f"{describe(node)} reads {x!r} of the shape {shape}; it has to be of "
                "rank 4 and to have a known number of channels"
            )
        return self._rounded(cast(int, shape[axis]))

    def _of_conv(self, node: Node, found: int | None) -> int:
        weights = self._graph.value(node.inputs[1] or "")
        shape = _sizes(weights)
        if not weights.is_constant or len(shape) != 4:
            raise NoFunction(f"{describe(node)} has weights that are no 4-D constant")
        filters, channels = shape[:2]
        group = node.attributes.get("group", 1)
        if group < 1 or min(shape) < 1 or filters % self.size:
            raise NoFunction(
                f"{describe(node)} has weights {list(shape)} in {group} groups"
            )
        if group == 1 and channels < self.size:
            fits = found is None
        elif self.within_input(shape, group):
            whole = filters % group == 0 and filters // group % self.size == 0
            fits = whole and channels % self.size == 0 and found == channels * group
        else:
            fits = found == filters
        given = "what is not in blocks" if found is None else f"{found} channels"
        if not fits:
            raise NoFunction(
                f"{describe(node)} reads {given} with weights {list(shape)} in "
                f"{group} groups"
            )
        bias, added = (*node.inputs[2:], None, None)[:2]
        if bias in self.channels:
            raise NoFunction(f"{describe(node)} has a bias in blocks")
        made = node.outputs[0]
        if added is not None and not (
            self.channels.get(added) == filters
            and (made is None or self._are_alike([made, added]))
        ):
            raise NoFunction(
                f"{describe(node)} adds {added!r}, which is not in blocks of the shape "
                "of its result"
            )
        return filters

    def _of_other(self, node: Node) -> int | None:
        """How many channels in blocks a node of another domain makes."""
        names = [name for name in node.inputs if name is not None]
        read = [name for name in names if name in self.channels]
        captured = [name for name in node.captures if name in self.channels]
        if not read and not captured:
            return None
        counts = [self.channels[name] for name in read]
        if not captured and _is_unary(node) and read == names[:1]:
            return counts[0]
        if not captured and not node.domain and read == names:
            if node.op_type in having("broadcast") and self._are_alike(read):
                return counts[0]
            if node.op_type == "Concat" and node.attributes.get("axis", 1) in (1, -3):
                return sum(counts)
        raise NoFunction(
            f"{describe(node)} reads {[*read, *captured][0]!r}, whose channels are in "
            "blocks"
        )

    def _are_alike(self, names: list[str]) -> bool:
        """Whether nothing is known of *names* by which they would be broadcast."""
        shapes = [self._graph.value(name).shape or () for name in names]
        sizes = [
            {size for size in each if isinstance(size, int)}
            for each in zip(*shapes, strict=False)
        ]
        same_rank = len({len(shape) for shape in shapes}) == 1
        return same_rank and all(len(each) < 2 for each in sizes)

    def _rounded(self, channels: int) -> int:
        return -(-channels // self.size) * self.size


def _replacement(editor: GraphEditor, node: Node, blocks: _Blocks) -> Sequence[Node]:
    """What *node* becomes.

    Raises:
        UnsupportedModel: it has a form that cannot be replaced.
    """
    function = write(
        _MAKERS[node.op_type], _BlockBody(editor.graph, node, blocks), node
    )
    if isinstance(function, str):
        raise UnsupportedModel(f"{describe(node)} cannot be replaced: {function}")
    return editor.nodes_of(function, node) if node.outputs[0] else ()


class _BlockBody(Body):
    """A body that knows what is in blocks."""

    def __init__(self, graph: Graph, node: Node, blocks: _Blocks) -> None:
        super().__init__(graph, node, formal_inputs(_MAKERS[node.op_type]))
        self.blocks = blocks
        self.channels = blocks.channels.get(node.inputs[0] or "", 0)
        """How many the first input has in blocks."""


def _reorder_input(body: _BlockBody, X: str, *, channels_last: int = 0) -> str:
    count = body.known_size(X, 3 if channels_last else 1)
    assert count is not None  # as it was checked
    x = body.transpose(X, *_FIRST) if channels_last else X
    missing = -count % body.blocks.size
    if not missing:
        return x
    pads = (0, 0, 0, 0, 0, missing, 0, 0)
    if body.opset < 11:
        return body.op("Pad", x, pads=pads)
    return body.op("Pad", x, body.ints(*pads))


def _reorder_output(
    body: _BlockBody, X: str, *, channels: int, channels_last: int = 0
) -> str:
    x = X if channels == body.channels else body.slice(X, 0, channels, 1)
    return body.transpose(x, *_LAST) if channels_last else x


def _conv(
    body: _BlockBody,
    X: str,
    W: str,
    B: str | None = None,
    Sum: str | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    auto_pad: str | None = None,
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> str:
    """The sum comes before the activation."""
    weights = body.known_constant(W)
    assert weights is not None  # as it was checked
    inputs = [X, body.computed(_in_order(W, weights, group, body.blocks))]
    y = body.op(
        "Conv",
        *inputs,
        *([] if B is None else [B]),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if Sum is not None:
        y = body.op("Add", y, Sum)
    return activate(body, y, activation, activation_params, W)


def _in_order(
    name: str, weights: ValueInfo, group: int, blocks: _Blocks
) -> ComputedConstant:
    """Weights [O / b, I / b, H, W, b of I, b of O] or [O / b, I, H, W, b] in the order
    of their shape [O, I, H, W]."""
    size, shape = blocks.size, _sizes(weights)
    filters, channels, *spatial = shape
    both = blocks.within_input(shape, group)

    def compute(content: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if both:
            parts = (filters // size, channels // size, *spatial, size, size)
            content = content.reshape(parts).transpose(0, 5, 1, 4, 2, 3)
        else:
            parts = (filters // size, channels, *spatial, size)
            content = content.reshape(parts).transpose(0, 4, 1, 2, 3)
        return np.ascontiguousarray(content.reshape(shape))

    assert weights.dtype is not None  # of a constant
    return ComputedConstant(
        dtype=weights.dtype,
        shape=shape,
        of=[name],
        compute=compute,
        key=(NCHWC, size, both),
    )


def _sizes(constant: ValueInfo) -> tuple[int, ...]:
    """The shape of a constant."""
    return cast(tuple[int, ...], constant.shape or ())


def _max_pool(
    body: _BlockBody,
    X: str,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str | None = None,
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    storage_order: int = 0,
    strides: tuple[int, ...] | None = None,
) -> str:
    """Without indices, of which alone *storage_order* tells something."""
    return body.op(
        "MaxPool",
        X,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        # attributes of later opsets, where they say something
        ceil_mode=ceil_mode or None,
        dilations=dilations if any(n != 1 for n in dilations or ()) else None,
        pads=pads,
        strides=strides,
    )


def _average_pool(
    body: _BlockBody,
    X: str,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str | None = None,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> str:
    return body.op(
        "AveragePool",
        X,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode or None,
        count_include_pad=count_include_pad or None,
        dilations=dilations if any(n != 1 for n in dilations or ()) else None,
        pads=pads,
        strides=strides,
    )


def _global_average_pool(body: _BlockBody, X: str) -> str:
    return body.op("GlobalAveragePool", X)


def _global_max_pool(body: _BlockBody, X: str) -> str:
    return body.op("GlobalMaxPool", X)


def _upsample(
    body: _BlockBody,
    X: str,
    *,
    scales: tuple[int, ...],
    coordinate_transformation_mode: str = "asymmetric",
    mode: str = "nearest",
) -> str:
    allowed = {"nearest": _ASYMMETRIC, "linear": _LINEAR}.get(mode, ())
    if coordinate_transformation_mode not in allowed:
        raise NoFunction(
            f"its attributes 'mode' and 'coordinate_transformation_mode' are {mode!r} "
            f"and {coordinate_transformation_mode!r}; expected 'nearest' and "
            f"'asymmetric', or 'linear' and one of {', '.join(map(repr, _LINEAR))}"
        )
    if len(scales) != 4 or scales[:2] != (1, 1) or min(scales) < 1:
        raise NoFunction(
            f"its attribute 'scales' is {list(scales)}; expected [1, 1, height, width]"
        )
    factors = np.array(scales, np.float32)
    if body.opset < 11:
        if coordinate_transformation_mode != "asymmetric":
            raise NoFunction(
                f"its function needs opset 11, and the model imports {body.opset}"
            )
        if body.opset < 9:
            return body.op("Upsample", X, mode=mode, scales=tuple(map(float, scales)))
        op_type = "Resize" if body.opset == 10 else "Upsample"
        return body.op(op_type, X, body.constant(factors), mode=mode)
    return body.op(
        "Resize",
        X,
        body.constant(np.array([], np.float32)) if body.opset < 13 else None,
        body.constant(factors),
        coordinate_transformation_mode=coordinate_transformation_mode,
        mode=mode,
        nearest_mode="floor" if mode == "nearest" else None,
    )


_ASYMMETRIC: Final = ("asymmetric",)
_LINEAR: Final = ("align_corners", "asymmetric", "half_pixel")

_MAKERS: Final[Mapping[str, Callable[..., Outputs]]] = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": _global_max_pool,
    "MaxPool": _max_pool,
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Upsample": _upsample,
}
