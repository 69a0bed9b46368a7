"""What users may set of an EP, and the values that the host makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from onnxplug.authoring.fact import fact

OptionValue: TypeAlias = bool | int | float | str


@fact()
class Option:
    """An option of an EP, of one of its runs, or a config entry of a session.

    The host parses and validates what users write.

    Whole numbers from -2⁶³ to 2⁶⁴ - 1 are accepted, and NaN is not; infinity is where
    no bound speaks against it.

    Attributes:
        default: the value when the user says nothing; its type is the option's type.
        doc: one sentence: what it does, in which unit.
        choices: the only values accepted; empty for no limit.
        minimum, maximum: inclusive bounds of a number; ``None`` for none.
        aliases: other names by which users may know it.
        compiled_in: what is compiled depends on it: what was serialised with another
            value is not restored.
        substitutes: values that users know from elsewhere, by those of ``choices`` that
            serve instead; setting one warns, and is as if the other were set.
        refused: why this EP cannot do what the option asks for; setting it is an
            error with this text.  For options that users know from elsewhere.
        ignored: as *refused*, where results do not depend on it: setting it warns, and
            the EP is not given it.
    """

    default: OptionValue
    doc: str = ""
    choices: tuple[OptionValue, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    aliases: tuple[str, ...] = ()
    compiled_in: bool = True
    substitutes: Mapping[OptionValue, OptionValue] = field(default_factory=dict)
    refused: str = ""
    ignored: str = ""


class OpenOptions(dict[str, Option]):
    """The options of an EP that takes others than it can name.

    Every name that is not among them is an option, too: a text, which the host hands
    on as the user wrote it.  The EP refuses what it does not know.
    """

    def __missing__(self, name: str) -> Option:
        return Option(default="")
