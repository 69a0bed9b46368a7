"""What environment variables say about plugins; the only place that reads them.

Invariant: a value that is not understood is an error, and no variable names code.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from onnxplug.errors import OptionError
from onnxplug.plugins.names import normal_distribution, short_name

AUTOLOAD: Final = "ONNXPLUG_AUTOLOAD"
PLUGINS: Final = "ONNXPLUG_PLUGINS"
BLOCK: Final = "ONNXPLUG_BLOCK"
STRICT: Final = "ONNXPLUG_STRICT"
VERIFY: Final = "ONNXPLUG_VERIFY"

TRUTH: Final = {
    "1": True, "true": True, "yes": True, "on": True,
    "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip
"""What switches may be set to, in variables and in options of EPs."""


class Settings:
    """What is loaded, and from whom.

    Attributes:
        autoload: plugins may be loaded although nobody named their EPs.
        listed: the only EPs whose entry points are used, by short name, each with
            the distribution that must supply it, empty for any; ``None``: all EPs.
        blocked: EPs and distributions that are never used.
        strict: what is wrong with a plugin that nobody named is an error, too.
        verify: what an EP computes on a device is checked before it is used there.
    """

    # a plain class: defining a tuple or dataclass takes longer than reading settings

    def __init__(
        self,
        *,
        autoload: bool,
        listed: Mapping[str, str] | None,
        blocked: frozenset[str],
        strict: bool,
        verify: bool,
    ) -> None:
        self.autoload = autoload
        self.listed = listed
        self.blocked = blocked
        self.strict = strict
        self.verify = verify

    def blocks(self, names: Collection[str]) -> bool:
        """Whether ``ONNXPLUG_BLOCK`` has one of *names*."""
        return not self.blocked.isdisjoint(names)

    def raise_if_strict(self, errors: Sequence[Exception]) -> None:
        """Raise what is wrong with plugins if that is an error.

        Raises:
            ExceptionGroup: there are *errors*, and ``ONNXPLUG_STRICT`` is set.
        """
        if errors and self.strict:
            raise ExceptionGroup(f"{STRICT} is set, and plugins are broken", errors)


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in *environment*; ``None``: the process's own.

    Raises:
        OptionError: a variable has a value that is not understood.
    """
    environment = os.environ if environment is None else environment
    return Settings(
        autoload=truth(environment, AUTOLOAD, default=True),
        listed=_pins(environment),
        blocked=frozenset(_blocked(environment)),
        strict=truth(environment, STRICT, default=False),
        verify=truth(environment, VERIFY, default=True),
    )


def truth(environment: Mapping[str, str], variable: str, *, default: bool) -> bool:
    """What the switch *variable* says.

    Raises:
        OptionError: its value is not understood.
    """
    value = environment.get(variable)
    if value is None:
        return default
    truth = TRUTH.get(value.strip().lower())
    if truth is None:
        raise OptionError(
            f"{variable} is {value!r}; expected one of {', '.join(TRUTH)}"
        )
    return truth


def _items(environment: Mapping[str, str], variable: str) -> list[str] | None:
    value = environment.get(variable)
    if value is None:
        return None
    items = [item.strip().lower() for item in value.split(",")]
    if not all(items):
        what = "has an empty item" if value.strip() else "is empty"
        raise OptionError(
            f"{variable} is {value!r}, which {what}; expected names of EPs separated "
            "by single commas, or the variable not set at all"
        )
    return items


def _pins(environment: Mapping[str, str]) -> Mapping[str, str] | None:
    items = _items(environment, PLUGINS)
    if items is None:
        return None
    listed: dict[str, str] = {}
    for item in items:
        name, at, distribution = (part.strip() for part in item.partition("@"))
        if not name or (at and not distribution) or "@" in distribution:
            raise OptionError(
                f"{PLUGINS} is {environment[PLUGINS]!r}, and {item!r} in it is no "
                "name of an EP; expected name, or name@distribution"
            )
        supplier = normal_distribution(distribution)
        if listed.setdefault(short_name(name), supplier) != supplier:
            raise OptionError(
                f"{PLUGINS} is {environment[PLUGINS]!r}, which lists {name!r} twice "
                "with different suppliers; expected each EP once"
            )
    return listed


def _blocked(environment: Mapping[str, str]) -> list[str]:
    items = _items(environment, BLOCK) or []
    for item in items:
        if "@" in item:
            raise OptionError(
                f"{BLOCK} is {environment[BLOCK]!r}, and {item!r} in it is no name of "
                f"an EP; only {PLUGINS} takes name@distribution"
            )
    # an item is an EP's name or a distribution's, and those are compared differently
    return [*map(short_name, items), *map(normal_distribution, items)]
