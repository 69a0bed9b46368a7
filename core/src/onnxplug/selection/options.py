"""Turns the options that users write into the typed values that an EP declares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from onnxplug.ep import Option, OptionValue
from onnxplug.errors import OptionError, OptionWarning
from onnxplug.plugins.declared import all_names, own_name
from onnxplug.plugins.settings import TRUTH
from onnxplug.strictness import STRICT, Strictness
from onnxplug.suggest import did_you_mean
from onnxplug.warn import warn_user

_WHOLE: Final = (-(2**63), 2**64 - 1)
"""What whole numbers may be: engines have them in 64 bits, with a sign or without."""


def parse_options(
    ep: str,
    declared: Mapping[str, Option],
    given: Mapping[str, Any],
    suggested: Mapping[str, Any] = MappingProxyType({}),
    *,
    noun: str = "option",
    strictness: Strictness = STRICT,
) -> dict[str, OptionValue]:
    """A value for every declared option but those ignored, the given ones converted
    and checked.

    Args:
        suggested: counts where nothing is given, whichever of an option's names each
            is written by.
        noun: what they are, in messages.
        strictness: is told of what is ignored.

    Raises:
        OptionError: an unknown name, an option by two of its names, or a value that the
            option does not accept.
    """
    values: dict[str, OptionValue] = {
        name: option.default for name, option in declared.items() if not option.ignored
    }
    named = by_name(ep, declared, suggested, noun=noun)
    named |= by_name(ep, declared, given, noun=noun)
    for name, value in named.items():
        option = declared[name]
        whose = f"{noun} {name!r} of {ep}"
        parsed = _parse(whose, option, value)
        if option.refused and parsed != option.default:
            raise OptionError(f"{whose} cannot be set: {option.refused}")
        if not option.ignored:
            values[name] = parsed
        elif parsed != option.default:
            strictness.without_effect(f"{whose} has no effect: {option.ignored}")
    return values


def by_name(
    ep: str,
    declared: Mapping[str, Option],
    given: Mapping[str, Any],
    *,
    noun: str = "option",
) -> dict[str, Any]:
    """What is *given* by the options' own names, whatever names it is written by.

    Raises:
        OptionError: an unknown name, or an option by two of its names.
    """
    if not given:
        return {}
    written: dict[str, str] = {}
    for key in given:
        name = own_name(declared, key)
        if name is None:
            near = did_you_mean(key, all_names(declared)) or "."
            raise OptionError(
                f"{ep} has no {noun} {key!r}{near}  "
                f"It has {', '.join(sorted(declared)) or 'none'}."
            )
        if name in written:
            raise OptionError(
                f"{noun} {name!r} of {ep} is given twice, as {written[name]!r} "
                f"({_shown(given[written[name]])}) and as {key!r} "
                f"({_shown(given[key])}), which are one; leave one of them out"
            )
        written[name] = key
    return {name: given[key] for name, key in written.items()}


def _shown(value: object) -> str:
    """A value as a message shows it, of any length."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a whole number of {value.bit_length()} bits"  # repr may refuse
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


_SHOWN: Final = 200
"""How much of a value a message shows, in characters."""


def _parse(whose: str, option: Option, value: Any) -> OptionValue:
    parsed = _convert(option.default, value)
    if parsed is None:
        kind = type(option.default).__name__
        raise OptionError(f"{whose} is {_shown(value)}; expected {kind}")
    if isinstance(parsed, str) and "\0" in parsed:
        raise OptionError(
            f"{whose} is {_shown(value)}; a value has no NUL character, at which "
            "engines end a text"
        )
    if parsed in option.substitutes:
        instead = option.substitutes[parsed]
        warn_user(
            f"{whose} is {_shown(value)}; {instead!r} serves instead", OptionWarning
        )
        return instead
    if option.choices and parsed not in option.choices:
        near = did_you_mean(str(parsed), map(str, option.choices))
        raise OptionError(
            f"{whose} is {_shown(value)}; expected one of "
            f"{', '.join(map(repr, option.choices))}{near}"
        )
    low, high = option.minimum, option.maximum
    if isinstance(parsed, int | float) and not (
        (low is None or parsed >= low) and (high is None or parsed <= high)
    ):
        raise OptionError(
            f"{whose} is {_shown(value)}; expected a number "
            f"{'' if low is None else f'from {low} '}"
            f"{'' if high is None else f'up to {high}'}".rstrip()
        )
    return parsed


def _convert(default: OptionValue, value: Any) -> OptionValue | None:
    """*value* in the type of *default*; ``None`` when it cannot be."""
    plain = _plain(value)
    if plain is None or (isinstance(plain, int) and not _fits(plain)):
        return None
    if isinstance(default, bool):
        if isinstance(plain, str):
            return TRUTH.get(plain.strip().lower())
        return bool(plain) if isinstance(plain, int) and plain in (0, 1) else None
    if isinstance(default, str):
        return str(plain)
    if isinstance(plain, bool):
        return None
    try:
        number = float(plain) if isinstance(default, float) else int(plain)
    except (ValueError, OverflowError):
        return None
    if isinstance(number, int) and not _fits(number):
        return None
    lossless = isinstance(plain, str) or number == plain
    return number if lossless and number == number else None  # NaN is no number


def _plain(value: Any) -> OptionValue | None:
    """*value* as one of Python's own; ``None`` when it is like none of them."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif getattr(value, "ndim", None) == 0:  # one of numpy's
        value = value.item()
    return value if isinstance(value, bool | int | float | str) else None


def _fits(number: int) -> bool:
    return _WHOLE[0] <= number <= _WHOLE[1]
