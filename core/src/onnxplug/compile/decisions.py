"""What has been decided of a graph's nodes while it is divided over EPs.

A pass takes the decisions of those before it, and gives its own; none is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import TypeAlias

from onnxplug.authoring.record import Record
from onnxplug.ep import Reason
from onnxplug.graph import Node

Claim: TypeAlias = tuple[int, Node]
"""An EP, by its position among the candidates, and a node that it claims."""


class Decisions(Record):
    """Which claims of EPs do not count, and why.

    Attributes:
        excluded: the claims that do not count any more.
        given_back: the same as they were decided: an EP, its nodes, and the reason.
        unprofitable: those of them that are only not worth their copies.
        kept: nodes that stay with their EP whatever their copies cost.
    """

    excluded: Mapping[Claim, Reason] = MappingProxyType({})
    given_back: tuple[tuple[int, tuple[Node, ...], Reason], ...] = ()
    unprofitable: frozenset[Claim] = frozenset()
    kept: frozenset[Node] = frozenset()

    def give_back(self, claims: Mapping[Claim, Reason]) -> Decisions:
        """With *claims* excluded, for their reasons."""
        groups: dict[tuple[int, Reason], list[Node]] = {}
        for (position, node), reason in claims.items():
            groups.setdefault((position, reason), []).append(node)
        return self._replace(
            excluded={**self.excluded, **claims},
            given_back=(
                *self.given_back,
                *(
                    (position, tuple(nodes), reason)
                    for (position, reason), nodes in groups.items()
                ),
            ),
        )

    def find_unprofitable(self, found: Mapping[Claim, Reason]) -> Decisions | None:
        """With the claims given back that are *found* not to be worth their copies;
        ``None`` if all of these are kept."""
        claims = {key: why for key, why in found.items() if key[1] not in self.kept}
        if not claims:
            return None
        return self.give_back(claims)._replace(
            unprofitable=self.unprofitable | claims.keys()
        )

    def keep_after_all(self, unassigned: Set[Node]) -> Decisions | None:
        """With nodes kept that were given back for their copies' sake, and that no
        other EP takes after all; ``None`` if there are none.

        The EP that claimed them cannot take them alone, say.
        """
        claims = {key for key in self.unprofitable if key[1] in unassigned}
        if not claims:
            return None
        excluded = {key: why for key, why in self.excluded.items() if key not in claims}
        return Decisions(
            excluded,
            tuple(
                (position, left, reason)
                for position, nodes, reason in self.given_back
                if (
                    left := tuple(
                        node for node in nodes if (position, node) in excluded
                    )
                )
            ),
            self.unprofitable - claims,
            self.kept | {node for _, node in claims},
        )
