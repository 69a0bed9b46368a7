"""The steps of a chain as instructions, for 16 elements at a time."""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_cpu.compiler.codegen.emit import F32, Function, Value
from onnxplug_cpu.compiler.kernels.elementwise.codes import quotients, with_codes
from onnxplug_cpu.compiler.kernels.elementwise.emitters import emit_step
from onnxplug_cpu.compiler.kernels.elementwise.operators import chain_cost
from onnxplug_cpu.compiler.kernels.elementwise.quotient import Divisor
from onnxplug_cpu.compiler.kernels.elementwise.step import literal
from onnxplug_cpu.compiler.machine.isa import LANES, Isa


class ChainBody:
    """Emits the steps of one chain, as far as the values they need are there.

    Args:
        width: lanes of the vectors to compute; 0 for :func:`chain_width`.

    Attributes:
        width: lanes of the vectors to compute.
        chain: with the same inputs; values behind them have other numbers.
        live: numbers of the values that outputs need.
    """

    def __init__(self, f: Function, isa: Isa, chain: Chain, width: int = 0) -> None:
        self.width = width or chain_width(isa, chain)
        self.f = f
        self.isa = isa
        self.chain = with_codes(chain)
        self.live = _live_values(self.chain)
        # without registers for masks an assertion of LLVM 22 ends the process where all
        # lanes of several registers are asked for
        has_masks = isa.has("avx512f") and isa.fuses
        self._quotients = quotients(self.chain, self.live) if has_masks else {}
        self._divisors: dict[int, Divisor] = {}

    def constants(self) -> dict[int, Value]:
        """The chain's constants, by value number."""
        start = len(self.chain.inputs)
        return {
            number: literal(self.f, scalar, self.width)
            for number, scalar in enumerate(self.chain.constants, start)
        }

    def fix(self, values: dict[int, Value]) -> dict[int, Value]:
        """*values*, which are those of all elements to come, and all that can be
        computed from them."""
        values = self.advance(values)
        for number, by in self._quotients.items():
            if number not in values and by in values and by not in self._divisors:
                self._divisors[by] = Divisor(self.f, values[by])
        return values

    def advance(self, values: dict[int, Value]) -> dict[int, Value]:
        """*values* and all that can be computed from them."""
        values = dict(values)
        start = len(self.chain.inputs) + len(self.chain.constants)
        for number, step in enumerate(self.chain.steps, start):
            if number in values or number not in self.live:
                continue
            if any(o >= 0 and o not in values for o in step.operands):
                continue
            operands = [values[o] if o >= 0 else None for o in step.operands]
            made = self._fused(step, values) or self._quotient(number, operands[0])
            values[number] = made or emit_step(self.f, self.isa, step, operands)
        return values

    def _quotient(self, number: int, x: Value | None) -> Value | None:
        """A quotient that will be whole, if its divisor was fixed."""
        divisor = self._divisors.get(self._quotients.get(number, -1))
        return None if divisor is None or x is None else divisor.divide(x)

    def _fused(self, step: Step, values: dict[int, Value]) -> Value | None:
        """A sum whose product is not rounded, if there may be such."""
        if not self.isa.fuses or not dict(step.attributes).get("fused"):
            return None
        start = len(self.chain.inputs) + len(self.chain.constants)
        for product, other in (step.operands, step.operands[::-1]):
            made = self.chain.steps[product - start] if product >= start else None
            if made is not None and made.operator == "Mul":
                one, two = (values[factor] for factor in made.operands)
                return self.f.fma(one, two, values[other])
        return None


def chain_width(isa: Isa, chain: Chain) -> int:
    """Lanes to compute a chain with.

    The schedulers of processors do not look far enough ahead to overlap the long
    dependent sequences of one vector with the next one's, so these are computed for two
    registers at a time.
    """
    elements = {chain.element(value) for value in _values(chain)}
    if elements <= _BYTES:
        return LANES * F32.nbytes
    wide = not elements.isdisjoint(("f64", "i64", "u64"))
    if wide or isa.registers_per_vector > 1 or isa.registers < 32:
        return LANES
    return 2 * LANES if chain_cost(chain) >= LONG else LANES


def _values(chain: Chain) -> range:
    return range(len(chain.inputs) + len(chain.constants) + len(chain.steps))


_BYTES: Final = frozenset({"i8", "u8"})

LONG: Final = 20
"""Vector instructions from which on a chain is long."""


def _live_values(chain: Chain) -> frozenset[int]:
    start = len(chain.inputs) + len(chain.constants)
    live = set(chain.outputs)
    for number in range(start + len(chain.steps) - 1, start - 1, -1):
        if number in live:
            live.update(chain.steps[number - start].operands)
    return frozenset(live)
