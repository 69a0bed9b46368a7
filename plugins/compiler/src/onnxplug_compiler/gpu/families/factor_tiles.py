"""A factor's tiles in shared memory: how they lie there, and how a workgroup copies
them from an array of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from onnxplug_compiler.gpu.families.fragments import (
    CHUNK,
    copy_elements,
    copy_turned_bytes,
)
from onnxplug_compiler.gpu.render.body import Body
from onnxplug_compiler.gpu.render.dialect import Fragments
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.views import View

DEPTH: Final = 16
"""Words along the sums that a tile has at hand."""

_PAD: Final = 4
"""Words behind each line of a tile, by which its lines lie in different banks."""

Finding: TypeAlias = "Callable[[str, str], tuple[str, str]]"
"""Where an element is, by its row or column and its place along the sums, or the first
one if it is not there, and if it is."""


class Loading(Parameters):
    """How a factor becomes a tile.

    Attributes:
        along: lines of the tile are along the sums, not across.
        chunks: neighbouring elements are copied together, as all are aligned.
        turned: lines of memory are across the sums, those of the tile along them.
    """

    along: bool
    chunks: bool
    turned: bool = False

    def elements(self, per_word: int) -> int:
        """Elements that are copied together, where any are."""
        return per_word if self.turned else CHUNK * per_word


def loading_of(view: View, along: int, across: int, per_word: int) -> Loading:
    """How a factor is loaded.

    Args:
        along: its last axis of sums.
        across: its last axis of rows or columns.
        per_word: elements of a word.
    """
    is_along = view.strides[along] == 1 or view.strides[across] != 1
    turned = per_word == 4 and not is_along
    chunk = Loading(is_along, True, turned).elements(per_word)
    axis = along if is_along else across
    others = [
        stride
        for at, (size, stride) in enumerate(zip(view.shape, view.strides, strict=True))
        if size > 1 and at != axis % len(view.shape)
    ]
    chunks = (
        view.strides[axis] == 1
        and view.shape[axis] % chunk == 0
        and view.offset % (chunk * view.dtype.itemsize) == 0
        and all(stride % chunk == 0 for stride in others)
    )
    return Loading(is_along or turned, chunks, turned)


class FactorTiles:
    """Two tiles of a factor, one that is multiplied and one that comes.

    Args:
        number: of the factor's array.
        first: row or column with which the tiles begin.
        size: rows or columns of a tile.
        per_word: elements of a word.
        lanes: of the workgroup.
        room: words that the memory of both has at least.

    Attributes:
        name: of their memory.
        stride: words from a line to the next one.
        words: of a tile.
    """

    def __init__(
        self,
        body: Body,
        fragments: Fragments,
        loading: Loading,
        find: Finding,
        *,
        number: int,
        first: str,
        size: int,
        per_word: int,
        lanes: int,
        room: int = 0,
    ) -> None:
        self.loading = loading
        self._body, self._fragments, self._find = body, fragments, find
        self._number, self._first = number, first
        self._per_word, self._lanes = per_word, lanes
        depth = DEPTH * per_word
        self._lines, self._length = (size, depth) if loading.along else (depth, size)
        # lanes that read words one by one are four lines apart, not eight
        pad = _PAD if loading.along or per_word > 1 else 2 * _PAD
        self.stride = self._length // per_word + pad
        self.words = self._lines * self.stride
        self.name = body.array("u32", max(2 * self.words, room))
        self._aligned = ""
        if loading.chunks:
            aligned = body.aligned(number, loading.elements(per_word))
            self._aligned = body.let("i1", aligned)

    def load(self, stage: str, first: str) -> None:
        """Begin to copy the tile that begins at *first* along the sums.

        Args:
            stage: which of both it is.
        """
        if self.loading.turned:
            self._load_turned(stage, first)
            return
        body = self._body
        each = self._per_word * (CHUNK if self.loading.chunks else 1)
        per_line = self._length // each
        entries = f"{self._lines * per_line}u"
        base = body.let("u32", f"{stage} * {self.words}u")
        with body.loop(entries, "lane", f"{self._lanes}u") as entry:
            line = body.let("u32", f"{entry} / {per_line}u")
            near = body.let("u32", f"({entry} % {per_line}u) * {each}u")
            word = f"{base} + {line} * {self.stride}u + {near} / {self._per_word}u"
            pair = (line, near) if self.loading.along else (near, line)
            self._copy(pair, first, word)

    def _load_turned(self, stage: str, first: str) -> None:
        """The same of bytes that lie across the sums."""
        body = self._body
        each = 4 if self.loading.chunks else 1
        across = self._lines // each
        base = body.let("u32", f"{stage} * {self.words}u")
        with body.loop(f"{across * DEPTH}u", "lane", f"{self._lanes}u") as entry:
            line = body.let("u32", f"{entry} % {across}u * {each}u")
            near = body.let("u32", f"{entry} / {across}u")
            word = f"{base} + {line} * {self.stride}u + {near}"
            if self.loading.chunks:
                self._copy_turned(line, f"{first} + {near} * 4u", word)
            else:
                self._copy((line, f"{near} * 4u"), first, word)

    def _copy_turned(self, line: str, first: str, word: str) -> None:
        """Copy four by four bytes to four words of neighbouring lines of a tile.

        Args:
            first: of the places along the sums.
        """
        body = self._body
        other = body.let("u32", f"{self._first} + {line}")

        def find(across: int, along: int) -> tuple[str, str]:
            number = body.let("u32", f"{first} + {along}u")
            return self._find(f"({other} + {across}u)", number)

        target = self.name, word, self.stride
        copy_turned_bytes(body, self._number, target, find, self._aligned)

    def _copy(self, pair: tuple[str, str], first: str, word: str) -> None:
        """Copy a chunk, or a word, to a tile, zeros for what is not there.

        Args:
            pair: the row or column in the tile, and the place along the sums.
            word: of the tile.
        """
        body, along = self._body, self.loading.along
        other = body.let("u32", f"{self._first} + {pair[0]}")
        number = body.let("u32", f"{first} + {pair[1]}")

        def find(step: int) -> tuple[str, str]:
            at = [other, number]
            if step:
                at[along] = body.let("u32", f"{at[along]} + {step}u")
            return self._find(*at)

        target = self.name, word
        copy_elements(body, self._fragments, self._number, target, find, self._aligned)
