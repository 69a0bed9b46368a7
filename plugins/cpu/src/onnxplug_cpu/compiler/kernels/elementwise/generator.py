"""The kernels of chains of element-wise operators, as they are written."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_cpu.compiler.codegen.emit import I8, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import KernelFunction
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part, stored
from onnxplug_cpu.compiler.kernels.elementwise.body import LONG, ChainBody
from onnxplug_cpu.compiler.kernels.elementwise.commands import Elementwise
from onnxplug_cpu.compiler.kernels.elementwise.operators import chain_cost
from onnxplug_cpu.compiler.kernels.loop_nest import SPLAT, STRIDED
from onnxplug_cpu.compiler.machine.isa import Isa


class Writer:
    """Writes the kernel of a chain."""

    def __init__(
        self,
        module: Module,
        name: str,
        isa: Isa,
        form: Elementwise,
    ) -> None:
        chain, kinds, _, is_blocked = form
        self.k = KernelFunction(module, name, form.words)
        self.f = self.k.function
        self.chain = chain
        self.is_blocked = is_blocked
        self.walk = form.walk
        self.elements = [
            *(chain.element(value) for value in chain.outputs),
            *chain.inputs,
        ]
        self.kinds = kinds
        self.body = ChainBody(self.f, isa, chain)
        self.lanes = Lanes(self.f, isa, self.body.width)
        for element, kind in zip(self.elements, kinds, strict=True):
            self.lanes.reserve_for(element, kind == STRIDED)
        self.columns = self.k.integer("columns")
        self.block = self.k.integer("block")
        self.steps = [
            self.k.integer(f"{name}_column") if kind == STRIDED else None
            for name, kind in zip(self.walk.names, kinds, strict=True)
        ]

    def write(self) -> None:
        """Emit the function."""
        self.walk.write(self.k, self._row)
        self.f.finish()

    def _row(self, pointers: list[Value], indices: list[Value]) -> None:
        f = self.f
        count = self.columns
        if self.is_blocked:
            left = count - indices[0] * self.block
            count = f.minimum(self.block, left)
        outputs = len(self.chain.outputs)
        fixed = self.body.constants()
        for number, element in enumerate(self.chain.inputs):
            splat = self.kinds[outputs + number] == SPLAT
            if splat and number in self.body.live:
                pointer = pointers[outputs + number]
                fixed[number] = self.lanes.load_splat(element, pointer)
        fixed = self.body.fix(fixed)

        def vector(start: Value, part: Part) -> None:
            self._vector(pointers, fixed, start, part)

        lanes, width = self.lanes, self.lanes.width
        if lanes.has_masks and chain_cost(self.chain) >= LONG:
            # one copy of the code; a mask costs little beside it
            f.loop(count, lambda j: vector(j, lanes.first(count - j)), step=width)
            return
        full = count & -width
        f.loop(full, lambda j: vector(j, lanes.whole()), step=width)
        f.branch(full < count, lambda: vector(full, lanes.first(count - full)))

    def _vector(
        self,
        pointers: Sequence[Value],
        fixed: dict[int, Value],
        start: Value,
        part: Part,
    ) -> None:
        f = self.f

        def placed(position: int) -> Value:
            step = self.steps[position]
            if step is not None:
                return f.at(pointers[position], start * step, I8)
            return f.at(pointers[position], start, stored(self.elements[position]))

        outputs = len(self.chain.outputs)
        values = dict(fixed)
        for number, element in enumerate(self.chain.inputs):
            position = outputs + number
            if number not in fixed and number in self.body.live:
                values[number] = self.lanes.load(
                    element, placed(position), part, self.steps[position]
                )
        values = self.body.advance(values)
        for position, value in enumerate(self.body.chain.outputs):
            self.lanes.store(
                self.elements[position],
                values[value],
                placed(position),
                part,
                self.steps[position],
            )
