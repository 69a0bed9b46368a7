"""What is known of a planted mistake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from onnxplug import ep

Group = Literal[
    "operators",
    "claims",
    "memory",
    "time",
    "failure",
    "options",
    "EPContext",
    "specialisation",
    "preferences",
    "costs",
    "profiling",
    "speed",
    "factory",
]

SETS: Final[tuple[tuple[str, ...], ...]] = (
    ("compile_mistakes", "device_mistakes"),
    (
        "second.compile_results",
        "second.compile_runs",
        "second.device_results",
        "second.device_runs",
    ),
    (
        "third.compile_results",
        "third.compile_runs",
        "third.device_results",
        "third.device_runs",
    ),
    (
        "fourth.compile_results",
        "fourth.compile_runs",
        "fourth.device_results",
        "fourth.device_runs",
    ),
    (
        "fifth.compile_results",
        "fifth.compile_runs",
        "fifth.device_results",
        "fifth.device_runs",
    ),
    (
        "sixth.compile_results",
        "sixth.compile_runs",
        "sixth.device_results",
        "sixth.device_runs",
    ),
)
"""The modules of this package that plant the mistakes, by the sets that these were
written in: each was fixed before the kit was tried on it."""

_Factory = TypeVar("_Factory", bound=type[ep.EpFactory])


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One that authors of EPs make.

    Attributes:
        name: of the mistake, in words joined by hyphens.
        group: what of the contract it belongs to.
        breaks: the sentence that it breaks, as the contract has it.
        source: the file that the sentence is in, from the root of the repository.
        finding: what a finding has to say, in words.
        blames: the operators, methods or facts one of which a right finding names.
        factory: makes the EP's factory; its class is to be registered.
    """

    name: str
    group: Group
    breaks: str
    source: str
    finding: str
    blames: tuple[str, ...]
    factory: Callable[[], ep.EpFactory]

    @property
    def set(self) -> int:
        """In which it was written, counted from 1."""
        (found,) = (
            number
            for number, modules in enumerate(SETS, 1)
            if self.factory.__module__.endswith(modules)
        )
        return found

    @property
    def is_of_the_device(self) -> bool:
        """Whether it is in the EP with a device."""
        return self.factory.__module__.rpartition(".")[2].startswith("device_")


MISTAKES: Final[dict[str, Mistake]] = {}
"""All of them, by name."""


def planted(
    name: str,
    group: Group,
    *,
    breaks: str,
    source: str,
    finding: str,
    blames: tuple[str, ...],
) -> Callable[[_Factory], _Factory]:
    """Marks the factory of an EP that has one mistake; the fields are `Mistake`'s."""

    def enter(factory: _Factory) -> _Factory:
        if name in MISTAKES:
            raise ValueError(f"there are two mistakes {name!r}; name one otherwise")
        MISTAKES[name] = Mistake(
            name=name,
            group=group,
            breaks=breaks,
            source=source,
            finding=finding,
            blames=blames,
            factory=factory,
        )
        return factory

    return enter
