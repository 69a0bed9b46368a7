"""What a new EP and its distribution are called, and that the names can be had."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.util import find_spec
from typing import Final

from onnxplug.authoring.record import Record
from onnxplug_cli.failure import CommandFailed, UsageError

_SUFFIX: Final = "ExecutionProvider"

_DISTRIBUTION: Final = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII | re.I)
"""The names that PEP 508 allows."""

_EP: Final = re.compile(rf"[A-Z][A-Za-z0-9]*{_SUFFIX}", re.ASCII)

_OF_TESTS: Final = frozenset({"conftest", "tests"})
"""Modules of the distribution's own tests."""


class Names(Record):
    """The names of a new EP.

    Attributes:
        distribution: as PEP 503 normalises it, ``acme-ep``.
        module: of its package, ``acme_ep``.
        ep: ``AcmeExecutionProvider``.
    """

    distribution: str
    module: str
    ep: str

    @property
    def stem(self) -> str:
        """What names of classes begin with, ``Acme``."""
        return self.ep.removesuffix(_SUFFIX)

    @property
    def short(self) -> str:
        """How users call the EP, ``acme``."""
        from onnxplug.plugins.names import short_name

        return short_name(self.ep)


def names_of(distribution: str, ep: str | None = None) -> Names:
    """The names that follow from a distribution's, and of *ep* if it is given.

    Raises:
        UsageError: one of them is no name of its kind.
    """
    if not _DISTRIBUTION.fullmatch(distribution):
        raise UsageError(
            f"{distribution!r} is no name of a distribution; write letters and digits "
            "of ASCII, parted by hyphens: acme-ep"
        )
    normal = re.sub(r"[-_.]+", "-", distribution).lower()
    if distribution != normal:
        raise UsageError(
            f"package indexes call {distribution!r} {normal!r} (PEP 503); write that"
        )
    module = normal.replace("-", "_")
    if not module.isidentifier() or keyword.iskeyword(module):
        raise UsageError(
            f"the module of {normal!r} would be {module!r}, which is no name of "
            "Python's; let the name begin with a letter, and be no keyword"
        )
    if module in sys.stdlib_module_names | _OF_TESTS:
        raise UsageError(
            f"the module of {normal!r} would hide another {module!r}; write another "
            f"name, such as '{normal}-ep'"
        )
    return Names(normal, module, _ep_of(module) if ep is None else _checked(ep))


def _ep_of(module: str) -> str:
    """``AcmeExecutionProvider`` of ``acme``, ``acme_ep`` or ``onnxplug_acme``."""
    words = module.split("_")
    if words[0] == "onnxplug":
        del words[0]
    if words[-1:] == ["ep"]:
        del words[-1]
    ep = "".join(word.capitalize() for word in words) + _SUFFIX
    if not words or not _EP.fullmatch(ep):
        raise UsageError(
            f"no EP's name follows from {module!r}; say it: --ep-name Acme{_SUFFIX}"
        )
    return ep


def _checked(ep: str) -> str:
    if not _EP.fullmatch(ep) or ep == _SUFFIX:
        raise UsageError(
            f"{ep!r} is no name of an EP; write a capital, letters and digits of "
            f"ASCII, and {_SUFFIX}: Acme{_SUFFIX}"
        )
    return ep


def require_new(names: Names) -> None:
    """See that no other module or EP that is installed has the names.

    Raises:
        CommandFailed: one has.
    """
    from onnxplug.ep import HOST
    from onnxplug.plugins import registry
    from onnxplug.plugins.names import short_name

    if names.short == HOST.space:
        raise CommandFailed(
            f"users would call {names.ep} {names.short!r}, which is what onnxplug "
            "calls itself; write another name by --ep-name"
        )
    for record in registry.records():
        if short_name(record.name) == names.short:
            raise CommandFailed(
                f"{record.name} is known already, which users call "
                f"{names.short!r}, too; write another name by --ep-name"
            )
    if find_spec(names.module) is not None:
        raise CommandFailed(
            f"a module {names.module!r} is installed already, which that of "
            f"{names.distribution!r} would hide; write another name"
        )
