"""Zero points of factors that are bytes, behind their products by tensor cores.

Of codes a and b, and zero points that do not differ along a sum of n products,
Σ(a - p)(b - q) is Σab - pΣb - qΣa + npq; all of it is modulo 2³².
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_compiler.gpu.families.fragments import WARP
from onnxplug_compiler.gpu.render.body import Body
from onnxplug_compiler.gpu.render.dialect import Fragments


class ZeroPoints:
    """Sums of both factors as far as zero points need them, and what is made of these.

    Args:
        element: of the factors, as of ``tensor_products.PER_WORD``.
        zeros: elements of the zero points of rows and columns, which are arrays 2 and
            3 of the kernel, or the second one array 2 if there is no first; empty
            without.
        offsets: are added to them.
        warps: how many there are along rows and columns.
        sides: rows and columns of each.
    """

    def __init__(
        self,
        body: Body,
        fragments: Fragments,
        element: str,
        zeros: Sequence[str],
        offsets: Sequence[int],
        warps: tuple[int, int],
        sides: tuple[int, int],
    ) -> None:
        self._body, self._fragments = body, fragments
        self._elements = element.split("_")
        self._zeros, self._offsets, self._warps = zeros, offsets, warps
        has = self._has = [bool(x or y) for x, y in zip(zeros, offsets, strict=True)]
        # what a zero point of the other factor is multiplied with
        self._sums = [
            [body.var("u32", "0u") for _ in range(sides[n] // 8 if has[1 - n] else 0)]
            for n in (0, 1)
        ]
        self._shared = [
            body.array("u32", warps[n] * sides[n]) if has[1 - n] else "" for n in (0, 1)
        ]

    def add(
        self, left: Sequence[Sequence[str]], right: Sequence[Sequence[str]]
    ) -> None:
        """Add a lane's words of fragments of both factors, which are multiplied."""
        if not any(self._has):
            return
        body = self._body
        lines = [each[half::2] for each in left for half in (0, 1)], right
        for element, sums, words in zip(self._elements, self._sums, lines, strict=True):
            for total, line in zip(sums, words, strict=False):
                for word in line:
                    found = self._fragments.added(element, word, total)
                    body.assign(total, found)

    def share(self, warp: str, within: str, starts: Sequence[str]) -> None:
        """Have all lanes of the workgroup see the sums behind the next barrier."""
        body, warps = self._body, self._body.dialect.warps
        assert warps is not None
        lanes = WARP * self._warps[0] * self._warps[1]
        for n, sums in enumerate(self._sums):
            for total in sums:
                for apart in (1, 2):
                    other = body.let("u32", warps.swap(total, apart, lanes))
                    body.assign(total, f"{total} + {other}")
            # the warps of other columns have the same rows
            first = (
                f"{warp} % {self._warps[1]}u == 0u"
                if n == 0
                else f"{warp} / {self._warps[1]}u == 0u"
            )
            if sums:
                with body.when(f"{first} && {within} % 4u == 0u"):
                    for number, total in enumerate(sums):
                        place = f"{starts[n]} + {8 * number}u + {within} / 4u"
                        body.assign(f"{self._shared[n]}[{place}]", total)

    def corrected(
        self,
        total: str,
        within: Sequence[str],
        places: Sequence[Sequence[str]],
        depth: str,
    ) -> str:
        """A sum of products of codes as one of what they stand for.

        Args:
            within: its row and column, in the tile.
            places: the coordinates of their zero points.
            depth: how many products there are.
        """
        body, number = self._body, 2
        terms: list[str] = []
        points: list[str] = []
        for n, (element, offset) in enumerate(
            zip(self._zeros, self._offsets, strict=True)
        ):
            if not self._has[n]:
                continue
            point = body.number("u32", offset & 0xFFFF_FFFF)
            if element:
                found = body.load(number, body.place(number, places[n]))
                point = f"{body.dialect.convert('u32', found)} + {point}"
                number += 1
            points.append(body.let("u32", point))
            terms.append(f" - {points[-1]} * {self._shared[1 - n]}[{within[1 - n]}]")
        if len(points) == 2:
            terms.append(f" + {depth} * {points[0]} * {points[1]}")
        if not terms:
            return total
        bits = body.dialect.reinterpret("u32", total)
        found = body.let("u32", bits + "".join(terms))
        return body.let("i32", body.dialect.reinterpret("i32", found))
