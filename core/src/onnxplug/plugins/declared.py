"""What a factory declares of itself, checked when its plugin is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from onnxplug.ep import Domain, EpFactory, Option


def spi_version_of(supplied: EpFactory | Domain) -> tuple[int, int]:
    """The SPI that *supplied* was written for.

    Raises:
        TypeError: it says that in another form than two numbers.
    """
    version: object = getattr(supplied, "spi_version", None)
    match version:
        case (int(major), int(minor)):
            return major, minor
    raise TypeError(
        f"spi_version of {supplied.name} is {version!r}; expected two numbers, such as "
        "(0, 3)"
    )


def check_declared(factory: EpFactory) -> None:
    """Check the texts, the options and the hardware that *factory* declares.

    Raises:
        TypeError: one is of another type.
        ValueError: an option does not accept its own default.
    """
    from onnxplug.ep import DeviceType, Option

    for what in ("name", "vendor", "version"):
        text: object = getattr(factory, what)
        if not isinstance(text, str):
            raise TypeError(f"{what} of {factory.name} is {text!r}; expected a text")
    options: object = factory.options
    if not isinstance(options, Mapping):
        raise TypeError(
            f"options of {factory.name} are {options!r}; expected a mapping of names "
            "to Option"
        )
    for name, option in options.items():
        if not isinstance(name, str) or not isinstance(option, Option):
            raise TypeError(
                f"options of {factory.name} have {name!r}: {option!r}; expected a name "
                "and an Option"
            )
        _check_option(f"option {name!r} of {factory.name}", option)
    tried: object = factory.tried_on
    if tried is not None and not (
        is_text_table(tried) and set(DeviceType).issuperset(tried)
    ):
        raise TypeError(
            f"tried_on of {factory.name} is {tried!r}; expected None, or a mapping of "
            "DeviceType to texts"
        )


def check_domain(domain: Domain) -> None:
    """Check what *domain* declares of its operators.

    Raises:
        TypeError: something is of another type than it should be.
        ValueError: one version of an operator is there twice.
    """
    from onnxplug.ep import Operator

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
