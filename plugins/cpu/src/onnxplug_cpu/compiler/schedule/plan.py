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
from onnxplug_cpu.compiler.frontend.call import Abstract, Call
from onnxplug_cpu.compiler.frontend.elementwise import StepForm
from onnxplug_cpu.compiler.ir.buffers import Buffer
from onnxplug_cpu.compiler.ir.pieces import Piece, Place
from onnxplug_cpu.compiler.ir.recorder import PackedConstants, Recorder
from onnxplug_cpu.compiler.ir.target import Target
from onnxplug_cpu.compiler.schedule.constants import Constants
from onnxplug_cpu.compiler.schedule.inference import Inference, Inferred, Tokens
from onnxplug_cpu.compiler.schedule.memo import Memo
from onnxplug_cpu.compiler.schedule.planned import Planned, Result
from onnxplug_cpu.compiler.schedule.planner import Planner
from onnxplug_cpu.compiler.schedule.structure import Latest, Structure, facts_of

MOST_STRUCTURES: Final = 16
"""Structures that a segment keeps."""

MOST_TOKENS: Final = 1 << 14
"""What plans of a segment may tell apart before what the latest ones are not made of is
given up: about the sizes, times the values that have them."""


class Plans:
    """Makes plans of one segment, each from what those before it have in common.

    Safe to use from several threads, which may make the same at the same time.

    Args:
        calls: in topological order.
        forms: the calls that are element-wise, as steps of chains.
        constants: values that never change.
        inputs: names of what is fed, in order.
        outputs: names of what is wanted, in order.

    Attributes:
        structures: those kept, the one used last first.
        made: how many were made.
        copies: to outputs, by the place that is copied.
        input_places: of inputs, by the tokens of their dtypes and shapes.
        results: what is not known before a run, likewise.
        viewed: names of values that were known and yet looked at by kernels.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        forms: Mapping[Call, StepForm],
        constants: Constants,
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        self.calls = calls
        self.forms = forms
        self.constants = constants
        self.inputs = inputs
        self.outputs = outputs
        self.tokens = Tokens()
        self.inference = Inference(
            calls, forms, constants, inputs, outputs, self.tokens
        )
        self.slots = self.inference.slots
        self.structures: list[Structure] = []
        self.made = 0
        self.copies: dict[Place, Piece] = {}
        self.input_places: dict[int, Place] = {}
        self.results: dict[int, Result] = {}
        self.viewed: set[str] = set()
        self._memos: dict[Hashable, Memo] = {}
        self._few = 0
        self._lock = new_lock()
        count = len(self.slots) + 2
        self.count = count
        self.places: list[Place | None] = [None] * count
        self.buffers: list[Buffer | None] = [None] * count
        for name, slot in self.slots.items():
            if name in constants:
                self._take_in(name, slot)

    def _take_in(self, name: str, slot: int) -> None:
        view = self.constants.view(name)
        self.buffers[slot] = view.buffer
        self.places[slot], _ = self.tokens.place_of(view)

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
        inferred = self.inference.infer(inputs, look)
        structure, latest, changed = self._structure(inferred, recorder.target)
        planner = Planner(self, inferred, structure, recorder, packed, look)
        return planner.make(latest, changed)

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
