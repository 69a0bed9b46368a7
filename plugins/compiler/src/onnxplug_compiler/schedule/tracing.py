"""Plans of traced sizes: what they are for all sizes that are like those of one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NoReturn

from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.ir.buffers import Acceptance, Address
from onnxplug_compiler.ir.pieces import Place
from onnxplug_compiler.ir.recorder import Filling, PackedConstants, Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.traced import NotTraced, TracedSize
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.inference import Tokens, numbers
from onnxplug_compiler.schedule.plan import Plans
from onnxplug_compiler.schedule.planned import Planned


class TracedTokens(Tokens):
    """Tokens that tell sizes apart by how they were computed."""

    def __init__(self) -> None:
        super().__init__()
        self._traced: dict[Hashable, Any] = {}

    def form(self, value: Abstract) -> int:
        """The same for the same dtype and sizes that are computed alike."""
        key = value.dtype, _plain(value.shape)
        found: int | None = self._traced.get(key)
        if found is None:
            found = self._traced[key] = next(numbers)
        return found

    def place(self, *key: Any) -> Place:
        """The place that has these attributes, in their order."""
        plain = _plain(key)
        found: Place | None = self._traced.get(plain)
        if found is None:
            found = self._traced[plain] = Place(*key)
        return found

    def check_numbers(self, what: str) -> NoReturn:
        """Refuse what takes nothing but numbers."""
        raise NotTraced(f"{what} takes no traced sizes")


class TracedRecorder(Recorder[Target]):
    """A recorder for which all constants are packed already."""

    def packed(
        self,
        source: View,
        layout: str,
        nbytes: int,
        record: Filling,
        accepts: Acceptance | None = None,
    ) -> Address:
        """Refuse to pack a constant."""
        raise NotTraced(f"a constant is not packed as {layout} yet")


class TracedPlan(Plans):
    """Makes one plan of traced sizes, as :class:`~.plan.Plans` makes those of numbers.

    Args:
        calls, forms, constants, inputs, outputs: as of ``Plans``, which has planned for
            the sizes that are traced.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        forms: Mapping[Call, StepForm],
        constants: Constants,
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        super().__init__(calls, forms, constants, inputs, outputs, TracedTokens())

    def trace(
        self,
        inputs: Sequence[Abstract],
        target: Target,
        packed: PackedConstants,
        look: Callable[[], None],
    ) -> Planned:
        """The commands for inputs of traced sizes, and what they give.

        Args:
            packed: what the session has packed.
            look: called now and then; it may raise.

        Raises:
            NotTraced: what becomes of a size cannot be followed.
            NotCompiled: likewise, as some rule did not take it.
        """
        recorder = TracedRecorder(target, packed)
        planned = self._made(inputs, recorder, packed, look)
        if any(result.content is not None for result in planned.results):
            raise NotTraced("an output follows from sizes")
        return planned


def _plain(key: Any) -> Hashable:
    """A key with the expressions of traced sizes in their place."""
    if type(key) is tuple:
        return tuple([_plain(each) for each in key])
    if type(key) is TracedSize:
        return "traced", key.terms
    hashable: Hashable = key
    return hashable
