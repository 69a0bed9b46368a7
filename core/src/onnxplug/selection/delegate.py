"""ONNX Runtime's selection delegate, a function of four arguments, as a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from onnxplug.ep import EpDevice, ModelInfo
from onnxplug.errors import OptionError
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.selection.policy import failure

MAX_SELECTIONS: Final = 8
"""How many pairs a delegate may select."""

Delegate = Callable[[list[EpDevice], dict[str, str], dict[str, str], int], Any]
"""``(ep_devices, model_metadata, runtime_metadata, max_selections)`` to a list."""


class DelegatePolicy:
    """A policy that asks a delegate; its failures are in ONNX Runtime's words.

    Attributes:
        delegate: the function.
    """

    def __init__(self, delegate: Delegate) -> None:
        self.delegate = delegate

    def __call__(
        self, ep_devices: Sequence[EpDevice], model_info: ModelInfo
    ) -> Sequence[EpDevice]:
        try:
            selected = list(
                self.delegate(
                    list(ep_devices), _metadata(model_info), {}, MAX_SELECTIONS
                )
            )
        except FAILURES as error:  # of the user's function
            raise_interruption(error)
            raise failure(
                f"EP selection delegate failed: {type(error).__name__}: {error}"
            ) from error
        if not selected:
            raise failure("EP selection delegate did not select anything.")
        if len(selected) > MAX_SELECTIONS:
            raise failure(
                "EP selection delegate selected too many EP devices "
                f"({len(selected)}). The limit is {MAX_SELECTIONS} EP devices."
            )
        return selected

    def __repr__(self) -> str:
        return f"adapt_delegate({self.delegate!r})"


def adapt_delegate(delegate: Delegate) -> DelegatePolicy:
    """*delegate* as a policy.

    Raises:
        OptionError: it is not callable.
    """
    if not callable(delegate):
        raise OptionError(
            f"the selection delegate is {delegate!r}; expected a function of "
            "(ep_devices, model_metadata, runtime_metadata, max_selections)"
        )
    return DelegatePolicy(delegate)


def _metadata(model_info: ModelInfo) -> dict[str, str]:
    """All of it as text under ONNX Runtime's names, custom entries last."""
    facts = model_info._asdict()
    custom = facts.pop("metadata")
    return {name: str(value) for name, value in facts.items()} | dict(custom)
