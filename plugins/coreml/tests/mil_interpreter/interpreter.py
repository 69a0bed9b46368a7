"""Runs a package's main function."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mil_interpreter import operations
from mil_interpreter.registry import OPERATIONS
from mil_interpreter.specification import Package, SpecificationError, tensor_type

Array = np.ndarray[Any, Any]

del operations  # imported for what it registers


class UnknownOperation(Exception):
    """The interpreter does not know an operation."""


class Interpreter:
    """A ``.mlpackage`` that computes with NumPy.

    Whatever the specification declares is held against what is computed: the types of
    inputs, of each operation's outputs and of the model's outputs.
    """

    def __init__(self, path: Path) -> None:
        self.package = Package(path)
        self._opset = int(self.package.opset.removeprefix("CoreML"))

    @property
    def operations(self) -> list[str]:
        """The types of the operations in order, constants left out."""
        block = self.package.block
        return [each.type for each in block.operations if each.type != "const"]

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name.

        Raises:
            SpecificationError: Core ML would refuse the feeds, or the specification
                says otherwise than what is computed.
            UnknownOperation: an operation is not known here.
        """
        package = self.package
        if feeds.keys() != package.inputs.keys():
            raise SpecificationError(f"feeds {set(feeds)}, not {set(package.inputs)}")
        for name, feature in package.inputs.items():
            array = feeds[name]
            if array.dtype != feature.dtype or not feature.allows(array.shape):
                raise SpecificationError(
                    f"input {name!r} is {array.dtype}{array.shape}, not {feature}"
                )
        known: dict[str, Any] = dict(feeds)
        for declared in package.function.inputs:
            _check(declared, known[declared.name])
        with np.errstate(all="ignore"):
            results = self._run(package.block, known)
        outputs = dict(zip(package.block.outputs, results, strict=True))
        for name, feature in package.outputs.items():
            if outputs[name].dtype != feature.dtype:
                raise SpecificationError(
                    f"output {name!r} is {outputs[name].dtype}, not {feature.dtype}"
                )
            if feature.shape and not feature.allows(outputs[name].shape):
                raise SpecificationError(
                    f"output {name!r} is of shape {outputs[name].shape}, not {feature}"
                )
        return outputs

    def _run(self, block: Any, known: dict[str, Any]) -> list[Array]:
        for each in block.operations:
            results = self._compute(each, known)
            for declared, result in zip(each.outputs, results, strict=True):
                known[declared.name] = _check(declared, result)
        return [known[name] for name in block.outputs]

    def _compute(self, node: Any, known: Mapping[str, Any]) -> tuple[Any, ...]:
        if node.type == "const":
            return (self.package.value(node.attributes["val"]),)
        arguments = {
            name: self._argument(argument, known)
            for name, argument in node.inputs.items()
        }
        if node.type == "cond":
            chosen = node.blocks[0] if arguments["pred"] else node.blocks[1]
            return tuple(self._run(chosen, dict(known)))
        function = OPERATIONS.get(node.type)
        if function is None:
            raise UnknownOperation(node.type)
        if "opset" in inspect.signature(function).parameters:
            arguments["opset"] = self._opset
        try:
            result = function(**arguments)
        except Exception as error:
            error.add_note(f"in operation {node.type!r} that makes {node.outputs}")
            raise
        return result if isinstance(result, tuple) else (result,)

    def _argument(self, argument: Any, known: Mapping[str, Any]) -> Any:
        values = [
            known[binding.name]
            if binding.WhichOneof("binding") == "name"
            else self.package.value(binding.value)
            for binding in argument.arguments
        ]
        widened = [_widen(value) for value in values]
        return widened[0] if len(widened) == 1 else widened


def _widen(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == np.float16:
        return value.astype(np.float32)
    return value


def _check(declared: Any, value: Any) -> Any:
    """*value* in the precision that is declared.

    Raises:
        SpecificationError: it is of another type or shape than is declared.
    """
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    expected = tensor_type(declared.type)
    if not expected.fits(array):
        raise SpecificationError(
            f"{declared.name!r} is {array.dtype}{array.shape}, not {expected}"
        )
    return array.astype(expected.dtype, copy=False)
