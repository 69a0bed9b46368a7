"""That mistakes in what is kept for other shapes are found.

Each mutant forgets something that plans which share parts rely on. It is right for a
plan that has none before it, so a comparison with such a one shows it, before anything
is run.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from onnxplug_compiler.schedule import inference, planner, structure

from ..lowered import graph, lowered, random
from ..replanning import compared_with_fresh_plans
from .decoders import decoder, feeds


class Mutant(NamedTuple):
    """A piece of a module's source, and what it is replaced by."""

    module: types.ModuleType
    source: str
    instead: str


MUTANTS = {
    "a value that begins elsewhere is not read again": Mutant(
        planner, "or offsets[slot] != moved[slot]", "or False"
    ),
    "another buffer is not read again": Mutant(
        planner, "buffers[slot] is not earlier[slot]", "False"
    ),
    "another place is not looked at": Mutant(
        planner,
        "or state[2 * count + slot] is not before[2 * count + slot]",
        "or False",
    ),
    "outputs stay written": Mutant(
        planner, "written -= structure", "written & structure"
    ),
    "inputs are where they were": Mutant(
        planner, "if plans.slots[name] in slots:", "if False:"
    ),
    "what kernels read of shapes stays": Mutant(
        planner, "if slot in slots and self.value(slot).content is not None:", "if 0:"
    ),
    "no part has changed": Mutant(
        planner,
        "for number in structure.concerned.get(slot, ()):\n"
        "                waiting[number] = 1",
        "for number in structure.concerned.get(slot, ()):\n"
        "                waiting[number] = 0",
    ),
    "what follows parts stays": Mutant(planner, "waiting[other] = 1", "pass"),
    "values begin where their buffers do": Mutant(
        planner, "first.append(offsets[slot])", "first.append(0)"
    ),
    "views of views begin where these do": Mutant(
        planner,
        "offsets[slot] = offsets[slots[seen]] + offset",
        "offsets[slot] = offset",
    ),
    "parts of one constant are packed as one": Mutant(
        planner, 'f"{layout} from {offset}" if offset else layout', "layout"
    ),
    "destinations are of any form": Mutant(
        planner, "key = destination.key(self._state)", "key = 0"
    ),
    "destinations are alike": Mutant(
        structure, "self._found.setdefault(kind, {})", "self._found.setdefault(0, {})"
    ),
    "facts hold": Mutant(structure, "about.get(slot, ())", "()"),
    "parts do not ask what becomes of their results": Mutant(
        structure,
        "asked.update(self._slots[each] for each in self._chain(name))",
        "pass",
    ),
    "what follows calls stays": Mutant(inference, "waiting[other] = 1", "pass"),
    "contents are what they were": Mutant(
        inference, "or contents[slot] != made_contents[place]", "or False"
    ),
    "results did not change": Mutant(
        inference,
        "changed.append(slot)\n                    for",
        "pass\n                    for",
    ),
    "what follows from contents that are not compared is kept": Mutant(
        inference, "all(value is None or value.is_exact for value in inputs)", "True"
    ),
    "contents are their shapes": Mutant(
        inference, "value.key if value.is_exact else id(content)", "value.key"
    ),
}  # fmt: skip


def grows() -> None:
    found = lowered(decoder(2))
    for batch, length, past in ((1, 2, 3), (1, 2, 4), (1, 1, 5), (2, 3, 5), (2, 3, 6)):
        found.check(*feeds(batch, length, past, 2))
        assert set(found.tiers()) == {"compiled"} and not found.notes()


def works(text: str, *cases: Sequence[tuple[int, ...]]) -> Callable[[], None]:
    """What runs a model with inputs of these shapes."""

    def work() -> None:
        found = lowered(text)
        for case in cases:
            found.check(*random(*case), tolerance=1e-4)
            assert set(found.tiers()) == {"compiled"} and not found.notes()

    return work


WORK: dict[str, Callable[[], None]] = {
    "a decoder": grows,
    "slices of a constant": works(
        graph(
            "float[N, 300] x",
            "float[N, 256] y, float[N, 256] z",
            "s = Shape (x) n = Gather (s, zero) e = Add (n, b) w1 = Slice (w, n, e, "
            "zero) f = Add (e, n) g = Add (f, b) w2 = Slice (w, f, g, zero) "
            "y = MatMul (x, w1) z = MatMul (x, w2)",
            "int64[1] zero = {0}, int64[1] b = {300}, float[700, 256] w = {"
            + ", ".join(f"{0.01 * (i % 37 - 18):.2f}" for i in range(700 * 256))
            + "}",
        ),
        ((3, 300),),
        ((4, 300),),
        ((7, 300),),
    ),
    "slices of slices": works(
        graph(
            "float[N, 4] x",
            "float[M, 4] y",
            "s = Slice (x, one, end) t = Slice (s, one, end) y = Exp (t)",
            "int64[1] one = {1}, int64[1] end = {100}",
        ),
        ((5, 4),),
        ((6, 4),),
    ),
    "elements of a constant that are apart": works(
        graph(
            "float[N, 1] x, float[1, 4] z",
            "float[1, 4] y, float[N, 1] e",
            "e = Exp (x) s = Shape (x) n = Slice (s, zero, one) l = Mul (n, four) "
            "p = Slice (w, zero, l, zero, n) y = Add (z, p)",
            "int64[1] zero = {0}, int64[1] one = {1}, int64[1] four = {4}, "
            f"float[70000] w = {{{', '.join(str(i % 999) for i in range(70000))}}}",
        ),
        ((3, 1), (1, 4)),
        ((5, 1), (1, 4)),
        ((3, 1), (1, 4)),
    ),
    "sizes as numbers": works(
        graph(
            "float[N, 3] x, float[2] z",
            "float[2] y, float[N, 3] e",
            "e = Exp (x) s = Shape (x) f = Cast <to = 1> (s) y = Add (z, f)",
        ),
        ((4, 3), (2,)),
        ((7, 3), (2,)),
    ),
    "many numbers that follow from sizes": works(
        graph(
            "float[N] x, float[100] z",
            "float[100] y, float[N] e",
            "e = Exp (x) s = Shape (x) n = Cast <to = 1> (s) c = Mul (k, n) "
            "d = Sqrt (c) y = Add (z, d)",
            f"float[100] k = {{{', '.join(str(i) for i in range(100))}}}",
        ),
        ((4,), (100,)),
        ((7,), (100,)),
    ),
    "shapes that are equal or not": works(
        graph(
            "float[N, 8] x, float[M, 8] z",
            "float[K, 8] y",
            "e = Exp (x) a = Add (e, z) y = Tanh (a)",
        ),
        ((3, 8), (3, 8)),
        ((4, 8), (4, 8)),
        ((1, 8), (4, 8)),
    ),
    "rows that evict each other or not": works(
        graph(
            "float[N, 1] x, float[4, 1024] z, float[4096] v",
            "float[A, B] y, float[N, 1] e",
            "e = Exp (x) s = Shape (x) n = Slice (s, zero, one) "
            "to = Concat <axis = 0> (n, rest) at = Concat <axis = 0> (rest, n) "
            "f = Exp (z) r = Reshape (f, to) w = Reshape (v, at) y = MatMul (r, w)",
            "int64[1] zero = {0}, int64[1] one = {1}, int64[1] rest = {-1}",
        ),
        ((2, 1), (4, 1024), (4096,)),
        ((4, 1), (4, 1024), (4096,)),
        ((8, 1), (4, 1024), (4096,)),
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_work_is_right_without_mutants(name: str) -> None:
    with compared_with_fresh_plans() as compared:
        WORK[name]()
    assert compared


@pytest.mark.parametrize(
    "name",
    # with a sample of them in each run, as all take half a minute
    [
        pytest.param(name, marks=pytest.mark.exhaustive if number % 6 else ())
        for number, name in enumerate(MUTANTS)
    ],
)
def test_mutants_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change(MUTANTS[name], monkeypatch)
    with compared_with_fresh_plans():
        for work in WORK.values():
            try:
                work()
            except Exception:  # noqa: BLE001 - whatever it is, it shows
                return
    pytest.fail(f"no work shows that {name}")


def change(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the functions of a module be those of the mutant."""
    module = mutant.module
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(mutant.source) == 1, mutant
    changed = types.ModuleType(module.__name__)
    changed.__package__ = module.__package__
    code = compile(
        source.replace(mutant.source, mutant.instead), module.__file__, "exec"
    )
    exec(code, changed.__dict__)
    for name, value in vars(module).items():
        new = vars(changed).get(name)
        if isinstance(value, types.FunctionType):
            monkeypatch.setattr(module, name, new)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for attribute, given in vars(new).items():
                if isinstance(given, types.FunctionType | functools.cached_property):
                    monkeypatch.setattr(value, attribute, given)
