"""Options of EPs that change while a session lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnxplug.errors import OptionError
from onnxplug.guard import blaming

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel


def set_dynamic_options(
    built: Sequence[BuiltModel], options: Mapping[str, str]
) -> None:
    """Give *options* to the EPs of what a session has built that take any.

    Raises:
        OptionError: there is none, or one that is no text, or no EP takes any, or one
            does not take these.
    """
    if not options:
        raise OptionError("no dynamic options are given; expected one at least")
    for key, value in options.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise OptionError(
                f"the dynamic option {key!r} is to be {value!r}; expected two texts"
            )
    chosen = [each for model in built for each in model.chosen]
    taking = [each for each in chosen if each.provider.dynamic_options is not None]
    if not taking:
        names = ", ".join(dict.fromkeys(each.name for each in chosen))
        raise OptionError(
            f"{', '.join(options)} cannot be set while the session lives: of its EPs "
            f"none has such options ({names}); set them when it is made"
        )
    for each in taking:
        taker = each.provider.dynamic_options
        assert taker is not None
        with blaming(each.name, "run", "DynamicOptions.set"):
            taker.set(options)
