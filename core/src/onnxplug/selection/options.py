"""Turns the options that users write into the typed values that an EP declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from onnxplug.ep import Option, OptionValue
from onnxplug.errors import OptionError

_TRUTH: Final = {
    "1": True, "true": True, "yes": True, "on": True,
    "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip


def parse_options(
    ep: str, declared: Mapping[str, Option], given: Mapping[str, Any]
) -> dict[str, OptionValue]:
    """A value for every declared option, those given converted and checked.

    Raises:
        OptionError: an unknown name, or a value that the option does not accept.
    """
    names = {name: name for name in declared}
    for name, option in declared.items():
        names |= dict.fromkeys(option.aliases, name)
    values: dict[str, OptionValue] = {
        name: option.default for name, option in declared.items()
    }
    for written, value in given.items():
        if written not in names:
            raise OptionError(
                f"{ep} has no option {written!r}{_hint(written, names)}  "
                f"Its options: {', '.join(sorted(declared)) or 'none'}."
            )
        name = names[written]
        option = declared[name]
        values[name] = _parse(ep, name, option, value)
        if option.refused and values[name] != option.default:
            raise OptionError(
                f"option {name!r} of {ep} cannot be set: {option.refused}"
            )
    return values


def _parse(ep: str, name: str, option: Option, value: Any) -> OptionValue:
    parsed = _convert(option.default, value)
    if parsed is None:
        kind = type(option.default).__name__
        raise OptionError(f"option {name!r} of {ep} is {value!r}; expected {kind}")
    if option.choices and parsed not in option.choices:
        hint = _hint(str(value), map(str, option.choices))
        raise OptionError(
            f"option {name!r} of {ep} is {value!r}; expected one of "
            f"{', '.join(map(repr, option.choices))}{hint}"
        )
    low, high = option.minimum, option.maximum
    if isinstance(parsed, int | float) and (
        (low is not None and parsed < low) or (high is not None and parsed > high)
    ):
        raise OptionError(
            f"option {name!r} of {ep} is {value!r}; expected a number "
            f"{'' if low is None else f'from {low} '}"
            f"{'' if high is None else f'up to {high}'}".rstrip()
        )
    return parsed


def _convert(default: OptionValue, value: Any) -> OptionValue | None:
    """*value* in the type of *default*; ``None`` when it cannot be."""
    if isinstance(default, bool):
        return _TRUTH.get(str(value).strip().lower())
    if isinstance(default, str):
        return value if isinstance(value, str) else str(value)
    try:
        number = float(value) if isinstance(default, float) else int(value)
    except (TypeError, ValueError):
        return None
    lossless = isinstance(value, str) or number == value
    return number if lossless and not isinstance(value, bool) else None


def _hint(written: str, known: Iterable[str]) -> str:
    # imported here: it takes 2 ms, and most options are right
    import difflib

    near = difflib.get_close_matches(written, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
