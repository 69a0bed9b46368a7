"""Names of sizes that inputs share, and shapes that belie them."""

from __future__ import annotations

import pytest

from onnxplug.ep import DataType, OptionalType, SequenceType, TensorType, ValueType
from onnxplug.graph import Graph
from onnxplug.shapes.symbols import SharedSymbols, forget, forget_all, stated_as

F = DataType.FLOAT32


def shared(**shapes: tuple[int | str | None, ...]) -> SharedSymbols:
    return SharedSymbols({name: TensorType(F, shape) for name, shape in shapes.items()})


@pytest.mark.parametrize(
    ("shapes", "found", "belied"),
    [
        ({"a": ("n", 2), "b": ("n",)}, {"a": (3, 2), "b": (3,)}, set()),
        ({"a": ("n", 2), "b": ("n",)}, {"a": (3, 2), "b": (4,)}, {("b", "n")}),
        ({"a": ("n", "n")}, {"a": (3, 4)}, {("a", "n")}),
        ({"a": ("n",), "b": ("n",), "c": ("n",)}, {"b": (1,), "c": (2,)}, {("c", "n")}),
        ({"a": ("?",), "b": ("?",)}, {"a": (3,), "b": (4,)}, set()),
        ({"a": ("batch-size",), "b": ("batch-size",)}, {"a": (3,), "b": (4,)},
         {("b", "batch-size")}),
        ({"a": ("p",), "b": ("s",), "m": ("p + s",)},
         {"a": (3,), "b": (4,), "m": (7,)}, set()),
        ({"a": ("p",), "b": ("s",), "m": ("p + s",)},
         {"a": (3,), "b": (4,), "m": (8,)}, {("m", "p + s")}),
        ({"a": ("p",), "b": ("s",), "m": ("p + s",)}, {"a": (3,), "m": (8,)}, set()),
        ({"a": ("n",), "m": ("n - 1",)}, {"a": (0,), "m": (0,)},
         {("m", "n - 1")}),
        ({"a": ("n",), "m": ("2*n",), "k": ("n",)}, {"a": (2,), "m": (4,), "k": (3,)},
         {("k", "n")}),
    ],
)  # fmt: skip
def test_what_shapes_belie(shapes: dict, found: dict, belied: set) -> None:
    symbols = shared(**shapes)
    assert symbols.belied(found) == belied
    assert belied <= symbols.every()


def test_names_that_stand_alone_are_not_looked_at() -> None:
    assert not shared(a=("n", "m"), b=("k", 3), c=(None,))
    assert not shared(a=("?", "?"), b=("?",))
    assert shared(a=("n",), b=("n",))


def test_a_default_that_is_left_out_counts() -> None:
    types = {"a": TensorType(F, ("n",)), "w": TensorType(F, ("n",))}
    symbols = SharedSymbols(types, {"w": (1,)})
    assert symbols.belied({"a": (1,)}) == set()
    assert symbols.belied({"a": (5,)}) == {("w", "n")}
    assert symbols.belied({"a": (5,), "w": (5,)}) == set()


def graph(**types: ValueType | None) -> Graph:
    return Graph(
        name="g",
        nodes=[],
        inputs=[name for name in types if not name.startswith("out")],
        outputs=[name for name in types if name.startswith("out")],
        types=types,
    )


def test_what_is_no_size_or_means_several_is_forgotten() -> None:
    sequence = SequenceType(TensorType(F, ("n",)))
    optional = OptionalType(TensorType(F, ("n", 2)))
    types: dict[str, ValueType | None] = {
        "a": TensorType(F, ("n", "?", 3)),
        "b": TensorType(F, ("n + 1", "h//2")),
        "s": sequence,
        "o": optional,
        "out": TensorType(F, ("n", "", "n + 2", "h + 2")),
    }
    made = graph(**types)
    declared = forget(made, ())
    assert made.types == {
        "a": TensorType(F, ("n", None, 3)),
        "b": TensorType(F, ("n + 1", None)),
        "s": SequenceType(TensorType(F, (None,))),
        "o": OptionalType(TensorType(F, (None, 2))),
        "out": TensorType(F, (None, None, None, None)),
    }
    assert declared == types
    with stated_as(declared, made):
        assert made.types == types
    assert made.types["a"] == TensorType(F, ("n", None, 3))


def test_only_the_dimension_that_is_belied_is_forgotten() -> None:
    made = graph(a=TensorType(F, ("n",)), b=TensorType(F, ("n", "m")))
    assert list(forget(made, {("b", "n")})) == ["b"]
    assert made.types == {
        "a": TensorType(F, ("n",)),
        "b": TensorType(F, (None, "m")),
    }


def test_nothing_can_be_belied_when_all_is_forgotten() -> None:
    made = graph(
        a=TensorType(F, ("n", "n")),
        b=TensorType(F, ("n", "m")),
        c=TensorType(F, ("2*m",)),
        out=TensorType(F, ("n",)),
    )
    assert SharedSymbols.of(made)
    assert set(forget_all(made)) == {"a", "b", "c", "out"}
    assert not SharedSymbols.of(made).every()
