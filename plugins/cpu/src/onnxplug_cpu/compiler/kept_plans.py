"""Plans of a partition that are kept on disk, as compiled code is."""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onnxplug import ep
from onnxplug.authoring.entries import MARSHAL
from onnxplug.authoring.record import Record
from onnxplug_cpu.compiler.runtime.jit import Library

if TYPE_CHECKING:
    from onnxplug_compiler.schedule.planned import Result
    from onnxplug_cpu.compiler.runtime.kept import KeptProgram, Values
    from onnxplug_cpu.compiler.runtime.program import Program

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
MOST_KEPT: Final = 4
"""Plans of a segment that a process keeps: a cache that grows by a token has no end."""

KEEP: Final = "ONNXPLUG_CPU_KEEP_PLANS"
"""The variable that says whether plans are kept."""


def plans_are_kept() -> bool:
    """Whether plans are kept, and those that were are used.

    Raises:
        OptionError: the variable has a value that is not understood.
    """
    switch = os.environ.get(KEEP, "1")
    if switch not in ("0", "1"):
        raise ep.OptionError(f"{KEEP} is {switch!r}; it can be 1 or 0")
    return switch == "1"


class KeptUnit(Record):
    """A part of a partition.

    Attributes:
        inputs, outputs: names of values.
        node: of one that is computed on arrays its node's index; otherwise ``None``.
        texts, look_up: of one that is no more than texts that are looked up these, and
            which class of ``onnxplug_kernels.ml.encode`` does that.
        shapes: of the inputs of a segment, if the model states them.
        in_place: positions of outputs of a segment that may be in the memory of an
            input, each with that of this.
    """

    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    node: int | None = None
    texts: tuple[str, ...] | None = None
    look_up: str = ""
    shapes: Shapes | None = None
    in_place: tuple[tuple[int, int], ...] = ()


class KeptUnits(Record):
    """How a partition is split.

    Attributes:
        units: in the order in which they run.
        numbers: names of values that are none of the partition's, and those of the
            texts that they stand for.
        on_arrays: places of the nodes of which nothing is compiled.
        notes: why nodes are not compiled, by their place in the partition.
    """

    units: tuple[KeptUnit, ...]
    numbers: tuple[tuple[str, str], ...]
    on_arrays: tuple[int, ...]
    notes: tuple[tuple[int, str], ...]


class KeptPlan(Record):
    """A plan as plain values.

    Attributes:
        program: what runs.
        results: what is returned.
    """

    program: KeptProgram
    results: Values


class KeptPlans:
    """What the cache has of one partition.

    Args:
        library: whose cache that is.
        identity: of the partition.
        how: it is compiled, as plain values.

    Attributes:
        identity, how: as given.
    """

    def __init__(self, library: Library, identity: str, how: tuple[Any, ...]) -> None:
        self._library = library
        self.identity = identity
        self.how = how

    @classmethod
    def of(
        cls, partition: ep.Partition, library: Library, how: tuple[Any, ...]
    ) -> KeptPlans | None:
        """Those of *partition*, compiled as *how* says; ``None`` if none can be."""
        if not plans_are_kept() or not library.cache.is_open:
            return None
        from onnxplug_cpu.compiler.identity import identity_of

        identity = identity_of(partition, how)
        return None if identity is None else cls(library, identity, how)

    def units(self) -> KeptUnits | None:
        """How the partition was split, if it ever was."""
        found = self._load("units")
        if found is None:
            return None
        units, *rest = found
        return KeptUnits(tuple([KeptUnit(*unit) for unit in units]), *rest)

    def keep_units(self, units: KeptUnits) -> None:
        """Keep how the partition is split."""
        parts, *rest = units
        self._store("units", (tuple(map(tuple, parts)), *rest))

    def notes(self) -> dict[int, str]:
        """What is to be said of nodes that are compiled, by their place in the
        partition, as plans that were kept told."""
        return dict(self._load("notes") or ())

    def keep_notes(self, notes: Mapping[int, str]) -> None:
        """Keep what is to be said of nodes beside what was kept before."""
        before = self.notes()
        if not notes.items() <= before.items():
            self._store("notes", tuple({**before, **notes}.items()))

    def plan(self, unit: Any, shapes: Shapes) -> KeptPlan | None:
        """The plan of a unit for inputs of these shapes, if there ever was one."""
        found = self._load(_name(unit, shapes))
        if found is None:
            return None
        from onnxplug_cpu.compiler.runtime.kept import KeptProgram

        program, results = found
        return KeptPlan(KeptProgram(*program), results)

    def of_segment(
        self, partition: ep.Partition, inputs: Sequence[str], outputs: Sequence[str]
    ) -> Keeper:
        """Keeps the plans of the segment that has these values."""
        unit = tuple(inputs), tuple(outputs)

        places = {node.index: n for n, node in enumerate(partition.nodes)}

        def store(shapes: Shapes, plan: KeptPlan, notes: Mapping[int, str]) -> None:
            program, results = plan
            self._store(_name(unit, shapes), (tuple(program), results))
            self.keep_notes({places[n]: s for n, s in notes.items() if n in places})

        return Keeper(partition, store)

    def _load(self, name: str) -> Any:
        content = self._library.kept(f"{self.identity} {name}")
        if content is None:
            return None
        try:
            return marshal.loads(content)
        except (ValueError, EOFError, TypeError) as error:
            ep.raise_interruption(error)
            return None

    def _store(self, name: str, content: Any) -> None:
        data = marshal.dumps(content, MARSHAL)
        self._library.keep(f"{self.identity} {name}", data)


class Keeper:
    """Keeps the plans of one segment.

    Args:
        partition: that the segment is of.
        store: keeps one, and what is to be said of nodes, by their index.
    """

    def __init__(
        self,
        partition: ep.Partition,
        store: Callable[[Shapes, KeptPlan, Mapping[int, str]], None],
    ) -> None:
        self._partition = partition
        self._store = store
        self._kept = 0

    @property
    def wants_more(self) -> bool:
        """Whether the next plan would be kept."""
        return self._kept < MOST_KEPT

    def keep(
        self,
        shapes: Shapes,
        program: Program,
        results: Sequence[Result],
        notes: Mapping[int, str],
    ) -> None:
        """Keep a plan that was just made, if plain values can stand for it.

        Args:
            notes: what is to be said of nodes, by their index in the graph.
        """
        from onnxplug_cpu.compiler.runtime.keeping import kept_program, names_of
        from onnxplug_cpu.compiler.runtime.kept import origin_of

        self._kept += 1
        if any(result.content is not None for result in results):
            return
        kept = kept_program(program, lambda source: origin_of(self._partition, source))
        if kept is not None:
            self._store(shapes, KeptPlan(kept, names_of(results)), notes)


def _name(unit: Any, shapes: Shapes) -> str:
    return f"plan {unit!r} {shapes!r}"


def stated_shapes(partition: ep.Partition, names: Sequence[str]) -> Shapes | None:
    """The shapes of values; ``None`` if one is not known in numbers."""
    shapes: list[tuple[int, ...]] = []
    for name in names:
        shape = partition.value(name).shape
        sizes = tuple([size for size in shape or () if type(size) is int])
        if shape is None or len(sizes) != len(shape):
            return None
        shapes.append(sizes)
    return tuple(shapes)
