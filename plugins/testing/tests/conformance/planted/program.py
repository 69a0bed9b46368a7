"""Programs: steps over slots, from which functions in Python are generated.

A program is made of a partition, or of bytes, which anybody may have written.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from onnxplug import ep

from .operators import Array, Operator, count_of

MAGIC: Final = b"GENERATE"
FORMAT: Final = 3
"""Of bytes; 2 had the inputs of a step in reverse order."""

_HEAD: Final = struct.Struct("<8sII")


class Step(NamedTuple):
    """A call of an operator's function.

    Attributes:
        op: the operator, with its domain unless it is ONNX's.
        version: of the operator.
        attributes: numbers, texts, and lists of numbers.
        inputs: slots, ``None`` for one that is left out.
        output: the slot of the result.
        count: of how many elements each result of a mean is, where that is known.
    """

    op: str
    version: int
    attributes: dict[str, Any]
    inputs: list[int | None]
    output: int
    count: int | None = None


class Program(NamedTuple):
    """Steps over slots: inputs, then constants, then results.

    Attributes:
        inputs: how many slots are inputs.
        constants: contents of the slots after these.
        steps: in order.
        outputs: slots.
    """

    inputs: int
    constants: list[Array]
    steps: list[Step]
    outputs: list[int]

    @property
    def slots(self) -> int:
        """How many there are."""
        return self.inputs + len(self.constants) + len(self.steps)


def program_of(partition: ep.Partition) -> Program:
    """The program that computes *partition*; where shapes are known, so are counts."""
    slots = {name: slot for slot, name in enumerate(partition.inputs)}
    constants: list[Array] = []
    for node in partition.nodes:
        for name in filter(None, node.inputs):
            content = partition.constant(name)
            if content is not None and name not in slots:
                slots[name] = len(slots)
                # which may be a result, and is to be copied then
                constants.append(np.array(content))
                constants[-1].setflags(write=False)
    steps = []
    for node in partition.nodes:
        (output,) = node.outputs
        assert output is not None
        inputs = [None if name is None else slots[name] for name in node.inputs]
        slots[output] = len(slots)
        op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        attributes = {key: _plain(value) for key, value in node.attributes.items()}
        count = known_count(partition, node)
        step = Step(op, node.since_version, attributes, inputs, slots[output], count)
        steps.append(step)
    outputs = [slots[name] for name in partition.outputs]
    return Program(len(partition.inputs), constants, steps, outputs)


def known_count(partition: ep.Partition, node: ep.Node) -> int | None:
    """Of how many elements each result of a mean is, if its input's shape is known."""
    if node.op_type != "ReduceMean":
        return None
    name = node.inputs[0]
    shape = None if name is None else partition.value(name).shape
    if shape is None or not all(isinstance(size, int) for size in shape):
        return None
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    along = None if axes is None else partition.constant(axes)
    sizes = tuple(size for size in shape if isinstance(size, int))
    return count_of(node.attributes, sizes, along)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def kernels_of(
    program: Program, operators: Mapping[str, Operator], double: bool
) -> list[Callable[..., Any]]:
    """The functions of the steps.

    Args:
        double: sums and products of float32 are added up in float64.
    """
    kernels = []
    for step in program.steps:
        kernel = operators[step.op].make(step.attributes, step.version)
        if step.count is not None:
            kernel = _mean_of(operators, step)
        if double and step.op in WIDENED:
            kernel = _in_double(kernel)
        kernels.append(kernel)
    return kernels


WIDENED: Final = frozenset({"Gemm", "MatMul", "ReduceMean", "ReduceSum"})
"""What adds up many elements."""


def _mean_of(operators: Mapping[str, Operator], step: Step) -> Callable[..., Any]:
    total = operators["ReduceSum"].make(step.attributes, step.version)
    count = step.count
    return lambda x, axes=None: total(x, axes) / x.dtype.type(count)


def _in_double(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def widened(*arrays: Array | None) -> Any:
        (first, *_) = arrays
        if first is None or first.dtype != np.float32:
            return kernel(*arrays)
        wide = [
            each.astype(np.float64)
            if each is not None and each.dtype == np.float32
            else each
            for each in arrays
        ]
        return kernel(*wide).astype(np.float32)

    return widened


def source_of(program: Program, limit: int) -> str:
    """Functions of at most *limit* steps each, one after the other."""
    lines = []
    for first in range(0, len(program.steps), limit):
        lines.append(f"def function{first // limit}(values, kernels, check):")
        for at, step in enumerate(program.steps[first : first + limit], first):
            given = ", ".join(
                "None" if slot is None else f"values[{slot}]" for slot in step.inputs
            )
            lines.append("    check()")
            lines.append(f"    values[{step.output}] = kernels[{at}]({given})")
    return "\n".join(lines)


def generate(source: str) -> list[Callable[..., None]]:
    """The functions of *source*."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "<generated>", "exec"), namespace)
    return [
        namespace[f"function{number}"] for number in range(source.count("def function"))
    ]


def write(program: Program) -> bytes:
    """*program* as bytes."""
    facts = {
        "inputs": program.inputs,
        "constants": [
            [str(ep.DataType.from_numpy(each.dtype)), list(each.shape)]
            for each in program.constants
        ],
        "steps": [list(step) for step in program.steps],
        "outputs": program.outputs,
    }
    text = json.dumps(facts).encode()
    contents = [each.tobytes() for each in program.constants]
    return b"".join([_HEAD.pack(MAGIC, FORMAT, len(text)), text, *contents])


def read(data: memoryview, operators: Mapping[str, Operator]) -> Program:
    """The program that :func:`write` gave as *data*.

    Raises:
        ValueError: it did not.
    """
    try:
        magic, version, length = _HEAD.unpack_from(data)
        if magic != MAGIC or version != FORMAT:
            raise ValueError(f"it is of the format {version}, not of {FORMAT}")
        facts = json.loads(bytes(data[_HEAD.size : _HEAD.size + length]))
        constants = _constants(facts["constants"], data[_HEAD.size + length :])
        steps = [Step(*step) for step in facts["steps"]]
        program = Program(facts["inputs"], constants, steps, facts["outputs"])
        _check(program, operators)
    except Exception as error:
        ep.raise_interruption(error)
        raise ValueError(f"it is damaged: {error}") from error
    return program


def _constants(rows: Sequence[Any], data: memoryview) -> list[Array]:
    constants, begin = [], 0
    for name, shape in rows:
        dtype = ep.DataType(name).numpy
        nbytes = dtype.itemsize
        for size in shape:
            if size < 0:
                raise ValueError(f"a size is {size}")
            nbytes *= size
        if nbytes > len(data) - begin:
            raise ValueError("it is cut off")
        content = np.frombuffer(data[begin : begin + nbytes], dtype)
        constants.append(content.reshape(shape))
        begin += nbytes
    if begin != len(data):
        raise ValueError("it is too long")
    return constants


def _check(program: Program, operators: Mapping[str, Operator]) -> None:
    """Check that each step reads what is there, and can be made."""
    if program.inputs < 0:
        raise ValueError("it has fewer than no inputs")
    filled = program.inputs + len(program.constants)
    for step in program.steps:
        operator = operators[step.op]
        first, last = operator.versions
        if not first <= step.version <= last or step.output != filled:
            raise ValueError(f"a step is not of this program: {step.op}")
        if step.attributes.keys() - operator.attributes.keys():
            raise ValueError(f"{step.op} has {sorted(step.attributes)}")
        for value in step.attributes.values():
            if not isinstance(value, int | float | str | list):
                raise ValueError(f"{step.op} has {value!r}")
        _check_slots([slot for slot in step.inputs if slot is not None], filled)
        if step.count is not None and not isinstance(step.count, int):
            raise ValueError(f"a mean is of {step.count!r} elements")
        operator.make(step.attributes, step.version)
        filled += 1
    _check_slots(program.outputs, filled)


def _check_slots(slots: Sequence[Any], filled: int) -> None:
    for slot in slots:
        if not isinstance(slot, int) or not 0 <= slot < filled:
            raise ValueError(f"it reads {slot!r} of {filled} values")
