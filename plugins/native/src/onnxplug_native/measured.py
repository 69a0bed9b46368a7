"""Which nodes of a library are refused: those that it was not seen to compute rightly.

Libraries take nodes that they compute wrongly, and say nothing of it.  For those that
were measured there is an allow-list (:mod:`onnxplug.authoring.allow_list`), written by
``tools/measure_operators.py``; others are taken at their word.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from types import MappingProxyType
from typing import Final

from onnxplug import ep
from onnxplug.authoring.allow_list import AllowList
from onnxplug.authoring.files import read_file
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.ranges import Ranges
from onnxplug.authoring.record import Record
from onnxplug_native.lookups import unchecked

PREFIX: Final = "onnxplug."
"""What names of options begin with that are the host's, and not the library's."""

_TRUST: Final = "onnxplug.trust_library"
_LIST: Final = "onnxplug.allow_list"
_FITS: Final = "onnxplug.int64_in_32_bits"
_WITHIN: Final = "onnxplug.indices_in_range"

OPTIONS: Final[Mapping[str, ep.Option]] = {
    _TRUST: ep.Option(
        default=False,
        compiled_in=False,
        doc="Give the library whatever it takes, also what it was not seen to compute "
        "rightly.",
    ),
    _LIST: ep.Option(
        default="",
        compiled_in=False,
        doc="The file of an allow-list that was measured, instead of that which comes "
        "with onnxplug-native.",
    ),
    _FITS: ep.Option(
        default=False,
        compiled_in=False,
        doc="Take int64 for granted to fit in 32 bits, where a library is known to "
        "compute it in no more.",
    ),
    _WITHIN: ep.Option(
        default=False,
        compiled_in=False,
        doc="Take indices for granted to be in range, where a library is known not to "
        "look.",
    ),
}
"""Of the host, for every library."""


class Measured(Record):
    """What was measured of a library.

    Attributes:
        ep: the name of its EP.
        vendor: who made it.
        version: which version was measured, as the library says it.
        operators: of ONNX's own operators, what was seen to be right.
        int64_bits: in how many bits it computes int64.
        looks_at_indices: it fails where one is out of range.
        options: with which it was measured, and is used unless users write others.
    """

    ep: str
    vendor: str
    version: str
    operators: AllowList
    int64_bits: int = 64
    looks_at_indices: bool = True
    options: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def parse(cls, text: str | bytes) -> Measured:
        """Read a list.

        Raises:
            ValueError: it is none, and why.
        """
        table = json.loads(text)
        known = ("measured with", "lacks", "operators")
        if not isinstance(table, dict) or not all(
            isinstance(table.get(name), dict) for name in known
        ):
            raise ValueError(f"expected a JSON object of objects {', '.join(known)}")
        about = table["measured with"]
        facts = [about.get(name) for name in ("ep", "vendor", "version")]
        if not _is_texts(facts):
            raise ValueError("'measured with' does not say which EP, vendor, version")
        options = about.get("options", {})
        if not isinstance(options, dict) or not _is_texts([*options.values()]):
            raise ValueError("'options' of 'measured with' is no object of texts")
        if not all(isinstance(why, str) for why in table["lacks"].values()):
            raise ValueError("'lacks' does not say in words why")
        for name, entry in table["operators"].items():
            _check_entry(name, entry)
        ep_name, vendor, version = facts
        # the reason says of which engine
        operators = AllowList(table["operators"], "it", table["lacks"])
        bits = table.get("int64 bits", 64)
        if bits not in (32, 64):
            raise ValueError(f"'int64 bits' is {bits!r}; expected 32 or 64")
        looks = table.get("looks at indices", True)
        if not isinstance(looks, bool):
            raise ValueError(f"'looks at indices' is {looks!r}; expected true or false")
        return cls(ep_name, vendor, version, operators, bits, looks, options)


def _check_entry(name: str, entry: object) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"the entry of {name} is no object")
    for kind, words in entry.items():
        if kind == "defaults":
            right = isinstance(words, dict)
        elif kind == "refused":
            right = isinstance(words, list) and all(
                _is_texts(rule) and rule for rule in words
            )
        else:
            right = _is_texts(words)
        if not right:
            raise ValueError(f"{kind!r} of {name} is {words!r}")


def _is_texts(words: object) -> bool:
    return isinstance(words, list) and all(isinstance(word, str) for word in words)


@functools.cache
def _shipped() -> tuple[Measured, ...]:
    folder = resources.files("onnxplug_native").joinpath("operators")
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return tuple(
        Measured.parse(file.read_bytes())
        for file in files
        if file.name.endswith(".json")
    )


def measured(ep_name: str, vendor: str) -> Measured | None:
    """What was measured of a library, of whichever version; ``None``: nothing."""
    for each in _shipped():
        if (each.ep, each.vendor) == (ep_name, vendor):
            return each
    return None


def choose_list(
    ep_name: str, vendor: str, options: Mapping[str, ep.OptionValue]
) -> Measured | None:
    """The list that *options* ask for.

    Raises:
        OptionError: an option of the host is unknown, the file is no list or one of
            another EP, or both options are set.
    """
    for name in options:
        if name.startswith(PREFIX) and name not in OPTIONS:
            raise ep.OptionError(
                f"{ep_name} has no option {name!r}; those of the host are "
                f"{', '.join(OPTIONS)}, and the library is given no name that begins "
                f"with {PREFIX!r}"
            )
    path = str(options.get(_LIST, ""))
    if options.get(_TRUST, False):
        if path:
            raise ep.OptionError(
                f"{_TRUST} of {ep_name} is set, and {_LIST} is {path!r}; a library "
                "that is trusted has no list: leave one of them out"
            )
        return None
    found = _read(ep_name, path) if path else measured(ep_name, vendor)
    if found is not None and options.get(_FITS, False):
        found = found._replace(int64_bits=64)
    if found is not None and options.get(_WITHIN, False):
        found = found._replace(looks_at_indices=True)
    return found


def _read(ep_name: str, path: str) -> Measured:
    try:
        found = Measured.parse(read_file(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ep.OptionError(
            f"{_LIST} of {ep_name} is {path!r}, which is no allow-list: {error}; "
            "tools/measure_operators.py of onnxplug-native writes them"
        ) from error
    if found.ep != ep_name:
        raise ep.OptionError(
            f"{_LIST} of {ep_name} is {path!r}, in which {found.ep} was measured"
        )
    return found


class Judge:
    """Tells which nodes a library of some version may have.

    Args:
        who: the library, for reasons.
        version: its version.
        measured: what is known of it.
    """

    def __init__(self, who: str, version: str, measured: Measured | None) -> None:
        self._measured = measured
        self._who = who
        if measured is not None:
            self._who += f", measured in version {measured.version}"
            if measured.version != version:
                self._who += f" (this is {version})"

    def refusals(self, graph: ep.Graph, taken: Collection[int]) -> dict[int, ep.Reason]:
        """Why the library is not to have nodes, although it has *taken* them.

        A node with bodies is refused for what is in them.  Of the operators of other
        domains nothing was measured.

        Args:
            taken: indices.
        """
        return {
            index: ep.Reason(reason.code, f"{self._who}: {where}{reason.detail}")
            for index, where, reason in self._wrong(graph, taken)
        }

    def _wrong(
        self, graph: ep.Graph, taken: Collection[int]
    ) -> Iterator[tuple[int, str, ep.Reason]]:
        """Indices of nodes, where in their bodies something is wrong, and what."""
        if self._measured is None:
            return
        ranges = None
        if self._measured.int64_bits == 32:
            ranges = Ranges(graph, self._measured.ep, _FITS)
        for node in graph.nodes:
            if node.index in taken and node.subgraphs:
                yield from itertools.islice(self._around(node), 1)
            elif node.index in taken and node.domain in ("", "ai.onnx"):
                reason = self._measured.operators.check(graph, node)
                if reason is None and ranges is not None:
                    reason = ranges.check(node)
                if reason is None and not self._measured.looks_at_indices:
                    reason = unchecked(graph, node, _WITHIN)
                if reason is not None:
                    yield node.index, "", reason
            if ranges is not None:
                ranges.follow(node)

    def _around(self, node: ep.Node) -> Iterator[tuple[int, str, ep.Reason]]:
        """What is wrong with a node that has bodies, which the host can run, or in
        them."""
        known = self._measured
        if known is not None and node.op_type not in known.operators.operators:
            detail = f"{node.op_type} was not seen to be right in it, bodies and all"
            yield node.index, "", ep.Reason(ep.RefusalCode.OP, detail)
        yield from self._inside(node)

    def _inside(self, node: ep.Node) -> Iterator[tuple[int, str, ep.Reason]]:
        for body in node.subgraphs.values():
            for index, where, reason in self._wrong(body, range(len(body.nodes))):
                inner = describe(body.nodes[index])
                yield node.index, f"{inner} in its body: {where}", reason
