"""Tiles of factors in shared memory, and the fragments that warps load of them, for
tensor cores.

Memory of tiles is words, each of as many neighbouring elements as it has room for.  A
fragment has eight of them along the sums, whatever the elements are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from onnxplug_compiler.gpu.render.body import BYTES, Body
from onnxplug_compiler.gpu.render.dialect import Fragments

CHUNK: Final = 4
"""Words that are copied at once, 16 bytes, where memory allows it."""

WARP: Final = 32


def copy_elements(
    body: Body,
    fragments: Fragments,
    operand: int,
    target: tuple[str, str],
    find: Callable[[int], tuple[str, str]],
    aligned: str,
) -> None:
    """Copy elements of an array to a word of a tile and those behind it, zeros for what
    is not there.

    Args:
        operand: the array, of bits.
        target: the array of the tile, and the word.
        find: the place of one of them, which is of the array in any case, and whether
            it is there.
        aligned: for 16 bytes, of which all are there or none, whether they begin at a
            multiple of as many; empty for one word.
    """
    name, word = target
    each = 4 // BYTES[body.element(operand)]

    def assign(elements: Sequence[tuple[str, str]], behind: str = "") -> None:
        values = []
        for n, (place, there) in enumerate(elements):
            value = body.load(operand, place)
            value = body.let("u32", body.dialect.select(there, value, "0u"))
            values.append(f"({value} << {32 // each * n}u)" if n else value)
        body.assign(f"{name}[{word}{behind}]", " | ".join(values))

    if not aligned:
        assign([find(n) for n in range(each)])
        return
    place, there = find(0)
    with body.when(aligned):
        source = body.words_at(operand, place)
        body.line(fragments.copy(f"&{name}[{word}]", source, there))
    with body.when(f"!{aligned}"):
        for n in range(CHUNK):
            steps = range(n * each, (n + 1) * each)
            elements = [(body.let("i32", f"{place} + {k}"), there) for k in steps]
            assign(elements, f" + {n}u")


def copy_turned_bytes(
    body: Body,
    operand: int,
    target: tuple[str, str, int],
    find: Callable[[int, int], tuple[str, str]],
    aligned: str,
) -> None:
    """Copy four by four bytes, side by side across the sums, to words along them, zeros
    for what is not there.

    Args:
        operand: the array, of bytes.
        target: the array of the tile, the first word, and words of a line.
        find: the place of one of them, by its numbers across the sums and along them,
            and whether it is there; the four of a number along them are there or not.
        aligned: whether they begin at a multiple of four bytes.
    """
    name, word, stride = target
    rows = []
    for along in range(4):
        place, there = find(0, along)
        row = body.var("u32", "0u")
        with body.when(f"{aligned} && {there}"):
            body.assign(row, body.load_word(operand, place))
        with body.when(f"!{aligned} && {there}"):
            parts = [
                f"({body.load(operand, find(across, along)[0])} << {8 * across}u)"
                for across in range(4)
            ]
            body.assign(row, " | ".join(parts))
        rows.append(row)
    even, odd = "0xff00ffu", "0xff00ff00u"
    pairs = []
    for first, second in (rows[:2], rows[2:]):
        pairs.append(
            body.let("u32", f"({first} & {even}) | (({second} & {even}) << 8u)")
        )
        pairs.append(body.let("u32", f"(({first} & {odd}) >> 8u) | ({second} & {odd})"))
    low, high = "0xffffu", "0xffff0000u"
    for across in range(4):
        first, second = pairs[across % 2], pairs[2 + across % 2]
        if across < 2:
            found = f"({first} & {low}) | ({second} << 16u)"
        else:
            found = f"({first} >> 16u) | ({second} & {high})"
        body.assign(f"{name}[{word} + {across * stride}u]", found)


def load_fragment(
    body: Body,
    fragments: Fragments,
    base: str,
    stride: int,
    start: tuple[str, str],
    *,
    along: bool,
    left: bool,
    per_word: int = 2,
) -> list[str]:
    """A lane's part of four matrices of 8 by 4 words: the second one lies behind the
    first across the sums in the left factor, along them in the right one.

    Args:
        base: the array of words and where the tile begins in it, as far as to a sum.
        stride: words of a line of the tile.
        start: where the fragment begins across the sums and along them, in elements.
        along: lines are along the sums.
        left: it is the left factor.
        per_word: elements of a word; lines are along the sums if it has four.
    """
    if not along and per_word == 1:
        return _load_words(body, base, stride, start, left=left)
    second, third = (
        body.let("u32", f"lane % {WARP}u / {8 << n}u % 2u") for n in (0, 1)
    )
    across, behind = (second, third) if left else (third, second)
    at = body.let("u32", f"{start[0]} + {across} * 8u")
    number = body.let("u32", f"{start[1]} + {behind} * {4 * per_word}u")
    if along:
        place = f"({at} + lane % 8u) * {stride}u + {number} / {per_word}u"
    else:
        place = f"({number} + lane % 8u) * {stride}u + {at} / {per_word}u"
    found = [body.var("u32", "0u") for _ in range(4)]
    body.line(fragments.load(found, f"&{base} + {place}]", turned=not along))
    return found


def _load_words(
    body: Body, base: str, stride: int, start: tuple[str, str], *, left: bool
) -> list[str]:
    """As :func:`load_fragment`, of elements of a word in lines across the sums, which
    no instruction turns."""
    at = body.let("u32", f"{start[0]} + lane % {WARP}u / 4u")
    number = body.let("u32", f"{start[1]} + lane % 4u")
    found = []
    for matrix in range(4):
        across, behind = (matrix % 2, matrix // 2)[:: 1 if left else -1]
        place = f"({number} + {4 * behind}u) * {stride}u + {at} + {8 * across}u"
        found.append(body.let("u32", f"{base} + {place}]"))
    return found
