"""Ensembles of trees as commands: the walks, and what scores become."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.trees import Scoring
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import chunks
from onnxplug_cpu.compiler.kernels.trees import masks
from onnxplug_cpu.compiler.kernels.trees.scores import MOST, SOLE, TreeScores
from onnxplug_cpu.compiler.kernels.trees.table import Comparisons, Table, table_of
from onnxplug_cpu.compiler.kernels.trees.walks import AVERAGE, SUM, TOGETHER, TreeWalks
from onnxplug_kernels.prepared import prepared_once

_STEP: Final = 1.5
"""Nanoseconds that a step of a walk takes, about."""

_ROWS: Final = 128
"""Rows of a block: their features stay in a near cache while each tree is read once."""

_BLOCK: Final = 1 << 17
"""Bytes of the features of a block at most."""

_COPIED: Final = 8
"""Features that are copied in the time of a step of a walk, about."""

_table = prepared_once(table_of)


def record_trees(
    recorder: Recorder, x: View, out: View, scoring: Scoring, label: str
) -> None:
    """Record the scores that trees give rows, and their classes.

    Args:
        x: [rows, features], float32, float64, int32 or int64; rows of at least as many
            features as the trees look at.
        out: [rows, targets], float32 or float64, in C order.
    """
    rows = x.shape[0]
    if not rows:
        return
    narrow = x.dtype == np.dtype(np.float32)
    table = _table(scoring.forest, "f32" if narrow else "f64")
    x = _features(recorder, x, table)
    columns = table.target_count + 1
    totals = recorder.temporary(np.dtype(np.float64), (rows, columns))
    counts = None
    if not table.every:
        counts = recorder.temporary(np.dtype(np.int64), (rows, columns))
    _record_walks(recorder, table, x, totals, counts, scoring.aggregate, label)
    _record_scores(recorder, table, totals, counts, scoring, out, label)


def _features(recorder: Recorder, x: View, table: Table) -> View:
    """The features as the table's thresholds are compared with, consecutive."""
    wanted = np.dtype(np.float32 if table.element == "f32" else np.float64)
    if x.dtype == wanted and (x.strides[1] == 1 or x.shape[1] == 1):
        return x
    cast, formula = recorder.temporary(wanted, x.shape), Formula.of(x)
    value = formula.step("Cast", formula.read(x), element=table.element)
    formula.record(recorder, value, cast, "Cast")
    return cast


def _record_walks(
    recorder: Recorder,
    table: Table,
    x: View,
    totals: View,
    counts: View | None,
    aggregate: str,
    label: str,
) -> None:
    rows, columns = totals.shape
    if (
        recorder.target.isa.name == "avx512"
        and table.comparisons is not None
        and rows >= table.comparisons.rows
        and aggregate in (SUM, AVERAGE)
    ):
        _record_masks(recorder, table, table.comparisons, x, totals, counts, label)
        return
    itemsize, features = x.dtype.itemsize, table.features
    steps = table.trees * max(1, table.depth)
    block = max(1, min(_ROWS, _BLOCK // (features * itemsize)) // TOGETHER) * TOGETHER
    grouped = rows >= TOGETHER and features < _COPIED * steps
    groups = None
    if grouped:
        shape = (recorder.target.workers, block, features)
        groups = recorder.temporary(x.dtype, shape)
    kernel = TreeWalks(
        table.element,
        table.missing,
        table.dense and table.target_count == 1,
        not table.dense,
        counts is not None,
        SUM if aggregate == AVERAGE else aggregate,
        grouped,
    )
    count, each = chunks(recorder, rows, _STEP * rows * steps)
    words: dict[str, Word] = {
        "rows": rows,
        "each": each,
        "block": block,
        "tests": recorder.constant(table.tests.view(np.uint8)).address,
        "children": recorder.constant(table.children).address,
        "leaves": recorder.constant(table.leaves).address,
        "steps": recorder.constant(table.steps).address,
        "trees": table.trees,
        "x": x.address,
        "x_row": x.strides[0] * x.dtype.itemsize,
        "weights": recorder.constant(table.weights).address,
        "targets": recorder.constant(table.targets).address,
        "votes": table.weights.shape[1],
        "columns": columns,
        "totals": totals.address,
        "counts": 0 if counts is None else counts.address,
        "groups": 0 if groups is None else groups.address,
        "features": features,
    }
    call(
        recorder,
        Kernel(kernel),
        words,
        chunks=count,
        label=f"{label} {rows}×{table.trees}",
        nbytes=x.nbytes + table.tests.nbytes + table.children.nbytes,
    )


def _record_masks(
    recorder: Recorder,
    table: Table,
    found: Comparisons,
    x: View,
    totals: View,
    counts: View | None,
    label: str,
) -> None:
    """The totals by all comparisons of each tree."""
    rows, columns = totals.shape
    fitting = _BLOCK // (table.features * x.dtype.itemsize) // masks.TOGETHER
    wanted = min(_ROWS // masks.TOGETHER, -(-rows // masks.TOGETHER))
    block = max(1, min(wanted, fitting)) * masks.TOGETHER
    # of a row the features, and the sums
    room = block * (table.features * x.dtype.itemsize + 8 * table.target_count)
    copied = recorder.temporary(np.dtype(np.uint8), (recorder.target.workers, room))
    count, each = chunks(recorder, rows, 0.1 * rows * len(found.tests))
    groups = 1 if rows <= masks.TOGETHER // masks.GROUPS else masks.GROUPS
    kernel = masks.TreeMasks(found.width, groups, counts is not None)
    words: dict[str, Word] = {
        "rows": rows,
        "each": each,
        "block": block,
        "tests": recorder.constant(found.tests.view(np.uint8)).address,
        "kept": recorder.constant(found.kept).address,
        "starts": recorder.constant(found.starts).address,
        "weights": recorder.constant(found.weights).address,
        "targets": recorder.constant(found.targets).address,
        "voted": recorder.constant(found.voted).address,
        "count": table.target_count,
        "trees": table.trees,
        "x": x.address,
        "x_row": x.strides[0] * x.dtype.itemsize,
        "columns": columns,
        "totals": totals.address,
        "counts": 0 if counts is None else counts.address,
        "groups": copied.address,
        "features": table.features,
    }
    call(
        recorder,
        Kernel(kernel),
        words,
        chunks=count,
        label=f"{label} {rows}×{table.trees}",
        nbytes=x.nbytes + found.tests.nbytes + found.kept.nbytes,
    )


def _record_scores(
    recorder: Recorder,
    table: Table,
    totals: View,
    counts: View | None,
    scoring: Scoring,
    out: View,
    label: str,
) -> None:
    rows, columns = totals.shape
    base, classes = scoring.base, scoring.classes
    decides, paired, sole, limit = "", "", 0, 0.0
    if classes is not None:
        decides = MOST if classes.sole is None else SOLE
        paired, sole, limit = classes.paired, classes.sole or 0, classes.limit
    kernel = TreeScores(
        {4: "f32", 8: "f64"}[out.dtype.itemsize],
        counts is not None,
        scoring.aggregate == AVERAGE,
        base is not None,
        decides,
        paired,
    )
    count, each = chunks(recorder, rows, 2.0 * rows * columns)
    words: dict[str, Word] = {
        "rows": rows,
        "each": each,
        "targets": table.target_count,
        "columns": columns,
        "totals": totals.address,
        "counts": 0 if counts is None else counts.address,
        "trees": table.trees,
        "base": 0 if base is None else recorder.constant(base).address,
        "out": out.address,
        "labels": 0,
        "chosen": 0,
        "sole": sole,
        "limit": int.from_bytes(struct.pack("<d", limit), "little"),
    }
    if classes is not None:
        words["labels"] = recorder.constant(classes.labels).address
        words["chosen"] = classes.chosen.address
    call(recorder, Kernel(kernel), words, chunks=count, label=f"{label} scores")
