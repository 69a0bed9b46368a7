"""What all plans of a segment have in common, whatever their structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.ir.buffers import Buffer
from onnxplug_compiler.ir.pieces import Piece, Place
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.inference import Inference, Tokens
from onnxplug_compiler.schedule.planned import Result


class Common:
    """What plans of a segment have in common; it grows.

    Args:
        calls: in topological order.
        forms: the calls that are element-wise, as steps of chains.
        constants: values that never change.
        inputs: names of what is fed, in order.
        outputs: names of what is wanted, in order.
        tokens: of values; new ones if not given.

    Attributes:
        slots: the number of each value, below *count*.
        places, buffers: of constants, by slot.
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
        tokens: Tokens | None = None,
    ) -> None:
        self.calls = calls
        self.forms = forms
        self.constants = constants
        self.inputs = inputs
        self.outputs = outputs
        self.tokens = Tokens() if tokens is None else tokens
        self.inference = Inference(
            calls, forms, constants, inputs, outputs, self.tokens
        )
        self.slots = self.inference.slots
        self.copies: dict[Place, Piece] = {}
        self.input_places: dict[int, Place] = {}
        self.results: dict[int, Result] = {}
        self.viewed: set[str] = set()
        count = len(self.slots) + 2
        self.count = count
        self.places: list[Place | None] = [None] * count
        self.buffers: list[Buffer | None] = [None] * count
        for name, slot in self.slots.items():
            if name in constants:
                view = constants.view(name)
                self.buffers[slot] = view.buffer
                self.places[slot], _ = self.tokens.place_of(view)
