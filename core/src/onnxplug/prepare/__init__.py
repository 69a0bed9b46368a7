"""The model's graph made ready for partitioning, whichever EPs will run it.

Each pass is one file and can be switched off by name; the main graph and all bodies
of control flow are rewritten in place.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from onnxplug.errors import OptionError
from onnxplug.graph import Model
from onnxplug.prepare.constants import lift_constants
from onnxplug.prepare.duplicates import merge_duplicates
from onnxplug.prepare.eliminate import eliminate
from onnxplug.prepare.expand import expand_node, expand_nodes
from onnxplug.prepare.fold import Evaluate, fold
from onnxplug.prepare.infer import fix_free_dimensions, infer_types
from onnxplug.prepare.inline import inline_functions
from onnxplug.prepare.report import PassRecord, Report

__all__ = [
    "PASSES",
    "Evaluate",
    "PassRecord",
    "Report",
    "expand_node",
    "expand_nodes",
    "infer_types",
    "prepare",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a pass is given.

    Attributes:
        model: rewritten in place.
        evaluate: computes nodes of constants; ``None`` when nothing can.
        sizes_changed: sizes became known that may tell others.
    """

    model: Model
    evaluate: Evaluate | None
    sizes_changed: bool


Pass: TypeAlias = Callable[[Task], list[str]]

PASSES: Final[Mapping[str, Pass]] = {
    "inline": lambda task: inline_functions(task.model),
    "constants": lambda task: lift_constants(task.model.graph),
    "infer": lambda task: infer_types(task.model.graph, every_size=task.sizes_changed),
    "fold": lambda task: fold(task.model.graph, task.evaluate),
    "duplicates": lambda task: merge_duplicates(task.model.graph),
    "eliminate": lambda task: eliminate(task.model.graph),
}
"""The passes by name, in the order in which they run."""

_MAX_ROUNDS: Final = 8
"""A round can make room for another; real models need two or three."""


def prepare(
    model: Model,
    *,
    evaluate: Evaluate | None,
    disabled: Collection[str] = (),
    free_dimensions: Mapping[str, int] | None = None,
) -> Report:
    """Rewrite *model* in place until the passes find nothing more to do.

    Args:
        model: as loaded, or prepared before: a second time changes nothing.
        evaluate: computes a node whose inputs are all constants; with ``None`` only
            what follows from shapes is folded.
        disabled: names of :data:`PASSES` to leave out.
        free_dimensions: sizes for dimensions that the model only names.

    Raises:
        OptionError: a name in *disabled* or *free_dimensions* does not exist.
        InvalidModel: the model's types or functions contradict themselves.
        UnsupportedModel: a function needs another opset than the model has.
    """
    _check_names(disabled)
    if free_dimensions:
        fix_free_dimensions(model.graph, free_dimensions)
    records: list[PassRecord] = []
    sizes_changed = bool(free_dimensions)
    for round in range(1, _MAX_ROUNDS + 1):
        rewritten = False
        for name, run in PASSES.items():
            if name in disabled:
                continue
            if name == "infer" and round > 1 and not sizes_changed:
                continue
            started = time.perf_counter()
            task = Task(model=model, evaluate=evaluate, sizes_changed=sizes_changed)
            changed = run(task)
            records.append(
                PassRecord(
                    name=name,
                    round=round,
                    changed=tuple(changed),
                    seconds=time.perf_counter() - started,
                )
            )
            if name == "infer":
                sizes_changed = False
            elif name == "fold":
                sizes_changed = bool(changed)
            rewritten = rewritten or (bool(changed) and name != "infer")
        if not rewritten:
            break
    return Report(
        passes=tuple(records),
        disabled=tuple(name for name in PASSES if name in disabled),
    )


def _check_names(disabled: Collection[str]) -> None:
    for name in disabled:
        if name not in PASSES:
            near = difflib.get_close_matches(name, PASSES, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionError(
                f"there is no pass {name!r} to switch off{hint}; "
                f"the passes are {', '.join(PASSES)}"
            )
