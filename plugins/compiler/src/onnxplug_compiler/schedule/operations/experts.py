"""Mixtures of experts: each row meets the weights of a few experts, and no others.

Slots, one for each expert of a row, are sorted into blocks of one expert each; turn
after turn a block's rows are taken, meet both products of that expert, and are written
one after another.  Last each row's slots are added up by their shares.

Letters in shapes: R rows, E experts, H elements of a row, I of what an expert has
between its products, K experts of a row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from onnxplug.ep import TensorFacts
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import NARROW_FLOATS, described, element_of
from onnxplug_compiler.ir.experts import Assignment
from onnxplug_compiler.ir.flow import Move, Turns
from onnxplug_compiler.ir.formula import Formula, record_cast
from onnxplug_compiler.schedule.coded import BYTES_LEVEL, as_shape
from onnxplug_compiler.schedule.operations.expert_matrices import (
    CodedMatrix,
    FloatMatrix,
    Matrix,
)
from onnxplug_compiler.schedule.operations.gating import GATED, Gating
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Facts,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)

if TYPE_CHECKING:
    from onnxplug_compiler.ir.recorder import Recorder
    from onnxplug_compiler.ir.target import Support, Target
    from onnxplug_compiler.ir.views import View

_I64: Final = np.dtype(np.int64)
_MOST_OF_BLOCK: Final = 64
"""Rows that meet an expert's weights together."""

_MOST_FLOPS: Final = 1 << 31
"""Of a product of a block, about 50 ms of a thread: a run can end between two."""

_ACTIVATIONS: Final = ("relu", "gelu", "silu", "identity", *GATED)
_WEIGHTS: Final = {"MoE": (2, 4, 6), "QMoE": (2, 5, 8)}
_BIASES: Final = {"MoE": (3, 5, 7), "QMoE": (4, 7, 10)}
_SCALES: Final = (3, 6, 9)
_ZEROS: Final = (11, 12, 13)
_ROUTER_WEIGHTS: Final = 14
_INPUTS: Final = {"MoE": 8, "QMoE": 15}


class _Sizes(NamedTuple):
    """Sizes of a mixture.

    Attributes:
        rows, width: R and H.
        experts, chosen: E and K.
        inner: I.
        first: columns of the first product: I, or 2 * I.
        has_third: whether a gated expert has its other half in a matrix of its own.
    """

    rows: int
    width: int
    experts: int
    chosen: int
    inner: int
    first: int
    has_third: bool


def _bits(call: Call) -> int:
    """Of a code of weights; 0 if they are floats."""
    return int(call.attributes.get("expert_weight_bits", 4)) * (call.op_type == "QMoE")


def _block_of_codes(call: Call) -> int:
    return max(0, int(call.attributes.get("block_size", 0)))


def _gating(call: Call) -> Gating:
    attributes = call.attributes
    return Gating(
        str(attributes.get("activation_type", "relu")),
        float(attributes.get("activation_alpha", 1.0)),
        float(attributes.get("activation_beta", 0.0)),
        float(attributes.get("swiglu_limit", math.inf)),
        int(attributes.get("swiglu_fusion", 0)),
    )


def _sizes(call: Call, inputs: Inputs) -> _Sizes:
    """Those of a mixture whose inputs fit.

    Raises:
        NotCompiled: they do not; on arrays the node tells how.
    """
    shapes = [None if each is None else each.shape for each in inputs]
    shapes += [None] * (_INPUTS[call.op_type] - len(shapes))
    x, scores = shapes[0], shapes[1]
    matrices = [shapes[at] for at in _WEIGHTS[call.op_type]]
    if x is None or not x or scores is None or len(scores) != 2:
        raise NotCompiled(f"rows {x} and scores {scores}", call)
    width, rows = x[-1], math.prod(x[:-1])
    experts, chosen = scores[1], int(call.attributes.get("k", 1))
    first, second, third = matrices
    if first is None or second is None or len(first) != 3 or len(second) != 3:
        raise NotCompiled(f"weights {first} and {second}", call)
    gating = _gating(call)
    if gating.is_gated != (gating.fusion != 0 or third is not None):
        raise NotCompiled("experts whose halves are not both there", call)
    halves = 2 if gating.is_gated and third is None else 1
    inner, rest = divmod(first[1], halves)
    per_byte = 8 // _bits(call) if _bits(call) else 1
    wanted = {
        "first": (first, (experts, halves * inner, width // per_byte)),
        "second": (second, (experts, width, inner // per_byte)),
        "third": (third, (experts, inner, width // per_byte)),
    }
    if (
        rest
        or (third is not None and gating.fusion)
        or width % per_byte
        or inner % per_byte
        or scores[0] != rows
        or not 1 <= chosen <= experts
        or not min(width, inner)
        or any(found not in (None, shape) for found, shape in wanted.values())
    ):
        raise NotCompiled(f"{chosen} of {experts} experts with {matrices}", call)
    columns = halves * inner, width, inner
    for at, count in zip(_BIASES[call.op_type], columns, strict=True):
        if shapes[at] not in (None, (experts, count)):
            raise NotCompiled(f"a bias of {shapes[at]}", call)
    return _Sizes(
        rows, width, experts, chosen, inner, halves * inner, third is not None
    )


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    sizes = _sizes(call, inputs)
    if given(results).shape != given(inputs).shape:
        raise NotCompiled(f"a result of {given(results).shape}", call)
    if call.op_type == "MoE":
        return
    weights = inputs[_ROUTER_WEIGHTS] if len(inputs) > _ROUTER_WEIGHTS else None
    if weights is not None and weights.shape != (sizes.rows, sizes.experts):
        raise NotCompiled(f"router weights {weights.shape}", call)
    bits, block = _bits(call), _block_of_codes(call)
    depths = sizes.width, sizes.inner, sizes.width
    columns = sizes.first, sizes.width, sizes.inner
    for number, (depth, count) in enumerate(zip(depths, columns, strict=True)):
        if call.input(_WEIGHTS["QMoE"][number]) is None:
            continue
        if block and (depth % block or block * bits % 8):
            raise NotCompiled(f"{depth} codes in blocks of {block}", call)
        blocks = [depth // block] if block else []
        packed = -(-(depth // block if block else count) * bits // 8)
        wanted = (
            (_SCALES, (sizes.experts, count, *blocks)),
            (_ZEROS, (sizes.experts, *([count] if block else []), packed)),
        )
        for places, shape in wanted:
            at = places[number]
            found = inputs[at] if at < len(inputs) else None
            if found is not None and found.shape != shape:
                raise NotCompiled(
                    f"input {at} of {found.shape}; expected {shape}", call
                )


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    name, attributes = call.op_type, call.attributes
    taken = NARROW_FLOATS.intersection(target.elements(f"com.microsoft.{name}"))
    if not taken:
        return f"{name} is not compiled"
    if attributes.get("activation_type", "relu") not in _ACTIVATIONS:
        return f"{name} is not compiled with {attributes['activation_type']!r}"
    if attributes.get("swiglu_limit_after_activation", 0):
        return f"{name} is compiled with a limit before the activation"
    needed = {0, 1, *_WEIGHTS[name][:2]}
    codes: set[int] = set()
    if name == "QMoE":
        codes = {*_WEIGHTS[name], *_ZEROS}
        needed |= {*_SCALES[:2]}
        if call.input(_WEIGHTS[name][2]) is not None:
            needed.add(_SCALES[2])
        if attributes.get("quant_type", "int") != "int" or _bits(call) not in (2, 4, 8):
            return "QMoE is compiled for integers of 2, 4 and 8 bits"
        if attributes.get("weights_prepacked", -1) not in (-1, 0):
            return "QMoE is compiled for weights that are not packed"
    if any(call.input(at) is None for at in needed) or len(dtypes) > _INPUTS[name]:
        return f"{name} lacks inputs, or has others than it knows"
    for at, dtype in enumerate(dtypes):
        element = None if dtype is None else element_of(dtype)
        if dtype is not None and element not in ({"u8"} if at in codes else taken):
            return (
                f"{name} is compiled for {described(taken)} and codes of uint8; found "
                f"{dtype} as input {at}"
            )
    return None


def _facts(call: Call, facts: Facts) -> list[TensorFacts]:
    x = facts[0]
    assert x is not None
    return [TensorFacts(x.dtype, x.shape)]


def _record(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    sizes = _sizes(call, inputs)
    out = plan.destination(output)
    if sizes.rows:
        _Mixture(plan, call, sizes).record(out)


class _Mixture:
    """A mixture while it is recorded."""

    def __init__(self, plan: Plan, call: Call, sizes: _Sizes) -> None:
        self.plan, self.call, self.sizes = plan, call, sizes
        self.recorder = plan.recorder
        self.label = f"{call.op_type} {sizes.chosen} of {sizes.experts}"
        bits = _bits(call)
        self.matrices = [
            self._matrix(number, bits)
            for number in range(3)
            if self._named(_WEIGHTS[call.op_type][number]) is not None
        ]

    def record(self, out: View) -> None:
        """Record all, to what is given out."""
        recorder, sizes = self.recorder, self.sizes
        x = self._floats(0, (sizes.rows, sizes.width))
        chosen, shares = self._choose()
        assignment = self._assign(chosen)
        blocks, block = assignment.rows.shape
        y = recorder.temporary(F32, (blocks, block, sizes.width))
        self._record_turns(x, assignment, y)
        rows = y.reshape((blocks * block, sizes.width))
        places = assignment.places
        slots = recorder.temporary(F32, (sizes.rows * sizes.chosen, sizes.width))
        assert rows is not None
        target = recorder.target
        target.indexing.record_gather(
            recorder, rows, places, slots, 0, label=self.label
        )
        apart = slots.reshape((sizes.rows, sizes.chosen, sizes.width))
        share = shares.reshape((sizes.rows, sizes.chosen, 1))
        assert apart is not None and share is not None
        formula = Formula("f32")
        value = formula.step("Mul", formula.read(apart), formula.read(share))
        formula.record(recorder, value, apart, self.label)
        whole = out.reshape((sizes.rows, sizes.width))
        assert whole is not None, "a new array"
        total = whole if out.dtype == F32 else recorder.temporary(F32, whole.shape)
        target.reductions.record_reduce(recorder, "ReduceSum", apart, total, (1,))
        if total is not whole:
            record_cast(recorder, total, whole, self.label)

    def _named(self, at: int) -> str | None:
        return self.call.input(at)

    def _view(self, at: int) -> View | None:
        name = self._named(at)
        return None if name is None else self.plan.contiguous(self.plan.view(name))

    def _floats(self, at: int, shape: tuple[int, ...]) -> View:
        """An input that is there, as float32 in C order."""
        view = self._view(at)
        assert view is not None
        view = as_shape(self.plan, view, shape)
        if view.dtype == F32:
            return view
        wide = self.recorder.temporary(F32, shape)
        record_cast(self.recorder, view, wide, self.label)
        return wide

    def _matrix(self, number: int, bits: int) -> Matrix:
        call = self.call
        weights = self._view(_WEIGHTS[call.op_type][number])
        bias = self._view(_BIASES[call.op_type][number])
        assert weights is not None
        if not bits:
            return FloatMatrix(weights, bias)
        scales, zeros = self._view(_SCALES[number]), self._view(_ZEROS[number])
        assert scales is not None
        block = _block_of_codes(call)
        if zeros is not None and not block and bits < 8:
            # which columns share bytes of is no layout of weights
            zeros = self._apart(_ZEROS[number], bits, scales.shape[1])
        level = int(call.attributes.get("accuracy_level", 0))
        rounds = bool(block) and level == BYTES_LEVEL
        return CodedMatrix(weights, bias, scales, zeros, bits, block, rounds=rounds)

    def _apart(self, at: int, bits: int, columns: int) -> View:
        """Zero points of columns that share bytes, a byte for each."""
        name = self._named(at)
        assert name is not None
        packed = self.plan.known(name).content
        if packed is None:
            raise NotCompiled("zero points that share bytes and are not known")
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        codes = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
        codes = codes.reshape(len(packed), -1)[:, :columns]
        return self.recorder.constant(np.ascontiguousarray(codes, np.uint8))

    # which experts

    def _choose(self) -> tuple[View, View]:
        """The experts of each row, and their shares: [R, K]."""
        recorder, sizes = self.recorder, self.sizes
        scores = self._floats(1, (sizes.rows, sizes.experts))
        shape = (sizes.rows, sizes.chosen)
        values, shares = (recorder.temporary(F32, shape) for _ in range(2))
        places, chosen = (recorder.temporary(_I64, shape) for _ in range(2))
        # of equal scores the last is chosen
        turned = scores.slice((0, sizes.experts - 1), scores.shape, (1, -1))
        target = recorder.target
        target.selection.record_top(recorder, turned, values, places, 1, largest=True)
        formula = Formula("i64")
        last = formula.number(sizes.experts - 1)
        place = formula.step("Sub", last, formula.read(places))
        formula.record(recorder, place, chosen, self.label)
        whole = bool(self.call.attributes.get("normalize_routing_weights", 0))
        if self.call.op_type == "QMoE" and self._named(_ROUTER_WEIGHTS) is not None:
            weights = self._floats(_ROUTER_WEIGHTS, scores.shape)
            self._take(weights, chosen, shares)
            if whole:
                self._make_whole(shares)
        elif self.call.op_type == "QMoE" or whole:
            target.rows.record_softmax(recorder, values, shares, label=self.label)
        else:
            weights = recorder.temporary(F32, scores.shape)
            target.rows.record_softmax(recorder, scores, weights, label=self.label)
            self._take(weights, chosen, shares)
        return chosen, shares

    def _take(self, weights: View, chosen: View, shares: View) -> None:
        self.recorder.target.indexing.record_gather_elements(
            self.recorder, weights, chosen, shares, 1, label=self.label
        )

    def _make_whole(self, shares: View) -> None:
        """Divide the shares of each row by their sum."""
        recorder = self.recorder
        total = recorder.temporary(F32, (shares.shape[0], 1))
        reductions = recorder.target.reductions
        reductions.record_reduce(recorder, "ReduceSum", shares, total, (1,))
        formula = Formula("f32")
        value = formula.step("Div", formula.read(shares), formula.read(total))
        formula.record(recorder, value, shares, self.label)

    def _assign(self, chosen: View) -> Assignment:
        recorder, sizes = self.recorder, self.sizes
        slots, block = sizes.rows * sizes.chosen, _block(sizes)
        # an expert has at most one block that is not full
        blocks = min(slots, (slots + sizes.experts * (block - 1)) // block)
        assignment = Assignment(
            recorder.temporary(_I64, (blocks, block)),
            recorder.temporary(_I64, (slots,)),
            recorder.temporary(_I64, (blocks,)),
            recorder.temporary(_I64, (1,)),
        )
        family = recorder.target.experts
        assert family is not None, "accepted by its elements"
        family.record_assignment(
            recorder, chosen, sizes.experts, assignment, label=self.label
        )
        return assignment

    # what they compute

    def _record_turns(self, x: View, assignment: Assignment, y: View) -> None:
        """Record what becomes of each block: *y*, [blocks, places, H]."""
        recorder, sizes = self.recorder, self.sizes
        blocks, block = assignment.rows.shape
        number, rows = (recorder.temporary(_I64, (n,)) for n in (1, block))
        now, after = (recorder.temporary(F32, (block, sizes.width)) for _ in range(2))
        part = recorder.part()
        target = recorder.target
        target.indexing.record_gather(part, x, rows, now, 0, label=self.label)
        alternatives = []
        for expert in range(sizes.experts):
            inner = recorder.part()
            self._record_expert(inner, expert, now, after)
            alternatives.append(inner.commands)
        experts, flow = target.experts, target.flow
        assert experts is not None and flow is not None, "accepted by its elements"
        experts.record_alternatives(part, number, alternatives, label=self.label)
        turns = Turns(
            assignment.used, None, None, None, None, [],
            [
                Move(number.address, assignment.experts.address, 8, source_step=8),
                _move(rows, assignment.rows, source_step=rows.nbytes),
            ],
            [_move(y, after, target_step=after.nbytes)],
        )  # fmt: skip
        flow.record_turns(
            recorder, turns, part.commands, count=blocks, label=self.label
        )

    def _record_expert(
        self, part: Recorder[Target], expert: int, x: View, y: View
    ) -> None:
        """Record what one expert makes of rows."""
        rows, sizes = x.shape[0], self.sizes
        first, second, *third = self.matrices
        columns = [(first, sizes.first), *((each, sizes.inner) for each in third)]
        made: list[tuple[View, View | None]] = []
        for matrix, count in columns:
            out = part.temporary(F32, (rows, count))
            matrix.record(part, expert, x, out, self.label)
            made.append((out, matrix.bias_of(expert)))
        inner = part.temporary(F32, (rows, sizes.inner))
        _gating(self.call).record(part, made, inner, self.label)
        second.record(part, expert, inner, y, self.label)
        bias = second.bias_of(expert)
        if bias is not None:
            formula = Formula("f32")
            value = formula.step("Add", formula.read(y), formula.read_wide(bias))
            formula.record(part, value, y, self.label)


def _block(sizes: _Sizes) -> int:
    """Rows of a block: about as many as an expert has, as each block reads the expert's
    weights once and is computed as a whole."""
    block = 1
    limit = _MOST_FLOPS // (2 * sizes.width * sizes.first)
    while block < _MOST_OF_BLOCK and 2 * block <= limit:
        if block * sizes.experts >= sizes.rows * sizes.chosen:
            break
        block *= 2
    return block


def _move(target: View, source: View, **steps: Any) -> Move:
    nbytes = min(target.nbytes, source.nbytes)
    return Move(target.address, source.address, nbytes, **steps)


register("com.microsoft.MoE com.microsoft.QMoE", Operation(
    _record, _accepts, _check, facts=_facts,
))  # fmt: skip
