"""Compares the SPI with a released one, as ``snapshot.py`` writes both.

What plugins rely on may not go or change within a major version.  What is added is
fine, unless plugins that do not know of it would have to supply it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class Entry:
    """A public name.

    Attributes:
        head: the line that tells what it is.
        members: the lines below it, by name, in order.
    """

    head: str
    members: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """``class``, ``enum``, ``protocol``, ``dataclass``, ``def``, ``hook`` or
        ``value``."""
        if self.head.startswith(("def ", "hook ")):
            return self.head.split()[0]
        found = re.match(
            r"(?:frozen )?(class|protocol|dataclass) \w+\((.*)\)", self.head
        )
        if found is None:
            return "value"
        return "enum" if "Enum" in found[2] else found[1]

    @property
    def is_implemented(self) -> bool:
        """Whether plugins define its methods, and the host calls them."""
        return self.kind == "class" or "__call__" in self.members


@dataclass
class Contract:
    """A snapshot, read.

    Attributes:
        version: of the SPI.
        entries: the public names and hooks.
        deprecated: what warns, as ``Name`` or ``Class.member``.
    """

    version: tuple[int, int]
    entries: Mapping[str, Entry]
    deprecated: frozenset[str]


def read(text: str) -> Contract:
    """The contract that a snapshot tells."""
    first, *lines = text.splitlines()
    major, minor = re.findall(r"\d+", first)
    entries: dict[str, Entry] = {}
    deprecated = set()
    entry = Entry("")
    for line in filter(None, lines):
        if line.startswith("  "):
            entry.members[_name(line.strip())] = line.strip()
        elif line.startswith("deprecated "):
            deprecated.add(line.split()[1].rstrip(":"))
        else:
            entry = entries[_name(line)] = Entry(line)
    return Contract((int(major), int(minor)), entries, frozenset(deprecated))


def _name(line: str) -> str:
    """The name that a line tells of."""
    bare = re.sub(r"^((@\w+|frozen|class|protocol|dataclass|def|hook) )+", "", line)
    found = re.match(r"\*?(\w+)", bare)
    assert found, line
    return found[1]


def breaks(released: Contract, present: Contract) -> list[str]:
    """What a plugin written for *released* cannot rely on any more, in words."""
    if present.version[0] > released.version[0]:
        return list(_removed_at_once(released, present))
    found: list[str] = []
    for name, old in released.entries.items():
        new = present.entries.get(name)
        if new is None:
            found.append(f"{name} is gone")
        elif name != "SPI_VERSION":
            found += _of_entry(name, old, new)
    return found


def _removed_at_once(released: Contract, present: Contract) -> Iterator[str]:
    """What a new major version does not have though it never warned."""
    if released.version[0] == 0:
        return
    for name, old in released.entries.items():
        new = present.entries.get(name)
        gone = [
            f"{name}.{each}" for each in old.members if new and each not in new.members
        ]
        for each in gone if new else [name]:
            if each not in released.deprecated:
                version = _text(released.version)
                yield f"{each} is gone, and did not warn in SPI {version}"


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _of_entry(name: str, old: Entry, new: Entry) -> Iterator[str]:
    if old.kind in ("def", "hook"):
        if not _accepts(old.head, new.head, implemented=False):
            yield f"{name} is called otherwise: {old.head} → {new.head}"
        return
    if old.head != new.head:
        yield f"{name} is something else: {old.head} → {new.head}"
        return
    for member, line in old.members.items():
        if member not in new.members:
            yield f"{name}.{member} is gone"
        elif not _agrees(old, line, new.members[member]):
            yield f"{name}.{member} has changed: {line} → {new.members[member]}"
    yield from _asked_for(name, old, new)
    if _positional(new)[: len(_positional(old))] != _positional(old):
        yield f"{name} has its fields in another order"


def _positional(entry: Entry) -> list[str]:
    """The fields of a dataclass that may be given by position."""
    if entry.kind != "dataclass":
        return []
    return [
        name
        for name, line in entry.members.items()
        if not line.startswith(("*", "@", "def "))
    ]


def _asked_for(name: str, old: Entry, new: Entry) -> Iterator[str]:
    """What has been added that plugins would have to supply."""
    for member in new.members.keys() - old.members.keys():
        line = new.members[member]
        if "@abstract " in line:
            yield f"{name}.{member} is new, and EPs have to define it: {line}"
        is_field = old.kind == "dataclass" and "def " not in line
        if is_field and " = " not in line:
            yield f"{name}.{member} is new, and has no default: {line}"


def _agrees(entry: Entry, old: str, new: str) -> bool:
    """Whether a member is what it was, for who relies on it."""
    if "def " in old and "def " in new:
        if new.replace("@abstract ", "") == old.replace("@abstract ", ""):
            return "@abstract " in old or "@abstract " not in new
        made = " __init__" in old
        return _accepts(old, new, implemented=entry.is_implemented and not made)
    # a field may get a default
    return new == old or (new.startswith(f"{old} = ") and entry.kind == "dataclass")


def _accepts(old: str, new: str, *, implemented: bool) -> bool:
    """Whether who calls *old* may call *new*; if plugins define it, it is the same."""
    if implemented or old == new:
        return old == new
    (before, ours), (after, theirs) = map(_signature, (old, new))
    if before != after:
        return False
    added = [each for each in theirs if each not in ours]
    kept = [each for each in theirs if each in ours]
    # a hook gives an implementation what that asks for
    if not old.startswith("hook ") and not all(each.default for each in added):
        return False
    by_position = [each for each in ours if each.kind != "keyword"]
    return kept == ours and theirs[: len(by_position)] == by_position


class Parameter(NamedTuple):
    """A parameter, as its source has it; the default is empty where there is none."""

    kind: str
    name: str
    type: str
    default: str


def _signature(line: str) -> tuple[tuple[str, str], list[Parameter]]:
    """What stands before and after the parameters of a function, and these."""
    start, _, rest = line.partition("def ")
    (function,) = ast.parse(f"def {rest}: ...").body
    assert isinstance(function, ast.FunctionDef)
    found = function.args
    positional = [
        *(("position", each) for each in found.posonlyargs),
        *(("either", each) for each in found.args),
    ]
    without = [None] * (len(positional) - len(found.defaults))
    keywords = [("keyword", each) for each in found.kwonlyargs]
    rows = zip(
        [*positional, *keywords],
        [*without, *found.defaults, *found.kw_defaults],
        strict=True,
    )
    return (start, _text_of(function.returns)), [
        Parameter(kind, each.arg, _text_of(each.annotation), _text_of(default))
        for (kind, each), default in rows
    ]


def _text_of(node: ast.AST | None) -> str:
    return "" if node is None else ast.unparse(node)
