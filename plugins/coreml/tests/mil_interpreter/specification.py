"""Reads a package: types, values and functions of its specification."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mil_interpreter.blobs import BlobFile

_DTYPES: Final[Mapping[str, Any]] = {
    "BOOL": np.bool_,
    "STRING": np.str_,
    "FLOAT16": np.float16,
    "FLOAT32": np.float32,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
}


class SpecificationError(Exception):
    """A specification is not what Core ML would take, or not what it says it is."""


class TensorType(NamedTuple):
    """A tensor's type; ``None`` for sizes that the specification leaves open."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]

    def fits(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether *array* is of this type."""
        return self.dtype.kind == array.dtype.kind and self.fits_shape(array.shape)

    def fits_shape(self, shape: tuple[int, ...]) -> bool:
        """Whether *shape* is one of this type's."""
        return len(shape) == len(self.shape) and all(
            size is None or size == found
            for size, found in zip(self.shape, shape, strict=True)
        )


class Feature(NamedTuple):
    """An input or output as the model describes it to programs.

    Attributes:
        shapes: all shapes that are enumerated; empty: there are ranges.
        ranges: of each dimension the least and the greatest size (-1: no greatest);
            empty: there are none.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    ranges: tuple[tuple[int, int], ...]

    def allows(self, shape: tuple[int, ...]) -> bool:
        """Whether Core ML takes an array of *shape*."""
        if self.shapes:
            return shape in self.shapes
        if self.ranges:
            return len(shape) == len(self.ranges) and all(
                low <= size and (high == -1 or size <= high)
                for (low, high), size in zip(self.ranges, shape, strict=True)
            )
        return shape == self.shape


class Package:
    """A ``.mlpackage``.

    Attributes:
        model: the specification.
        inputs, outputs: what the model's description says, by name.
        opset: of its main function, ``CoreML7`` for iOS 17.
        block: the main function's, of that opset.
    """

    def __init__(self, path: Path) -> None:
        from coremltools.proto import Model_pb2

        manifest = json.loads((path / "Manifest.json").read_text(encoding="utf-8"))
        root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
        file = path / "Data" / root
        self._folder = file.parent
        self._blobs: dict[str, BlobFile] = {}
        self.model = Model_pb2.Model.FromString(file.read_bytes())
        description = self.model.description
        self.inputs = {item.name: _feature(item) for item in description.input}
        self.outputs = {item.name: _feature(item) for item in description.output}
        if list(self.model.mlProgram.functions) != ["main"]:
            raise SpecificationError("it has other functions than 'main'")
        self.function = self.model.mlProgram.functions["main"]
        self.opset: str = self.function.opset
        self.block = self.function.block_specializations[self.opset]

    def value(self, value: Any) -> Any:
        """A value of the specification as an array, or a text."""
        declared = tensor_type(value.type)
        shape = tuple(size or 0 for size in declared.shape)
        if value.WhichOneof("value") == "blobFileValue":
            array = self._read_blob(value.blobFileValue)
            if array.dtype != declared.dtype:
                raise SpecificationError(f"a blob of {array.dtype} for {declared}")
            return array.reshape(shape)
        tensor = value.immediateValue.tensor
        field = tensor.WhichOneof("value")
        values = getattr(tensor, field).values
        if field == "strings":
            return values[0]
        if field == "bytes":
            return np.frombuffer(values, declared.dtype).reshape(shape)
        return np.array(values, declared.dtype).reshape(shape)

    def _read_blob(self, place: Any) -> np.ndarray[Any, Any]:
        name = place.fileName
        if not name.startswith("@model_path/"):
            raise SpecificationError(f"weights in {name}")
        if name not in self._blobs:
            file = self._folder / name.removeprefix("@model_path/")
            self._blobs[name] = BlobFile(file)
        return self._blobs[name].read(place.offset)


def tensor_type(value_type: Any) -> TensorType:
    """The type of a tensor, as a specification states it."""
    from coremltools.proto import MIL_pb2

    if value_type.WhichOneof("type") != "tensorType":
        raise SpecificationError(f"no tensor: {value_type}")
    tensor = value_type.tensorType
    shape = tuple(
        dim.constant.size if dim.WhichOneof("dimension") == "constant" else None
        for dim in tensor.dimensions
    )
    if tensor.rank != len(shape):
        raise SpecificationError(f"rank {tensor.rank} with dimensions {shape}")
    name = MIL_pb2.DataType.Name(tensor.dataType)
    return TensorType(np.dtype(_DTYPES[name]), shape)


def _feature(description: Any) -> Feature:
    from coremltools.proto import FeatureTypes_pb2

    array = description.type.multiArrayType
    name = FeatureTypes_pb2.ArrayFeatureType.ArrayDataType.Name(array.dataType)
    return Feature(
        np.dtype(_DTYPES[name]),
        tuple(array.shape),
        tuple(tuple(each.shape) for each in array.enumeratedShapes.shapes),
        tuple(
            (each.lowerBound, each.upperBound) for each in array.shapeRange.sizeRanges
        ),
    )
