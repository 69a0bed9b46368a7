"""What a factory declares of itself, checked when its plugin is loaded."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeGuard

from onnxplug.ep import DeviceType, OpenOptions, Option
from onnxplug.plugins.versions import warn_deprecated

if TYPE_CHECKING:
    from onnxplug.ep import Domain, EpFactory


_ABILITIES: Final = {
    "EpFactory": {
        "memory_spaces": "MemorySpaces",
        "verification": "Verification",
        "compatibility": "CompatibilityCheck",
    },
    "ExecutionProvider": {
        "serialiser": "Serialiser",
        "specialiser": "Specialiser",
        "capture": "GraphCapture",
        "cost_model": "CostModel",
    },
}
"""The abilities of an EP, and of which class of ``onnxplug.ep`` each is."""


def check_declared(factory: EpFactory) -> None:
    """Check the texts, the options, the hardware and the abilities of *factory*.

    Raises:
        TypeError: one is of another type.
        ValueError: an option does not accept its own default, or is both an option and
            a config entry.
    """
    for what in ("name", "vendor", "version"):
        text: object = getattr(factory, what)
        if not isinstance(text, str):
            raise TypeError(f"{what} of {factory.name} is {text!r}; expected a text")
    for noun, plural, declared in (
        ("option", "options", factory.options),
        ("config entry", "config_entries", factory.config_entries),
        ("run option", "run_options", factory.run_options),
    ):
        _check_options(factory.name, noun, plural, declared)
    both = all_names(factory.options).keys() & all_names(factory.config_entries)
    if both:
        raise ValueError(
            f"{factory.name} has {min(both)!r} both among its options and its "
            "config_entries; a session config entry sets either, so leave out the "
            "latter"
        )
    _check_tried_on(factory)
    check_abilities(factory, "EpFactory", factory.name)
    _check_verification(factory)


def _check_options(ep: str, noun: str, plural: str, declared: object) -> None:
    if not isinstance(declared, Mapping):
        raise TypeError(
            f"{plural} of {ep} are {declared!r}; expected a mapping of names to Option"
        )
    for name, option in declared.items():
        if not isinstance(name, str) or not isinstance(option, Option):
            raise TypeError(
                f"{plural} of {ep} have {name!r}: {option!r}; expected a name and an "
                "Option"
            )
        _check_option(f"{noun} {name!r} of {ep}", option)


def all_names(declared: Mapping[str, Option]) -> dict[str, str]:
    """The name of an option by each name that it may be written by."""
    names = {name: name for name in declared}
    for name, option in declared.items():
        names |= dict.fromkeys(option.aliases, name)
    return names


def own_name(declared: Mapping[str, Option], key: str) -> str | None:
    """The name of the option that *key* is a name of; ``None`` if it is of none."""
    name = all_names(declared).get(key)
    return key if name is None and isinstance(declared, OpenOptions) else name


def _check_tried_on(factory: EpFactory) -> None:
    tried: object = factory.tried_on
    if tried is not None and not (
        is_text_table(tried) and set(DeviceType).issuperset(tried)
    ):
        raise TypeError(
            f"tried_on of {factory.name} is {tried!r}; expected None, or a mapping of "
            "DeviceType to texts"
        )


def check_abilities(made: object, kind: str, ep: str) -> None:
    """Check the abilities of what an EP supplies, and warn of what is deprecated.

    Args:
        kind: its base, by the name in ``onnxplug.ep``.

    Raises:
        TypeError: one is of another class.
    """
    from onnxplug import ep as spi

    for name, ability in _ABILITIES[kind].items():
        found: object = getattr(made, name)
        if found is None:
            continue
        if not isinstance(found, getattr(spi, ability)):
            raise TypeError(
                f"{name} of {ep} is {found!r}; expected None, or an "
                f"onnxplug.ep.{ability}"
            )
        warn_deprecated(found, ability)


def _check_verification(factory: EpFactory) -> None:
    if factory.verification is None:
        return
    seconds: object = factory.verification.compile_seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(
            f"verification.compile_seconds of {factory.name} is {seconds!r}; expected "
            "a number"
        )
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(
            f"verification.compile_seconds of {factory.name} is {seconds!r}; expected "
            "more than 0, and no more than a thread can wait"
        )


def check_domain(domain: Domain) -> None:
    """Check what *domain* declares of its operators.

    Raises:
        TypeError: something is of another type than it should be.
        ValueError: one version of an operator is there twice, or has a trait that no
            operator has.
    """
    from onnxplug.ep.domain import TRAITS, Operator

    seen: set[tuple[str, int]] = set()
    for operator in domain.operators:
        if not isinstance(operator, Operator):
            raise TypeError(
                f"operators of the domain {domain.name} have {operator!r}; expected "
                "onnxplug.ep.Operator"
            )
        key = operator.op_type, operator.since
        if not isinstance(key[0], str) or not isinstance(key[1], int):
            raise TypeError(
                f"the domain {domain.name} has {operator!r}; expected a text for "
                "op_type, and a whole number for since"
            )
        if not TRAITS.issuperset(operator.traits):
            raise ValueError(
                f"the domain {domain.name} has {key[0]} with the traits "
                f"{operator.traits!r}; expected some of {', '.join(sorted(TRAITS))}"
            )
        if key in seen:
            raise ValueError(
                f"the domain {domain.name} has {key[0]} since {key[1]} twice"
            )
        seen.add(key)


def _check_option(name: str, option: Option) -> None:
    kind = type(option.default)
    if kind not in (bool, int, float, str):
        raise TypeError(
            f"{name} has the default {option.default!r}; expected a bool, int, float "
            "or str"
        )
    if any(type(choice) is not kind for choice in option.choices):
        raise TypeError(
            f"{name} has the choices {option.choices!r}; expected values like its "
            f"default {option.default!r}"
        )
    if option.choices and option.default not in option.choices:
        raise ValueError(
            f"{name} has the default {option.default!r}, which is none of its choices "
            f"{option.choices!r}"
        )
    for value, instead in option.substitutes.items():
        if value in option.choices or instead not in option.choices:
            raise ValueError(
                f"{name} has {instead!r} to serve instead of {value!r}; expected one "
                f"of its choices {option.choices!r}, instead of one that is none"
            )
    low, high = option.minimum, option.maximum
    if isinstance(option.default, int | float) and (
        (low is not None and option.default < low)
        or (high is not None and option.default > high)
    ):
        raise ValueError(
            f"{name} has the default {option.default!r}, which is not from {low} to "
            f"{high}"
        )


def is_text_table(value: object) -> TypeGuard[Mapping[str, str]]:
    """Whether *value* is a mapping of texts to texts."""
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(text, str) for key, text in value.items()
    )
