"""A partition as one function in Python.

Of ``y = Relu (x + b)``, with a constant *b*, it becomes ::

    def program(v0):
        v2 = v0 + v1
        del v0
        v3 = np.maximum(v2, 0)
        del v2
        return np.asarray(v3),

Values are called by number, as names of the model need not be names of Python's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring import liveness

from .operators import OPERATORS

Array: TypeAlias = np.ndarray[Any, Any]


class Program(NamedTuple):
    """What a partition was compiled to.

    Attributes:
        source: in Python, for people.
        function: takes the partition's inputs by position, and returns its outputs.
    """

    source: str
    function: Callable[..., tuple[Array, ...]]


def compile_program(partition: ep.Partition) -> Program:
    """The program of *partition*, whose nodes were all taken.

    Constants are the model's own arrays, bound to the function. An array is dropped
    after its last use.
    """
    numbers: dict[str, int] = {}
    constants: dict[str, Any] = {}

    def variable(name: str) -> str:
        known = name in numbers
        called = f"v{numbers.setdefault(name, len(numbers))}"
        if not known and (content := partition.constant(name)) is not None:
            constants[called] = content
        return called

    parameters = ", ".join(map(variable, partition.inputs))
    lines = [f"def program({parameters}):"]
    uses = [_names(node) for node in partition.nodes]
    written = [_statement(node, variable) for node in partition.nodes]
    kept = {numbers[name] for name in partition.outputs}
    kept |= {int(called[1:]) for called in constants}
    ended = liveness.last_uses([[numbers[n] for n in names] for names in uses], kept)
    for statement, dropped in zip(written, ended, strict=True):
        lines.append(f"    {statement}")
        if dropped:
            lines.append(f"    del {', '.join(f'v{number}' for number in dropped)}")
    # numpy makes scalars of arrays of rank 0; the host wants arrays
    results = "".join(f"np.asarray({variable(name)})," for name in partition.outputs)
    lines.append(f"    return {results}")
    source = "\n".join(lines)
    namespace: dict[str, Any] = {"np": np, **constants}
    # the source has numbers and numpy's functions only, whatever the model is
    exec(compile(source, "<partition>", "exec"), namespace)
    return Program(source, namespace["program"])


def _names(node: ep.Node) -> list[str]:
    return [name for name in (*node.inputs, *node.outputs) if name is not None]


def _statement(node: ep.Node, variable: Callable[[str], str]) -> str:
    arguments = [variable(name) for name in node.inputs if name is not None]
    expression = OPERATORS[node.op_type].write(node.attributes, *arguments)
    (result,) = [variable(name) for name in node.outputs if name is not None]
    return f"{result} = {expression}"
