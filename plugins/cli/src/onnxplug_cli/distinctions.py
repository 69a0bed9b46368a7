"""What tells pairs of an EP and hardware apart that are else shown alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice


def _kind_and_product(pair: EpDevice) -> object:
    return pair.device.type, pair.device.metadata.get("Description", "")


def distinctions(
    pairs: Sequence[EpDevice], shown: Callable[[EpDevice], object] = _kind_and_product
) -> list[str]:
    """For each of *pairs* the facts and options that set it apart, in words; empty
    where no other of its EP is shown like it.

    Pairs that differ in nothing are numbered.

    Args:
        shown: what else is shown of a pair.
    """
    keys = [(pair.ep_name, shown(pair)) for pair in pairs]
    found = []
    for number, (pair, key) in enumerate(zip(pairs, keys, strict=True)):
        alike = [place for place, other in enumerate(keys) if other == key]
        group = [pairs[place] for place in alike]
        text = _told(pair, group)
        if len(group) > 1 and [_told(each, group) for each in group].count(text) > 1:
            text = f"{text} #{alike.index(number) + 1}".lstrip()
        found.append(text)
    return found


def _told(pair: EpDevice, alike: Sequence[EpDevice]) -> str:
    facts = _facts(pair)
    return ", ".join(
        f"{key}={value}"
        for key, value in facts.items()
        if any(_facts(other).get(key) != value for other in alike)
    )


def _facts(pair: EpDevice) -> Mapping[str, str]:
    return {**pair.device.metadata, **pair.metadata, **pair.default_options}
