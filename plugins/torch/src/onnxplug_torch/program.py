"""A partition as one callable: steps over slots, of tensors and of numbers.

Each value is a tensor on the device, or numbers on the host (:mod:`shapes`), or both:
what is wanted in the other form than it is made in is converted by a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from onnxplug import ep
from onnxplug.authoring.liveness import last_uses
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType
from onnxplug_torch import shapes
from onnxplug_torch.arrays import to_tensor
from onnxplug_torch.capability import find_function
from onnxplug_torch.dtypes import torch_dtype
from onnxplug_torch.fusion import find_fusions

Form: TypeAlias = Literal["tensor", "numbers"]


class Step(Record):
    """One call.

    Attributes:
        function: of what is in the slots *inputs*.
        outputs: where its results go.
        frees: slots that nothing reads later.
        node: what it computes, or computes something for.
        converts: it is for a value in the other form, and is no node's own.
        traced: torch may look into it, to compile it with others.
    """

    function: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frees: tuple[int, ...]
    node: ep.Node
    converts: bool
    traced: bool = True


class Program(Record):
    """A partition's steps.

    Attributes:
        steps: in order.
        template: what slots hold before: constants; slot 0 is an input left out.
        inputs: the slot of each input of the partition.
        input_forms, outputs, output_forms: likewise.
        waits: a step waits for values of the device, so the program cannot be queued
            whole, nor captured.
    """

    steps: tuple[Step, ...]
    template: tuple[Any, ...]
    inputs: tuple[int, ...]
    input_forms: tuple[Form, ...]
    outputs: tuple[int, ...]
    output_forms: tuple[Form, ...]
    waits: bool


class Constants:
    """Makes tensors of a partition's constants, once for all sessions of a device."""

    def __init__(
        self,
        torch: Any,
        device: Any,
        store: ep.WeightStore | None,
        narrow: Any = None,
        channels_last: bool = False,
    ) -> None:
        self._torch = torch
        self._device = device
        self._store = store
        self._narrow = narrow
        self._channels_last = channels_last

    def tensor(self, partition: ep.Partition, name: str, is_filter: bool) -> Any:
        """The constant *name*, where and as the device wants it."""
        array: Any = partition.constant(name)
        last = self._channels_last and is_filter and array.ndim == 4
        source = partition.weight(name)
        if self._store is None or source is None:
            return self._make(array, last)
        dtype = self._narrow or array.dtype
        layout = f"torch {dtype} of {array.dtype}{list(array.shape)} {last}"
        return self._store.get(source, layout, lambda: self._make(array, last))

    def _make(self, array: Any, last: bool) -> Any:
        torch = self._torch
        tensor = to_tensor(torch, array)
        if self._narrow is not None and tensor.dtype == torch.float32:
            tensor = tensor.to(self._narrow)
        if last:
            tensor = tensor.to(memory_format=torch.channels_last)
        return tensor.to(self._device)


class _Builder:
    def __init__(
        self, torch: Any, partition: ep.Partition, device: Any, constants: Constants
    ) -> None:
        self.torch = torch
        self.partition = partition
        self.device = device
        self.constants = constants
        self.template: list[Any] = [None]
        self.slots: dict[tuple[str, Form], int] = {}
        self.steps: list[Step] = []
        self.waits = False
        self.found = {
            node.index: find_function(torch, partition.graph, node, device)
            for node in partition.nodes
        }
        self.on_host = self._choose_host()
        self.fusions = find_fusions(torch, partition)
        self.replaced = frozenset[int]().union(
            *(fusion.replaced for fusion in self.fusions.values())
        )

    def _choose_host(self) -> set[str]:
        """The values that are made, or fed, as numbers."""
        partition = self.partition
        able = {
            name
            for name in partition.inputs
            if shapes.are_plain([partition.value(name)])
        }
        feasible: set[int] = set()
        for node in partition.nodes:
            names = [name for name in node.inputs if name]
            made = [partition.value(name) for name in node.outputs if name]
            if not shapes.are_plain(made):
                continue
            if _reads_shape(node) or (
                shapes.find_function(node, made[0].dtype if made else None) is not None
                and shapes.are_plain([partition.value(name) for name in names])
                and all(name in able or self._is_small(name) for name in names)
            ):
                feasible.add(node.index)
                able.update(name for name in node.outputs if name)
        wanted: set[str] = set()
        for node in reversed(partition.nodes):
            if node.index in feasible and (
                _reads_shape(node) or wanted & set(filter(None, node.outputs))
            ):
                wanted.update(name for name in node.outputs if name)
                if not _reads_shape(node):
                    wanted.update(name for name in node.inputs if name)
                continue
            operator, _ = self.found[node.index]
            wanted.update(
                name
                for position, name in enumerate(node.inputs)
                if name and position in operator.host
            )
        return wanted & able

    def _is_small(self, name: str) -> bool:
        constant = self.partition.constant(name)
        return constant is not None and shapes.is_small(constant)

    def slot(self, name: str | None, form: Form, node: ep.Node) -> int:
        """Where *name* is to be read in *form*, converted if need be."""
        if name is None:
            return 0
        found = self.slots.get((name, form))
        if found is not None:
            return found
        constant = self.partition.constant(name)
        if constant is not None:
            is_filter = "Conv" in node.op_type and node.inputs[0] != name
            return self.new(
                name,
                form,
                constant.tolist()
                if form == "numbers"
                else self.constants.tensor(self.partition, name, is_filter),
            )
        return self._convert(name, form, node)

    def new(self, name: str, form: Form, content: Any = None) -> int:
        number = len(self.template)
        self.template.append(content)
        self.slots[name, form] = number
        return number

    def _convert(self, name: str, form: Form, node: ep.Node) -> int:
        other: Form = "numbers" if form == "tensor" else "tensor"
        source = self.slots[name, other]
        dtype = self.partition.value(name).dtype
        if form == "numbers":
            function: Callable[..., Any] = _to_numbers
            self.waits = True
        else:
            assert dtype is not None  # only integers and bools are made as numbers
            function = _ToTensor(
                self.torch, torch_dtype(self.torch, dtype), self.device
            )
        target = self.new(name, form)
        self.steps.append(Step(function, (source,), (target,), (), node, True))
        return target

    def add(self, node: ep.Node) -> None:
        """Append what computes *node*."""
        if node.index in self.replaced:
            return
        fusion = self.fusions.get(node.index)
        if fusion is not None:
            given = tuple(self.slot(name, "tensor", node) for name in fusion.inputs)
            made = (self.new(node.outputs[0] or "", "tensor"),)
            self.steps.append(Step(fusion.function, given, made, (), node, False))
            return
        operator, function = self.found[node.index]
        names = list(node.outputs)
        while len(names) > 1 and names[-1] is None:
            names.pop()
        form: Form = "numbers"
        if not all(name is None or name in self.on_host for name in names):
            form = "tensor"
            kinds: list[Form] = [
                "numbers" if position in operator.host else "tensor"
                for position in range(len(node.inputs))
            ]
            self.waits = self.waits or operator.waits
        elif _reads_shape(node):
            kinds = [self._any_form(node.inputs[0])]
            function = _shape_function(node, kinds[0])
        else:
            kinds = ["numbers"] * len(node.inputs)
            dtype = self.partition.value(next(filter(None, names))).dtype
            found = shapes.find_function(node, dtype)
            assert found is not None  # as it was feasible
            function = found
        inputs = tuple(
            self.slot(name, kind, node)
            for name, kind in zip(node.inputs, kinds, strict=True)
        )
        if operator.prepare is not None:
            inputs = self._prepared(operator.prepare, node, inputs)
        outputs = tuple(0 if name is None else self.new(name, form) for name in names)
        traced = operator.traced or form == "numbers"
        self.steps.append(Step(function, inputs, outputs, (), node, False, traced))

    def _prepared(
        self, prepare: Callable[..., Any], node: ep.Node, inputs: tuple[int, ...]
    ) -> tuple[int, ...]:
        """*inputs*, the second of them made ready of that and the two after it."""
        names = node.inputs[1:4]
        if any(name and self.partition.constant(name) is None for name in names):
            return inputs
        weights = [self.template[slot] for slot in inputs[1:4]]
        self.template.append(prepare(self.torch, *weights))
        return (inputs[0], len(self.template) - 1, *inputs[2:])

    def _any_form(self, name: str | None) -> Form:
        has_tensor = (name, "tensor") in self.slots
        return (
            "tensor" if has_tensor or (name, "numbers") not in self.slots else "numbers"
        )


def build(
    torch: Any, partition: ep.Partition, device: Any, constants: Constants
) -> Program:
    """The program of *partition* on *device*."""
    builder = _Builder(torch, partition, device, constants)
    input_forms: list[Form] = [
        "numbers" if name in builder.on_host else "tensor" for name in partition.inputs
    ]
    inputs = tuple(
        builder.new(name, form)
        for name, form in zip(partition.inputs, input_forms, strict=True)
    )
    for node in partition.nodes:
        builder.add(node)
    last = partition.nodes[-1]
    output_forms: list[Form] = []
    outputs = []
    for name in partition.outputs:
        form: Form = "tensor" if (name, "tensor") in builder.slots else "numbers"
        output_forms.append(form)
        outputs.append(builder.slot(name, form, last))
    kept = {n for n, content in enumerate(builder.template) if content is not None}
    ends = last_uses(
        [(*step.inputs, *step.outputs) for step in builder.steps],
        {0, *outputs} | kept,
    )
    return Program(
        tuple(
            # slot 0 is what later steps see as an input left out
            step._replace(frees=(0, *end) if 0 in step.outputs else tuple(end))
            for step, end in zip(builder.steps, ends, strict=True)
        ),
        tuple(builder.template),
        inputs,
        tuple(input_forms),
        tuple(outputs),
        tuple(output_forms),
        builder.waits,
    )


def _reads_shape(node: ep.Node) -> bool:
    return not node.domain and node.op_type in ("Shape", "Size")


def _shape_function(node: ep.Node, form: Form) -> Callable[..., Any]:
    function = shapes.shape_of if node.op_type == "Shape" else shapes.size_of
    attributes = dict(node.attributes)
    if form == "tensor":
        return lambda x: function(x, **attributes)

    def of_numbers(x: Any) -> Any:
        import numpy as np

        return function(np.asarray(x), **attributes)

    return of_numbers


def _to_numbers(tensor: Any) -> Any:
    return tensor.tolist()


class _ToTensor:
    """Numbers as a tensor of one type on one device."""

    def __init__(self, torch: Any, dtype: Any, device: Any) -> None:
        self._make = torch.tensor
        self._dtype = dtype
        self._device = device

    def __call__(self, numbers: Any) -> Any:
        return self._make(numbers, dtype=self._dtype, device=self._device)


def narrow_results(
    torch: Any, program: Program, partition: ep.Partition, dtype: Any
) -> Program:
    """*program* with *dtype* in the place of float32, wherever that is made."""

    def narrowed(step: Step) -> Step:
        makes = [partition.value(name).dtype for name in step.node.outputs if name]
        if step.converts or DataType.FLOAT32 not in makes:
            return step
        function = step.function

        def call(*arguments: Any) -> Any:
            results = function(*arguments)
            if isinstance(results, tuple):
                return tuple(map(narrow, results))
            return narrow(results)

        return step._replace(function=call)

    def narrow(value: Any) -> Any:
        return value.to(dtype) if value.dtype == torch.float32 else value

    return program._replace(steps=tuple(map(narrowed, program.steps)))
