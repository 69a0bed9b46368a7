"""Which nodes of a library are refused: those that it was not seen to compute rightly.

Libraries take nodes that they compute wrongly, and say nothing of it.  For those that
were measured there is an allow-list (:mod:`onnxplug.ep.allow_list`), written by
``tools/measure_operators.py``; others are taken at their word.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Final, NamedTuple

from onnxplug import ep
from onnxplug.ep.allow_list import AllowList
from onnxplug.ep.files import read_file

PREFIX: Final = "onnxplug."
"""What names of options begin with that are the host's, and not the library's."""

_TRUST: Final = "onnxplug.trust_library"
_LIST: Final = "onnxplug.allow_list"

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
}
"""Of the host, for every library."""


class Measured(NamedTuple):
    """What was measured of a library.

    Attributes:
        ep: the name of its EP.
        vendor: who made it.
        version: which version was measured, as the library says it.
        operators: of ONNX's own operators, what was seen to be right.
    """

    ep: str
    vendor: str
    version: str
    operators: AllowList

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
        if not all(isinstance(why, str) for why in table["lacks"].values()):
            raise ValueError("'lacks' does not say in words why")
        for name, entry in table["operators"].items():
            _check_entry(name, entry)
        ep_name, vendor, version = facts
        # the reason says of which engine
        operators = AllowList(table["operators"], "it", table["lacks"])
        return cls(ep_name, vendor, version, operators)


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
    if not path:
        return measured(ep_name, vendor)
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

    def refusal(self, graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
        """Why the library is not to have *node*, although it takes it.

        A node with bodies is refused for what is in them.  Of the operators of other
        domains nothing was measured.
        """
        if self._measured is None:
            return None
        found = self._wrong(graph, node)
        if found is None:
            return None
        where, reason = found
        return ep.Reason(reason.code, f"{self._who}: {where}{reason.detail}")

    def _wrong(self, graph: ep.Graph, node: ep.Node) -> tuple[str, ep.Reason] | None:
        assert self._measured is not None
        if node.subgraphs:
            return next(self._inside(node), None)
        if node.domain not in ("", "ai.onnx"):
            return None
        reason = self._measured.operators.check(graph, node)
        return None if reason is None else ("", reason)

    def _inside(self, node: ep.Node) -> Iterator[tuple[str, ep.Reason]]:
        for body in node.subgraphs.values():
            for inner in body.nodes:
                found = self._wrong(body, inner)
                if found is not None:
                    where, reason = found
                    yield f"{ep.describe(inner)} in its body: {where}", reason
