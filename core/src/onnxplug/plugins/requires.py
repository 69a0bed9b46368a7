"""Whether this onnxplug is one that a plugin's distribution says it needs.

Only what is certain counts as unmet: requirements with markers or addresses, and
versions that are not plain release numbers, are left to the installer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from onnxplug.errors import PluginIncompatible
from onnxplug.plugins.names import normal_distribution

if TYPE_CHECKING:
    from onnxplug.plugins.metadata import FoundPlugin

_Release: TypeAlias = tuple[int, ...]

# the longer ones first: "<" begins "<="
_OPERATORS: Final = ("===", ">=", "<=", "==", "~=", "!=", ">", "<")


def check_requirements(plugin: FoundPlugin) -> None:
    """Accept a plugin whose distribution this onnxplug will do for.

    Raises:
        PluginIncompatible: it needs another one.
    """
    from onnxplug import __version__

    unmet = unmet_requirement(plugin.requirements, "onnxplug", __version__)
    if unmet:
        raise PluginIncompatible(
            f"{plugin.distribution} needs {unmet!r}, and this is onnxplug "
            f"{__version__}; install versions of the two that fit",
            plugin=plugin.name,
        )


def unmet_requirement(requirements: Iterable[str], name: str, version: str) -> str:
    """The first of *requirements* that distribution *name* at *version* does not meet.

    Args:
        requirements: values of ``Requires-Dist``.

    Returns:
        the requirement as it was written; empty when all are met.
    """
    have = _release(version)
    if have is None:
        return ""
    for requirement in requirements:
        if any(not _meets(have, one) for one in _specifiers(requirement, name)):
            return requirement
    return ""


def _specifiers(requirement: str, name: str) -> list[str]:
    """The version specifiers of *requirement* if it is one on *name*."""
    end = 0
    while end < len(requirement) and (
        requirement[end].isalnum() or requirement[end] in "-_."
    ):
        end += 1
    rest = requirement[end:].strip()
    if normal_distribution(requirement[:end]) != name or ";" in rest or "@" in rest:
        return []
    if rest.startswith("["):
        rest = rest.partition("]")[2].strip()
    return [part.strip() for part in rest.strip("()").split(",") if part.strip()]


def _meets(have: _Release, specifier: str) -> bool:
    operator = next((o for o in _OPERATORS if specifier.startswith(o)), "")
    text = specifier[len(operator) :].strip()
    series = text.endswith(".*")
    wanted = _release(text.removesuffix(".*"))
    if wanted is None or (series and operator not in ("==", "!=")):
        return True
    width = max(len(have), len(wanted))
    ours, theirs = _padded(have, width), _padded(wanted, width)
    same = (_padded(have, len(wanted))[: len(wanted)] if series else ours) == (
        wanted if series else theirs
    )
    match operator:
        case ">=":
            return ours >= theirs
        case "<=":
            return ours <= theirs
        case ">":
            return ours > theirs
        case "<":
            return ours < theirs
        case "==":
            return same
        case "!=":
            return not same
        case "~=" if len(wanted) > 1:
            return ours >= theirs and ours[: len(wanted) - 1] == wanted[:-1]
    return True


def _release(version: str) -> _Release | None:
    parts = version.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return tuple(int(part) for part in parts)


def _padded(release: _Release, width: int) -> _Release:
    return release + (0,) * (width - len(release))
