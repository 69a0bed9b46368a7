"""Chains that are applied to the tiles of a contraction, while these are at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.views import View, with_line


class Epilogue(NamedTuple):
    """A chain for the tiles of a contraction, and what it reads and writes.

    Attributes:
        chain: its value 0 is the tile.
        operands: the other inputs, broadcast to the shape of the result.
        outputs: one view per output of the chain, of the same shape.
    """

    chain: Chain
    operands: tuple[View, ...]
    outputs: tuple[View, ...]

    def reshape(self, shape: Sequence[int]) -> Epilogue | None:
        """The same for a result of another shape; ``None`` if a view needs a copy."""
        views = []
        for view in (*self.operands, *self.outputs):
            other = view.reshape(shape)
            if other is None:
                return None
            views.append(other)
        return self._with(views)

    def of(self, part: Callable[[View], View]) -> Epilogue:
        """The same for a part of the result."""
        return self._with(list(map(part, (*self.operands, *self.outputs))))

    def with_line(self) -> Epilogue:
        """The same for rows that are those of one line."""
        return self._with([with_line(view) for view in (*self.operands, *self.outputs)])

    def _with(self, views: Sequence[View]) -> Epilogue:
        count = len(self.operands)
        return Epilogue(self.chain, tuple(views[:count]), tuple(views[count:]))


def epilogue(
    chain: Chain, operands: Sequence[View], outputs: Sequence[View]
) -> Epilogue:
    """What applies *chain* to each tile of a contraction.

    Args:
        chain: its value 0 is the tile.
        operands: the other inputs, of the shape of the result, broadcast already; any
            strides.
        outputs: one view per output of the chain, of the same shape; the tile may lie
            in one of them, where this output's element is stored.

    Raises:
        ValueError: views do not fit.
    """
    if len(operands) + 1 != len(chain.inputs) or len(outputs) != len(chain.outputs):
        raise ValueError(
            f"the chain has {len(chain.inputs) - 1} inputs beside the tile and "
            f"{len(chain.outputs)} outputs; got {len(operands)} and {len(outputs)}"
        )
    views = [*operands, *outputs]
    if any(view.shape != views[-1].shape for view in views):
        raise ValueError(
            f"views of one shape are expected; got {[view.shape for view in views]}"
        )
    return Epilogue(chain, tuple(operands), tuple(outputs))
