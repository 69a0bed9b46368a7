"""Makes the commands of a segment for one set of input shapes.

What is known is inferred call by call; calls are grouped; each group records commands.
Values live in buffers and are seen through views, so that transposing, slicing and
reshaping cost nothing until a kernel needs the elements in order.

What was made for other shapes, or for a layer before, is used again where all that
its making asked has the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from onnxplug.authoring.locks import new_lock
from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.ir.recorder import PackedConstants, Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.schedule.common import Common
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.inference import Inferred, Tokens
from onnxplug_compiler.schedule.memo import Memo
from onnxplug_compiler.schedule.planned import Planned
from onnxplug_compiler.schedule.planner import Planner
from onnxplug_compiler.schedule.structure import Latest, Structure, facts_of

MOST_STRUCTURES: Final = 16
"""Structures that a segment keeps."""

MOST_TOKENS: Final = 1 << 14
"""What plans of a segment may tell apart before what the latest ones are not made of is
given up: about the sizes, times the values that have them."""


class Plans(Common):
    """Makes plans of one segment, each from what those before it have in common.

    Safe to use from several threads, which may make the same at the same time.

    Attributes:
        structures: those kept, the one used last first.
        made: how many were made.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        forms: Mapping[Call, StepForm],
        constants: Constants,
        inputs: Sequence[str],
        outputs: Sequence[str],
        tokens: Tokens | None = None,
    ) -> None:
        super().__init__(calls, forms, constants, inputs, outputs, tokens)
        self.structures: list[Structure] = []
        self.made = 0
        self._memos: dict[Hashable, Memo] = {}
        self._few = 0
        self._lock = new_lock()

    def _give_up(self) -> None:
        """Keep only what the latest plans are made of.

        Others may make plans meanwhile: what they look for and do not find, they make.
        """
        latest = [
            structure.latest.inferred
            for structure in self.structures
            if structure.latest is not None
        ]
        self.tokens.keep(latest)
        self.inference.keep(latest)
        for memo in tuple(self._memos.values()):
            memo.clear()
        for structure in self.structures:
            structure.forget_destinations()
        self.copies, self.input_places, self.results = {}, {}, {}
        self._few = len(self.tokens)

    def make(
        self,
        inputs: Sequence[Abstract],
        recorder: Recorder[Target],
        packed: PackedConstants,
        look: Callable[[], None] = lambda: None,
    ) -> Planned:
        """The commands for inputs of these dtypes and shapes, and what they give.

        Args:
            recorder: what the plan is for; packs constants.
            packed: what the session has packed.
            look: called before what is not known yet; it may raise.

        Raises:
            NotCompiled: the array tier has to compute some call.
        """
        if len(self.tokens) - self._few > MOST_TOKENS:
            with self._lock:
                if len(self.tokens) - self._few > MOST_TOKENS:
                    self._give_up()
        return self._made(inputs, recorder, packed, look)

    def _made(
        self,
        inputs: Sequence[Abstract],
        recorder: Recorder[Target],
        packed: PackedConstants,
        look: Callable[[], None],
    ) -> Planned:
        inferred = self.inference.infer(inputs, look)
        structure, latest, changed = self._structure(inferred, recorder.target)
        planner = Planner(self, inferred, structure, recorder, packed, look)
        return planner.make(latest, changed)

    @property
    def notes(self) -> dict[int, str]:
        """What is to be said of nodes, by their index."""
        return {
            node: note
            for structure in reversed(self.structures)
            for node, note in structure.notes.items()
        }

    def forget_latest(self) -> None:
        """Look at all parts of the next plans, as a constant was refused."""
        for structure in self.structures:
            structure.latest = None

    def _structure(
        self, inferred: Inferred, target: Target
    ) -> tuple[Structure, Latest | None, Sequence[int]]:
        """A structure, its latest plan, and the slots of what is not as there."""
        structures = self.structures
        for structure in structures:
            latest, changed = structure.latest, None
            if latest is not None:
                changed = inferred.differing(latest.inferred)
            if structure.holds(inferred.known, inferred.values, changed):
                if structure is not structures[0]:
                    rest = [each for each in structures if each is not structure]
                    self.structures = [structure, *rest]
                return structure, latest, changed or ()
        facts = facts_of(inferred.values, self.slots, self.constants)
        structure = Structure(
            inferred.known,
            self.calls,
            self.forms,
            facts,
            self.outputs,
            self.slots,
            self._memos,
            target,
        )
        self.structures = [structure, *structures][:MOST_STRUCTURES]
        self.made += 1
        return structure, None, ()
