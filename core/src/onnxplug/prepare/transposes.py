"""Moves Transposes down a graph until they cancel, or cannot go any further.

A Transpose is not made where the model has it but where its result is first needed in
that order.  Operators that do the same to all elements run on what is not transposed
yet, and so hand the Transpose on; two that undo each other are never made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType, TensorType
from onnxplug.graph import Attribute, AttributeType, Graph, Node, Weight
from onnxplug.graph.scopes import Names, made_in_bodies
from onnxplug.graph.snapshot import Snapshot
from onnxplug.layout import composed, inverse, permuted
from onnxplug.prepare.channels_last import transpose

Perm: TypeAlias = tuple[int, ...]

_OLDEST: Final = {
    **dict.fromkeys(("LogSoftmax", "Softmax"), 13),  # before: of all axes from one on
    **dict.fromkeys(having("broadcast"), 8),  # before: broadcast by attributes
}


def sink(graph: Graph, ours: Collection[Node]) -> int:
    """Move the Transposes *ours* of *graph*, and others where it helps.

    Returns:
        How many more Transposes there are than without *ours*, at most as many as
        these; less than 0 if others went with them.
    """
    before = _count(graph)
    snapshot = Snapshot(graph)
    _Sinking(graph, ours).sink()
    if _count(graph) > before:  # what passes one on is not worth it everywhere
        snapshot.restore()
        _Sinking(graph, ours, passes=False).sink()
    return _count(graph) - before + len(ours)


def _count(graph: Graph) -> int:
    return sum(_is_transpose(node) for node in graph.nodes)


def _is_transpose(node: Node) -> bool:
    return node.op_type == "Transpose" and not node.domain


class _Pending(Record):
    """A value that is another one, transposed.

    Attributes:
        is_ours: it is, or follows from, one of those that are to be moved.
        node: of the graph, which makes just that.
    """

    source: str
    perm: Perm
    is_ours: bool
    node: Node | None = None

    @property
    def is_same(self) -> bool:
        """Nothing is transposed."""
        return self.perm == tuple(range(len(self.perm)))


class _Role(Record):
    """How an operator is run on what is not transposed yet.

    Attributes:
        data: positions of the inputs that are all in one order, as the outputs are.
        broadcasts: they need not be of one rank, nor of one shape.
        axis: the axis that the attribute of that name has now.
        axes: the axes that a reduction has now.
    """

    data: tuple[int, ...]
    broadcasts: bool = False
    axis: int | None = None
    axes: tuple[int, ...] | None = None


class _Sinking:
    def __init__(
        self, graph: Graph, ours: Collection[Node], *, passes: bool = True
    ) -> None:
        self._graph = graph
        self._passes = passes
        self._ours = frozenset(ours)
        self._names = Names(graph)
        self._pending: dict[str, _Pending] = {}
        self._made: dict[tuple[str, Perm], str] = {}
        self._constants: dict[tuple[str, Perm], str] = {}
        self._nodes: list[Node] = []
        self._identities: list[Node] = []
        self._roles = {node: _role(graph, node) for node in graph.nodes}
        self._wanted = self._find_wanted()
        self._needed = self._find_needed()

    def sink(self) -> None:
        graph = self._graph
        for node in graph.nodes:
            if not (self._held_back(node) or self._passed_on(node)):
                self._keep(node)
        for name in dict.fromkeys(graph.outputs):
            self._make_named(name)
        self._bypass_identities()
        graph.replace_nodes(self._nodes)
        made = {name for node in self._nodes for name in node.outputs if name}
        for name in self._pending:
            if name not in made:
                graph.types.pop(name, None)

    def _find_wanted(self) -> dict[str, set[Perm]]:
        """In which orders values are wanted by what is ours, here or further down."""
        wanted: dict[str, set[Perm]] = {}
        for node in reversed(self._graph.nodes):
            perm = _perm_of(self._graph, node)
            found: set[Perm] = set()
            for name in filter(None, node.outputs):
                found |= wanted.get(name, set())
            if perm is not None:
                found = {composed(perm, each) for each in found}
                if node in self._ours:
                    found.add(perm)
                positions: Iterable[int] = (0,)
            else:
                role = self._roles[node]
                positions = () if role is None else role.data
            for position in positions:
                read = node.inputs[position]
                if read is not None and found:
                    wanted.setdefault(read, set()).update(found)
        return wanted

    def _find_needed(self) -> set[str]:
        """The values that are needed as they are, whatever is moved."""
        needed = set(self._graph.outputs)
        for node in self._graph.nodes:
            needed.update(node.captures)
            if self._roles[node] is None and not _is_transpose(node):
                needed.update(filter(None, node.inputs))
        return needed

    # Transposes

    def _held_back(self, node: Node) -> bool:
        """Note a Transpose, without making it."""
        perm = _perm_of(self._graph, node)
        if perm is None:
            return False
        (name,), (target,) = node.inputs, node.outputs
        assert name is not None and target is not None
        at = self._at(name)
        is_ours = at.is_ours or node in self._ours
        own = node if at.source == name else None
        self._pending[target] = _Pending(
            at.source, composed(at.perm, perm) if at.perm else perm, is_ours, own
        )
        return True

    def _at(self, name: str) -> _Pending:
        """What *name* is the transposed of: itself, with no permutation, if of none."""
        return self._pending.get(name) or _Pending(name, (), False)

    def _make(
        self, source: str, perm: Perm, like: str, node: Node | None = None
    ) -> str:
        """The name of *source* transposed by *perm*; by default *like*."""
        if not perm or perm == tuple(range(len(perm))):
            return source
        name = self._made.get((source, perm))
        if name is None:
            self._nodes.append(node or transpose(source, like, perm))
            name = self._made[source, perm] = like
            if like not in self._graph.types:
                self._type(like, source, perm)
        return name

    def _read(self, name: str) -> str:
        """What to read in place of *name*, which is made if need be."""
        at = self._at(name)
        return self._make(at.source, at.perm, name, at.node)

    def _make_named(self, name: str) -> None:
        """Make *name*, as nothing else can be read in its place."""
        found = self._read(name)
        if found == name:
            return
        at = self._at(name)
        if at.is_same:
            self._identities.append(Node("Identity", (found,), (name,), name=name))
            self._nodes.append(self._identities[-1])
        else:
            self._nodes.append(transpose(at.source, name, at.perm))
            self._made[at.source, at.perm] = name
        self._pending[name] = _Pending(name, (), False)

    def _type(self, name: str, source: str, perm: Perm) -> None:
        known = self._graph.value(source)
        shape = None if known.shape is None else permuted(known.shape, perm)
        self._graph.types[name] = TensorType(known.dtype, shape)

    def _keep(self, node: Node) -> None:
        """Keep a node that needs its inputs as they are."""
        for name in node.captures:
            self._make_named(name)
        node.inputs = tuple(name and self._read(name) for name in node.inputs)
        self._nodes.append(node)

    def _bypass_identities(self) -> None:
        """Let who makes what is handed on to an output make that, where it can."""
        fixed = {*self._graph.outputs, *made_in_bodies(self._graph)}
        for node in self._nodes:
            fixed.update(node.captures)
        makers = {name: node for node in self._nodes for name in node.outputs if name}
        for identity in self._identities:
            (source,), (target,) = identity.inputs, identity.outputs
            if source is None or source in fixed or source not in makers:
                continue
            if target in fixed and target not in self._graph.outputs:
                continue
            new: dict[str | None, str | None] = {source: target}
            self._nodes.remove(identity)
            for node in self._nodes:
                node.inputs = tuple(new.get(name, name) for name in node.inputs)
            maker = makers[source]
            maker.outputs = tuple(new.get(name, name) for name in maker.outputs)
            fixed.add(source)
            self._graph.types.pop(source, None)

    # what Transposes move past

    def _passed_on(self, node: Node) -> bool:
        """Run *node* on what is not transposed yet, if that is of use."""
        role = self._roles[node]
        if role is None or not self._passes:
            return False
        data = [node.inputs[position] for position in role.data]
        found = [self._pending[name] for name in data if name in self._pending]
        for at in sorted(found, key=lambda at: not at.is_ours):
            if not at.is_same and self._is_of_use(node, data, at, role):
                self._pass_on(node, at, role)
                return True
        return False

    def _is_of_use(
        self, node: Node, data: Sequence[str | None], at: _Pending, role: _Role
    ) -> bool:
        back, rank = inverse(at.perm), len(at.perm)
        outputs = [name for name in node.outputs if name]
        is_wanted = any(back in self._wanted.get(name, ()) for name in outputs)
        if not (at.is_ours or is_wanted):
            return False
        if any(len(self._graph.value(name).shape or ()) != rank for name in outputs):
            return False
        saved: set[str] = set()
        extra: set[str] = set()
        for name in filter(None, data):
            here = self._at(name)
            if here.perm == at.perm:
                is_made = (here.source, here.perm) in self._made
                if not is_made and name not in self._needed:
                    saved.add(here.source)
                continue
            shape = self._graph.value(name).shape
            if shape is None or (not role.broadcasts and len(shape) != rank):
                return False
            if _is_alike(shape, rank) and role.broadcasts:
                continue
            weight = self._graph.weight(name)
            if weight is not None:
                if weight.dtype is DataType.STRING or len(shape) > rank:
                    return False
                continue
            if len(shape) != rank:
                return False
            perm = composed(here.perm, back) if here.perm else back
            if perm != tuple(range(rank)) and (here.source, perm) not in self._made:
                extra.add(name)
        passing = len(extra) + (0 if is_wanted else len(outputs))
        staying = len(saved) + (1 if is_wanted else 0)
        return passing <= staying

    def _pass_on(self, node: Node, at: _Pending, role: _Role) -> None:
        perm, back = at.perm, inverse(at.perm)
        inputs: list[str | None] = []
        for place, name in enumerate(node.inputs):
            if name is not None and place in role.data:
                inputs.append(self._in_order(name, perm, role))
            else:
                inputs.append(name and self._read(name))
        outputs: list[str | None] = []
        for name in node.outputs:
            if name is None:
                outputs.append(None)
                continue
            fresh = self._names.fresh(f"{name}_nhwc")
            self._type(fresh, name, back)
            outputs.append(fresh)
            self._pending[name] = _Pending(fresh, perm, True)
        attributes = dict(node.typed_attributes)
        if role.axis is not None:
            attributes["axis"] = Attribute(AttributeType.INT, perm[role.axis])
        if role.axes is not None:
            axes = tuple(perm[axis] for axis in role.axes)
            if len(node.inputs) > 1:
                inputs[1] = fresh = self._names.fresh(f"{outputs[0]}_axes")
                weight = Weight.from_array(np.array(axes, np.int64))
                self._graph.add_constant(fresh, weight)
            else:
                attributes["axes"] = Attribute(AttributeType.INTS, axes)
        self._nodes.append(
            Node(
                node.op_type,
                tuple(inputs),
                tuple(outputs),
                attributes,
                domain=node.domain,
                name=node.name,
                made_of=(node,),
            )
        )

    def _in_order(self, name: str, perm: Perm, role: _Role) -> str:
        """*name* in the order that *perm* starts from."""
        here, rank, back = self._at(name), len(perm), inverse(perm)
        if here.perm == perm:
            return here.source
        shape = self._graph.value(name).shape
        assert shape is not None
        if role.broadcasts and _is_alike(shape, rank):
            return self._read(name)
        weight = self._graph.weight(name)
        if weight is not None:
            return self._constant(name, weight, back)
        total = composed(here.perm, back) if here.perm else back
        made = self._made.get((here.source, total))
        if made is None:
            made = self._names.fresh(f"{name}_nhwc")
        return self._make(here.source, total, made)

    def _constant(self, name: str, weight: Weight, perm: Perm) -> str:
        """The constant *name*, of as many axes as *perm* has, transposed."""
        found = self._constants.get((name, perm))
        if found is None:
            found = self._constants[name, perm] = self._names.fresh(f"{name}_nhwc")
            self._graph.add_constant(found, _transposed(weight, perm))
        return found


def _transposed(weight: Weight, perm: Perm) -> Weight:
    full = (*[1] * (len(perm) - len(weight.shape)), *weight.shape)

    def compute() -> np.ndarray[Any, Any]:
        return np.ascontiguousarray(weight.array.reshape(full).transpose(perm))

    return Weight.computed(
        weight.dtype,
        permuted(full, perm),
        compute,
        method=("Transpose", full, perm),
        of=[weight],
    )


def _is_alike(shape: Sequence[Any], rank: int) -> bool:
    """Whether a tensor is the same in all orders of *rank* axes."""
    return len(shape) <= rank and all(size == 1 for size in shape)


def _perm_of(graph: Graph, node: Node) -> Perm | None:
    """How *node* transposes, if it does."""
    if not _is_transpose(node) or not node.inputs[0] or not node.outputs[0]:
        return None
    shape = graph.value(node.inputs[0]).shape
    if shape is None:
        return None
    axes = tuple(range(len(shape)))
    perm = tuple(node.attributes.get("perm", axes[::-1]))
    return perm if sorted(perm) == list(axes) else None


def _role(graph: Graph, node: Node) -> _Role | None:
    """How *node* can be run on what is not transposed yet, if it can."""
    op_type, opset = node.op_type, graph.opset()
    if node.domain or opset < _OLDEST.get(op_type, 7) or not node.inputs:
        return None
    shape = graph.value(node.inputs[0] or "").shape
    if shape is None:
        return None
    if op_type in having("unary"):
        return _Role((0,))
    if op_type in having("broadcast"):
        return _Role(tuple(range(len(node.inputs))), broadcasts=True)
    if op_type == "Concat":
        return _along(node, tuple(range(len(node.inputs))), None, len(shape))
    if op_type == "Split":
        return _along(node, (0,), 0, len(shape))
    if op_type in ("LogSoftmax", "Softmax"):
        return _along(node, (0,), -1, len(shape))
    if op_type in ("DequantizeLinear", "QuantizeLinear"):
        scale = graph.value(node.inputs[1] or "").shape
        if scale is None or len(scale) > 1 or node.attributes.get("block_size", 0):
            return None
        if opset < 13 or _is_alike(scale, 1):
            return _Role((0,))
        return _along(node, (0,), 1, len(shape))
    if op_type in having("reduction") and node.attributes.get("keepdims", 1):
        axes = node.attributes.get("axes")
        if len(node.inputs) > 1 and node.inputs[1]:
            constant = graph.constant(node.inputs[1])
            axes = None if constant is None else constant.reshape(-1).tolist()
        if axes and all(-len(shape) <= axis < len(shape) for axis in axes):
            return _Role((0,), axes=tuple(axis % len(shape) for axis in axes))
    return None


def _along(
    node: Node, data: tuple[int, ...], default: int | None, rank: int
) -> _Role | None:
    axis = node.attributes.get("axis", default)
    if axis is None or not -rank <= axis < rank:
        return None
    return _Role(data, axis=axis % rank)
