"""What the compiler asks of a target, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from onnxplug_compiler.ir.caches import Caches
    from onnxplug_compiler.ir.coded import CodedProducts, CodedRows
    from onnxplug_compiler.ir.experts import Experts
    from onnxplug_compiler.ir.families import (
        Attention,
        Contractions,
        Convolutions,
        Elementwise,
        Indexing,
        Movement,
        Pools,
        Reductions,
        Rows,
        Transforms,
        Windows,
    )
    from onnxplug_compiler.ir.flow import Flow
    from onnxplug_compiler.ir.images import (
        GridSampling,
        RegionPools,
        Resampling,
        WindowPlaces,
    )
    from onnxplug_compiler.ir.linear_attention import LinearAttentions
    from onnxplug_compiler.ir.pieces import Assembly
    from onnxplug_compiler.ir.recurrent import Recurrent
    from onnxplug_compiler.ir.selection import Selection
    from onnxplug_compiler.ir.tables import Tables
    from onnxplug_compiler.ir.trees import Trees
    from onnxplug_kernels.ml.forest import Forest


class ChainLimits(Record):
    """How large a chain may become.

    Attributes:
        steps: at most, as their values no longer fit registers then.
        operands: arrays that it reads, at most.
        inputs: of one operator, at most.
    """

    steps: int
    operands: int
    inputs: int


class Support(Protocol):
    """What a target computes: what decides which calls are compiled."""

    @property
    def chain_limits(self) -> ChainLimits:
        """How large chains may become."""

    def supports_step(
        self,
        operator: str,
        operands: Sequence[str],
        result: str,
        attributes: Mapping[str, Any],
    ) -> bool:
        """Whether an element-wise operator may be a step of a chain.

        Args:
            operator: ONNX's name.
            operands: their elements, names of :mod:`~.elements`; empty for one that is
                left out.
            result: the result's elements.
            attributes: of the operator, with their defaults.
        """

    @property
    def has_narrow_factors(self) -> bool:
        """Whether products and convolutions of float32 take constant second factors
        of float16 and bfloat16."""

    @property
    def bits_of_caches(self) -> Collection[int]:
        """Of codes in caches that attention reads as they are: 8, of int8, or 4."""

    def takes_forest(self, forest: Forest) -> bool:
        """Whether all comparisons of the nodes of trees are computed."""

    def elements(self, operator: str) -> Collection[str]:
        """The elements of the first input for which an operator is computed that is no
        step; none if it is not at all."""


class Target(Support, Protocol):
    """What records commands, by families, and answers questions of planning."""

    @property
    def prefers_channels_last(self) -> bool:
        """Whether convolutions are fastest where channels are last in memory."""

    def row_padding(self, nbytes: int) -> int:
        """By how many bytes rows of *nbytes* should be farther apart, for products to
        read them fast; mostly 0."""

    def assemble(self, commands: Sequence[Any]) -> Assembly:
        """What is kept of the commands of a piece, made once for all its plans."""

    @property
    def elementwise(self) -> Elementwise: ...
    @property
    def contractions(self) -> Contractions: ...
    @property
    def coded_products(self) -> CodedProducts | None:
        """``None`` if it names no operator of them in :meth:`elements`."""

    @property
    def coded_rows(self) -> CodedRows | None:
        """``None`` if rows between codes are of floats, step by step."""

    @property
    def convolutions(self) -> Convolutions | None:
        """``None`` if no library has convolutions as a whole."""

    @property
    def transforms(self) -> Transforms | None:
        """``None`` if all convolutions are contractions or windows."""

    @property
    def windows(self) -> Windows | None:
        """``None`` if convolutions of each channel by itself are contractions, too."""

    @property
    def pools(self) -> Pools: ...
    @property
    def movement(self) -> Movement: ...
    @property
    def indexing(self) -> Indexing: ...
    @property
    def reductions(self) -> Reductions: ...
    @property
    def rows(self) -> Rows: ...
    @property
    def attention(self) -> Attention: ...
    @property
    def caches(self) -> Caches | None:
        """``None`` if it names no operator of them in :meth:`elements`."""

    @property
    def experts(self) -> Experts | None:
        """``None`` if it names no operator of them in :meth:`elements`."""

    @property
    def resampling(self) -> Resampling: ...
    @property
    def grid_sampling(self) -> GridSampling: ...
    @property
    def region_pools(self) -> RegionPools: ...
    @property
    def window_places(self) -> WindowPlaces | None:
        """``None`` if it names no operator of them in :meth:`elements`."""

    @property
    def recurrent(self) -> Recurrent: ...
    @property
    def linear_attention(self) -> LinearAttentions: ...
    @property
    def trees(self) -> Trees: ...
    @property
    def selection(self) -> Selection: ...
    @property
    def tables(self) -> Tables: ...
    @property
    def flow(self) -> Flow | None:
        """``None`` if bodies of control flow are never parts of what is around them."""
