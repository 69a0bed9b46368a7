"""Ensembles of decision trees: a lane walks one tree for a row, another one adds up the
votes for a target.

Votes are whole numbers of a power of two, in 64 bits, so that their sum is exact but
for what is below that power, whatever the order: a row that half of the votes are for
is that on every device.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.render import pair_arithmetic, pairs, wide_steps
from onnxplug_compiler.gpu.render.body import Body, Operand, Pair
from onnxplug_compiler.gpu.render.extremes import is_nan
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.trees import Classes, Scoring
from onnxplug_compiler.ir.views import View
from onnxplug_kernels.ml.forest import MEMBER, NOT_EQUAL, Forest
from onnxplug_kernels.prepared import prepared_once

_F32: Final = np.dtype(np.float32)
_U32: Final = np.dtype(np.uint32)
_MOST_NODES: Final = 1 << 28
"""Nodes whose numbers leave bits of a word for how they compare."""

_NAN_SHIFT: Final = 31
_MODE_SHIFT: Final = 28
_SIGNS: Final = ("<=", "<", ">=", ">", "==", "!=")
"""By the numbers of modes."""

_BITS: Final = 61
"""Of the largest total."""

_EXPONENTS: Final = range(-60, 90)
"""Of the largest total, of which float32 has all that counts."""


class Table(Record):
    """A forest as kernels read it.

    Attributes:
        nodes: [branches, 4], uint32: the feature, the threshold's bits, the false child
            and the true one; the highest bit of the third is set where a missing value
            goes the true way, and the highest ones of the fourth say the mode.
        roots: uint32.
        depth: branches of the longest walk.
        mode: of all nodes; ``None`` if they differ.
    """

    nodes: np.ndarray[Any, Any]
    roots: np.ndarray[Any, Any]
    depth: int
    mode: int | None


def takes(forest: Forest) -> bool:
    """Whether all comparisons are computed, and all votes are numbers."""
    thresholds = np.asarray(forest.thresholds)
    with np.errstate(over="ignore"):
        exact = thresholds.astype(np.float32) == thresholds
    modes = np.asarray(forest.modes)
    return (
        bool((exact | np.isnan(thresholds)).all())
        and not (modes == MEMBER).any()
        and bool(np.isfinite(forest.weights).all())
        and forest.branches + len(forest.targets) < _MOST_NODES
    )


def _table_of(forest: Forest) -> Table:
    count = forest.branches
    children = np.asarray(forest.children, np.int64).reshape(-1, 2)
    modes = np.broadcast_to(np.asarray(forest.modes, np.int64), (count,))
    missing = forest.missing_true
    to_true = modes == NOT_EQUAL
    if missing is not None:
        to_true = to_true | np.asarray(missing)
    nodes = np.zeros((max(count, 1), 4), np.uint32)
    nodes[:count, 0] = forest.features
    nodes[:count, 1] = np.asarray(forest.thresholds).astype(np.float32).view(np.uint32)
    nodes[:count, 2] = children[:, 0] | to_true.astype(np.int64) << _NAN_SHIFT
    nodes[:count, 3] = children[:, 1] | modes << _MODE_SHIFT
    roots = np.asarray(forest.roots, np.int64)
    depth, level = 0, np.unique(roots[roots < count])
    while level.size:
        depth, below = depth + 1, children[level].reshape(-1)
        level = np.unique(below[below < count])
    same = forest.modes if isinstance(forest.modes, int) else None
    return Table(nodes, roots.astype(np.uint32), depth, same)


_table = prepared_once(_table_of)


class WalksKernel(Parameters):
    """The leaf that each row reaches in each tree; the sizes are how many walks there
    are, trees, branching nodes, and steps of the longest walk."""

    mode: int | None

    lanes = LANES
    sizes = 4

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand("f32", 2),
            Operand("u32", 2),
            Operand("u32", 1),
            Operand("u32", 2, True),
        )

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            row = body.let("u32", f"{index} / {body.size(1)}")
            tree = body.let("u32", f"{index} % {body.size(1)}")
            node = body.var("u32", body.load(2, body.place(2, [tree])))
            with body.loop(body.size(3)), body.when(f"{node} < {body.size(2)}"):
                self._step(body, row, node)
            leaf = body.let("u32", f"{node} - {body.size(2)}")
            body.store(3, body.place(3, [row, tree]), leaf)

    def _step(self, body: Body, row: str, node: str) -> None:
        feature, bits, no, yes = (
            body.load(1, body.place(1, [node, f"{n}u"])) for n in range(4)
        )
        x = body.load(0, body.place(0, [row, feature]))
        threshold = body.let("f32", body.dialect.reinterpret("f32", bits))
        if self.mode is None:
            mode = body.let("u32", f"({yes} >> {_MODE_SHIFT}u) & 7u")
            ways = [
                f"({mode} == {number}u && {x} {sign} {threshold})"
                for number, sign in enumerate(_SIGNS)
            ]
            holds = body.let("i1", " || ".join(ways))
        else:
            holds = body.let("i1", f"{x} {_SIGNS[self.mode]} {threshold}")
        to_true = f"({no} >> {_NAN_SHIFT}u) != 0u"
        missing = body.let("i1", is_nan(body, x))
        # of a threshold that is none nothing holds but that it is another
        other = "true" if self.mode == NOT_EQUAL else "false"
        if self.mode is None:
            other = f"{mode} == {NOT_EQUAL}u"
        no_number = body.let("i1", is_nan(body, threshold))
        holds = body.let("i1", body.dialect.select(no_number, other, holds))
        holds = body.let("i1", body.dialect.select(missing, to_true, holds))
        chosen = body.let("u32", body.dialect.select(holds, yes, no))
        body.assign(node, f"{chosen} & {_MOST_NODES - 1}u")


class VotesKernel(Parameters):
    """The votes for each target put together; the sizes are how many scores there are,
    targets, trees, and votes of a leaf.

    The arrays are leaves, the targets and weights of votes, scores, and then those that
    the attributes name.

    Attributes:
        aggregate: ``SUM``, ``MIN`` or ``MAX``.
        unit: what a whole number of votes stands for, a power of two.
        base: what is added, whole numbers, too.
        decides: scores by which classes are chosen: of one without a vote minus
            infinity.
    """

    aggregate: str
    unit: float
    base: bool
    decides: bool

    lanes = LANES
    sizes = 4

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand("u32", 2),
            Operand("u32", 2),
            Operand("i64", 2),
            Operand("f32", 2, True),
            *((Operand("i64", 1),) if self.base else ()),
            *((Operand("f32", 2, True),) if self.decides else ()),
        )

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            row = body.let("u32", f"{index} / {body.size(1)}")
            target = body.let("u32", f"{index} % {body.size(1)}")
            start = {"SUM": 0, "MIN": (1 << 63) - 1, "MAX": -(1 << 63)}[self.aggregate]
            total = pair_arithmetic.variable(body, pairs.constant(body, start))
            voted = body.var("i1", "false")
            combining = {"SUM": "Add", "MIN": "Min", "MAX": "Max"}[self.aggregate]
            with body.loop(body.size(2)) as tree:
                leaf = body.load(0, body.place(0, [row, tree]))
                with body.loop(body.size(3)) as vote:
                    of = body.load(1, body.place(1, [leaf, vote]))
                    with body.when(f"{of} == {target}"):
                        weight = body.load(2, body.place(2, [leaf, vote]))
                        joined = wide_steps.combined(
                            body, combining, total, weight, signed=True
                        )
                        pair_arithmetic.assign(body, total, joined)
                        body.assign(voted, "true")
            self._finish(body, row, target, total, voted)

    def _finish(
        self, body: Body, row: str, target: str, total: Pair, voted: str
    ) -> None:
        found = pairs.chosen(body, voted, total, pairs.constant(body, 0))
        if self.base:
            found = pairs.total(body, found, body.load(4, body.place(4, [target])))
        unit = body.number("f32", self.unit)
        score = body.let("f32", f"{pairs.rounded(body, found)} * {unit}")
        body.store(3, body.place(3, [row, target]), score)
        if self.decides:
            least = body.number("f32", -math.inf)
            decisive = score if self.base else body.dialect.select(voted, score, least)
            last = len(self.operands) - 1
            body.store(last, body.place(last, [row, target]), decisive)


class ClassKernel(Parameters):
    """The class of each row; the sizes are rows and classes.

    The arrays are scores, labels, chosen ones, and two scores that follow from one.

    Attributes:
        sole, limit, paired: as of ``ir.trees.Classes``.
    """

    sole: int | None
    limit: float
    paired: str

    lanes = LANES
    sizes = 2

    @property
    def operands(self) -> tuple[Operand, ...]:
        both = (Operand("f32", 2, True),) if self.paired else ()
        return Operand("f32", 2), Operand("i64", 1), Operand("i64", 1, True), *both

    def write(self, body: Body) -> None:
        row = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{row} < {body.size(0)}"):
            chosen = body.var("u32", "0u")
            if self.sole is None:
                best = body.var("f32", body.load(0, body.place(0, [row, "0u"])))
                with body.loop(body.size(1), "1u") as number:
                    score = body.load(0, body.place(0, [row, number]))
                    with body.when(f"{score} > {best}"):
                        body.assign(best, score)
                        body.assign(chosen, number)
            else:
                score = body.load(0, body.place(0, [row, f"{self.sole}u"]))
                wins = f"{score} > {body.number('f32', self.limit)}"
                body.assign(chosen, body.dialect.select(wins, "1u", "0u"))
                if self.paired:
                    other = (
                        f"-{score}" if self.paired == "negated" else f"1.0f - {score}"
                    )
                    body.store(3, body.place(3, [row, "0u"]), body.let("f32", other))
                    body.store(3, body.place(3, [row, "1u"]), score)
            label = body.load(1, body.place(1, [chosen]))
            body.store(2, body.place(2, [row]), label)


def record_trees(
    recorder: Recorder[Any], x: View, out: View, scoring: Scoring, label: str
) -> None:
    """The scores that trees give rows, and their classes; see ``ir.trees.Trees``."""
    rows, forest = x.shape[0], scoring.forest
    if not rows:
        return
    if operand(x).element != "f32" or operand(out).element != "f32":
        raise ValueError(f"{label} of {x.dtype} as {out.dtype}")
    table, trees = _table(forest), len(forest.roots)
    leaves = recorder.temporary(_U32, (rows, trees))
    launch(
        recorder,
        WalksKernel(table.mode),
        [x, recorder.constant(table.nodes), recorder.constant(table.roots), leaves],
        (rows * trees, trees, forest.branches, table.depth),
        math.ceil(rows * trees / LANES),
        f"{label} {rows}×{trees}",
        rows * trees * table.depth,
    )
    _record_votes(recorder, leaves, out, scoring, label)


def _record_votes(
    recorder: Recorder[Any], leaves: View, out: View, scoring: Scoring, label: str
) -> None:
    rows, trees = leaves.shape
    forest, classes = scoring.forest, scoring.classes
    count = forest.target_count
    weights, base, unit = _whole(scoring, trees)
    scores, decisive, more = out, None, []
    if classes is not None and classes.paired:
        scores = recorder.temporary(_F32, (rows, count))
    if base is not None:
        more.append(recorder.constant(base))
    if classes is not None and classes.sole is None:
        decisive = recorder.temporary(_F32, (rows, count))
        more.append(decisive)
    aggregate = "SUM" if scoring.aggregate == "AVERAGE" else scoring.aggregate
    targets = recorder.constant(np.asarray(forest.targets).astype(np.uint32))
    launch(
        recorder,
        VotesKernel(aggregate, unit, base is not None, decisive is not None),
        [leaves, targets, recorder.constant(weights), scores, *more],
        (rows * count, count, trees, weights.shape[1]),
        math.ceil(rows * count / LANES),
        label,
        rows * count * trees * weights.shape[1],
    )
    if classes is not None:
        _record_classes(recorder, decisive or scores, out, classes, label)


def _record_classes(
    recorder: Recorder[Any], scores: View, out: View, classes: Classes, label: str
) -> None:
    labels = recorder.constant(np.asarray(classes.labels, np.int64))
    launch(
        recorder,
        ClassKernel(classes.sole, classes.limit, classes.paired),
        [scores, labels, classes.chosen, *([out] if classes.paired else [])],
        scores.shape,
        math.ceil(scores.shape[0] / LANES),
        label,
    )


def _whole(
    scoring: Scoring, trees: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None, float]:
    """Votes, and what is added, as whole numbers of a power of two.

    Raises:
        ValueError: no power of float32 is small enough, or large enough.
    """
    weights = np.asarray(scoring.forest.weights, np.float64)
    if scoring.aggregate == "AVERAGE":
        weights = weights / trees
    base = None if scoring.base is None else np.asarray(scoring.base, np.float64)
    many = trees * weights.shape[1] if scoring.aggregate in ("SUM", "AVERAGE") else 1
    most = many * float(np.abs(weights).max(initial=0.0))
    most += 0.0 if base is None else float(np.abs(base).max(initial=0.0))
    exponent = math.frexp(most)[1] if most else 0
    if not math.isfinite(most) or exponent not in _EXPONENTS:
        raise ValueError(f"votes of trees add up to {most}")
    shift = _BITS - exponent

    def whole(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(np.rint(np.ldexp(numbers, shift)), np.int64)

    return whole(weights), None if base is None else whole(base), 2.0**-shift
