"""Small models that many EPs take, for checks that ask how something is computed.

Which operator is computed matters nothing there, so it is the first of some that the EP
takes, in the first element type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import onnx.helper as oh
from onnx.reference import ReferenceEvaluator

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.trial import Trial

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]

OPSET: Final = 17
DTYPES: Final = tuple(
    map(ep.DataType, ("float32", "float16", "float64", "int32", "int64"))
)
UNARY: Final = ("Relu", "Abs", "Neg", "Tanh", "Sigmoid", "Sqrt", "Exp", "Identity")
BINARY: Final = ("Add", "Mul", "Sub", "Max", "Min")

NOTHING_TAKEN: Final = (
    "the EP takes none of the kit's small models of elementwise nodes"
)

LARGEST: Final = 16
"""Numbers that are fed are whole, from 1 to below this: products are exact."""


class Node(Record):
    """A node of a specimen: its operator, what it reads, and what it makes."""

    op_type: str
    inputs: Sequence[str]
    output: str
    attributes: Mapping[str, Any] = {}


class Specimen(Record):
    """A model that the EP takes whole.

    Attributes:
        name: what it is, in words.
        model: serialized.
        dtype: of all its values.
        shapes: of its inputs as they are fed, by name.
        evaluator: what computes it independently.
    """

    name: str
    model: bytes
    dtype: ep.DataType
    shapes: Mapping[str, Shape]
    evaluator: Any

    @property
    def outputs(self) -> list[str]:
        """The names of its outputs."""
        return list(self.evaluator.output_names)

    def feeds(
        self, numbers: np.random.Generator, shapes: Mapping[str, Shape] | None = None
    ) -> dict[str, Array]:
        """Whole numbers for its inputs."""
        return {
            name: np.asarray(
                numbers.integers(1, LARGEST, shape).astype(self.dtype.numpy)
            )
            for name, shape in (shapes or self.shapes).items()
        }

    def expected(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """What it gives for *feeds*, by name."""
        with np.errstate(all="ignore"):
            results = self.evaluator.run(None, dict(feeds))
        return dict(zip(self.outputs, map(np.asarray, results), strict=True))

    def case(self, feeds: Mapping[str, Array], what: str = "") -> Case:
        """Itself with *feeds*, for a finding; *what* is done with them."""
        return Case(self.model, feeds, f"{self.name}{', ' if what else ''}{what}")


def agrees(found: Array, expected: Array) -> bool:
    """Whether numbers are those that are expected, but for rounding.

    Numbers of other runs, of nothing and of poison are far off.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    with np.errstate(all="ignore"):
        return bool(
            np.allclose(
                found.astype(np.float64),
                expected.astype(np.float64),
                rtol=0.02,
                atol=0.02,
                equal_nan=True,
            )
        )


def differs(found: Array, expected: Array) -> str:
    """In which way numbers are not those that are expected, in words."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return (
            f"found {found.dtype}{list(found.shape)}, "
            f"expected {expected.dtype}{list(expected.shape)}"
        )
    wrong = ~np.isclose(
        found.astype(np.float64), expected.astype(np.float64), 0.02, 0.02
    )
    at = tuple(int(place) for place in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} numbers differ, the first at {list(at)}: "
        f"found {found[at]}, expected {expected[at]}"
    )


class Operators(Record):
    """What the EP takes of elementwise operators.

    Attributes:
        dtype: in which element type.
        unary: of one input; empty: none.
        binary: of two.
    """

    dtype: ep.DataType
    unary: Sequence[str]
    binary: Sequence[str]


def taken(trial: Trial, *, most: int = 2) -> Operators | None:
    """Operators that the EP takes; ``None``, which the trial is told, if none."""
    for dtype in DTYPES:
        unary = _taken(trial.subject, dtype, UNARY, 1, most)
        binary = _taken(trial.subject, dtype, BINARY, 2, most)
        if unary or binary:
            return Operators(dtype, unary, binary)
    trial.leave_out(NOTHING_TAKEN)
    return None


def _taken(
    subject: Subject,
    dtype: ep.DataType,
    operators: Sequence[str],
    arity: int,
    most: int,
) -> list[str]:
    found: list[str] = []
    for op_type in operators:
        names = ["x", "z"][:arity]
        node = Node(op_type, names, "y")
        if takes(subject, make(op_type, dtype, [node], dict.fromkeys(names, (4, 6)))):
            found.append(op_type)
        if len(found) == most:
            break
    return found


def takes(subject: Subject, specimen: Specimen) -> bool:
    """Whether the EP takes all nodes."""
    try:
        subject.session(specimen.model, checked=False).close()
    except Exception as error:  # noqa: BLE001 (whether it may raise is asked elsewhere)
        ep.raise_interruption(error)
        return False
    return True


def make(
    name: str,
    dtype: ep.DataType,
    nodes: Sequence[Node],
    shapes: Mapping[str, Shape],
    *,
    outputs: Sequence[str] = ("y",),
    weights: Mapping[str, Array] | None = None,
    symbols: Mapping[str, Sequence[str | int]] | None = None,
) -> Specimen:
    """A specimen of *nodes*.

    Args:
        symbols: what the model says of the shapes of inputs, by name, where that is no
            number.
    """
    said = {**shapes, **(symbols or {})}
    graph = oh.make_graph(
        [
            oh.make_node(each.op_type, each.inputs, [each.output], **each.attributes)
            for each in nodes
        ],
        "specimen",
        [oh.make_tensor_value_info(key, dtype.onnx, said[key]) for key in shapes],
        [oh.make_tensor_value_info(key, dtype.onnx, None) for key in outputs],
        [
            onnx.numpy_helper.from_array(array, key)
            for key, array in (weights or {}).items()
        ],
    )
    model = oh.make_model(
        graph, opset_imports=[oh.make_opsetid("", OPSET)], ir_version=8
    )
    model = onnx.shape_inference.infer_shapes(model)
    return Specimen(
        name, model.SerializeToString(), dtype, dict(shapes), ReferenceEvaluator(model)
    )


def weight(dtype: ep.DataType, shape: Shape, start: int = 1) -> Array:
    """Whole numbers, another in each place next to another."""
    count = int(np.prod(shape))
    numbers = (np.arange(count) + start) % (LARGEST - 1) + 1
    return np.asarray(numbers.reshape(shape).astype(dtype.numpy))


def single(has: Operators, shape: Shape = (4, 6)) -> Specimen:
    """One node."""
    if has.binary:
        names, op_type = ["x", "z"], has.binary[0]
    else:
        names, op_type = ["x"], has.unary[0]
    return make(
        f"one {op_type}",
        has.dtype,
        [Node(op_type, names, "y")],
        dict.fromkeys(names, shape),
    )


def several(
    has: Operators, shape: Shape = (4, 6), *, symbols: Sequence[str | int] | None = None
) -> Specimen:
    """Nodes with a weight, and two outputs, of which one is read by others."""
    dtype = has.dtype
    if has.binary:
        first, second = has.binary[0], has.binary[-1]
        inputs = ["x", "z"]
        nodes = [
            Node(first, ["x", "z"], "a"),
            Node(second, ["a", "w"], "b"),
            Node(first, ["b", "x"], "y"),
        ]
        weights = {"w": weight(dtype, shape[-1:])}
    else:
        first, second = has.unary[0], has.unary[-1]
        inputs, weights = ["x"], {}
        nodes = [Node(first, ["x"], "a"), Node(second, ["a"], "y")]
    return make(
        f"{', '.join(node.op_type for node in nodes)}{' of any size' * bool(symbols)}",
        dtype,
        nodes,
        dict.fromkeys(inputs, shape),
        outputs=["y", "a"],
        weights=weights,
        symbols=None if symbols is None else dict.fromkeys(inputs, symbols),
    )


def of_any_size(has: Operators, shape: Shape = (4, 6)) -> Specimen:
    """As :func:`several`, the first size of whose inputs is not known before."""
    return several(has, shape, symbols=["n", *shape[1:]])


def passing_on(has: Operators) -> Iterator[Specimen]:
    """Operators that may give what they are given, in another shape."""
    shape = (4, 6)
    made: dict[str, tuple[Node, dict[str, Array]]] = {
        "Identity": (Node("Identity", ["x"], "y"), {}),
        "Reshape": (Node("Reshape", ["x", "s"], "y"), {"s": np.array([3, 8])}),
        "Flatten": (Node("Flatten", ["x"], "y"), {}),
        "Unsqueeze": (Node("Unsqueeze", ["x", "s"], "y"), {"s": np.array([0])}),
        "Transpose": (Node("Transpose", ["x"], "y", {"perm": [1, 0]}), {}),
        "Slice": (
            Node("Slice", ["x", "s", "e"], "y"),
            {"s": np.array([1]), "e": np.array([3])},
        ),
        "Relu": (Node("Relu", ["x"], "y"), {}),
        "Abs": (Node("Abs", ["x"], "y"), {}),
    }
    for name, (node, weights) in made.items():
        yield make(f"one {name}", has.dtype, [node], {"x": shape}, weights=weights)


Choose: TypeAlias = Callable[[Operators], Specimen]


def chosen(trial: Trial, *choices: Choose) -> Iterator[Specimen]:
    """Of *choices* those that the EP takes; the trial is told of the others."""
    has = taken(trial)
    if has is None:
        return
    for choose in choices:
        specimen = choose(has)
        if takes(trial.subject, specimen):
            yield specimen
        else:
            trial.leave_out(f"the EP does not take all of {specimen.name}")
