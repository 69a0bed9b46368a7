"""Holds what an EP returns against what the graph says of it.

Each result is looked at in every run as far as that costs nothing, and closely when a
partition is run with shapes that it was not run with before.  Only what follows from
operators is the EP's fault: what a model merely declares may be wrong, and then it is
the model that is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug.entries import CHECK, CHECK_RESULTS
from onnxplug.ep import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensor,
    SparseTensorType,
    TensorType,
    ValueType,
    named_sizes,
)
from onnxplug.errors import EpError
from onnxplug.guard import Check, in_words
from onnxplug.interruption import raise_interruption
from onnxplug.partition import GraphPartition
from onnxplug.plugins.settings import truth

if TYPE_CHECKING:
    from onnxplug.run.device import Device

MOST_SEEN: Final = 1024
"""Sets of shapes that a partition remembers having been run with."""

Shape: TypeAlias = tuple[int, ...]

_ONLY_ARRAY: Final = frozenset({np.ndarray})
_ONLY_DICT: Final = frozenset({dict})
_DTYPE: Final = attrgetter("dtype")


class Place(Record):
    """A partition as its errors name it: the EP, and the number in the report."""

    ep: str
    number: int
    partition: GraphPartition

    def __str__(self) -> str:
        nodes = self.partition.nodes
        some = "node" if len(nodes) == 1 else f"{len(nodes)} nodes from"
        on = "" if len(nodes) == 1 else " on"
        return f"partition {self.number} ({some} {describe(nodes[0])}{on})"


class ResultCheck:
    """The check of one partition's results.

    Args:
        place: who ran what.
        devices: for each output what is where it is left; ``None`` where numpy reads
            it, and it has to be an array of numpy's.
        always: look closely in every run.

    Attributes:
        doubts: outputs that had another shape than the model states, once seen;
            ``None`` where shapes are not compared with what is stated in every run.
    """

    def __init__(
        self,
        place: Place,
        devices: Sequence[Device | None],
        *,
        always: bool = False,
    ) -> None:
        self._place = place
        self._partition = partition = place.partition
        self._types = [partition.value(name).type for name in partition.outputs]
        self._devices = list(devices)
        self._dtypes = [
            None if device else _numpy_dtype(type)
            for type, device in zip(self._types, self._devices, strict=True)
        ]
        self._containers = {
            position: _container_check(None if device else type)
            for position, (type, device) in enumerate(
                zip(self._types, self._devices, strict=True)
            )
            if not isinstance(type, TensorType | None)
        }
        self._on_devices = [
            _OnDevice(position, device, type.dtype)
            for position, (type, device) in enumerate(
                zip(self._types, self._devices, strict=True)
            )
            if device is not None
            and isinstance(type, TensorType)
            and type.dtype is not None
        ]
        self._has_others = bool(self._containers or self._on_devices)
        self.doubts: list[str] | None = None
        self._always = always
        self._inputs_have_shapes = all(
            isinstance(partition.value(name).type, TensorType | None)
            for name in partition.inputs
        )
        # of inputs the shapes; of outputs the dtypes and shapes, and of one that is no
        # tensor what tells whether it is of its type; they are those of no run yet
        self._latest: tuple[Sequence[Any], Sequence[tuple[Any, Any]]] = (
            [None] * len(partition.inputs),
            [(None, lambda result: False)] * len(partition.outputs),
        )
        self._seen: set[tuple[Shape | None, ...]] = set()

    def quickest(self) -> Check:
        """What does as :meth:`check`, and takes a short run the least time."""
        if self._always:
            return self.check
        if not self._has_one_shape:
            is_usual = self._inputs_have_shapes and all(
                dtype is not None or position in self._containers
                for position, dtype in enumerate(self._dtypes)
            )
            return self._check_latest if is_usual else self.check
        (type_,), (dtype,) = self._types, self._dtypes
        assert isinstance(type_, TensorType)
        shape, ndarray, check = type_.shape, np.ndarray, self.check
        self.doubts = []
        if dtype is None:
            (on_device,) = self._on_devices

            def check_one_on_device(
                inputs: Sequence[Any],
                outputs: Sequence[Any | None],
                results: Sequence[Any],
            ) -> None:
                result = results[0]
                try:
                    if (
                        type(result) is on_device.kind
                        and result.dtype is on_device.dtype
                        and result.shape == shape
                        and (outputs[0] is None or outputs[0] is result)
                    ):
                        return
                # whatever an array of an EP's raises
                except Exception as error:  # noqa: BLE001
                    raise_interruption(error)
                check(inputs, outputs, results)

            return check_one_on_device

        def check_one(
            inputs: Sequence[Any],
            outputs: Sequence[Any | None],
            results: Sequence[Any],
        ) -> None:
            result = results[0]
            if (
                type(result) is ndarray
                and result.dtype is dtype
                and result.shape == shape
                and (outputs[0] is None or outputs[0] is result)
            ):
                return
            check(inputs, outputs, results)

        return check_one

    @property
    def _has_one_shape(self) -> bool:
        """Whether there is one result, and its element type and shape are stated."""
        if len(self._types) != 1:
            return False
        (type_,) = self._types
        return (
            isinstance(type_, TensorType)
            and type_.dtype is not None
            and type_.shape is not None
            and all(isinstance(size, int) for size in type_.shape)
        )

    def _check_latest(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        results: Sequence[Any],
    ) -> None:
        """As :meth:`check`, quickest for shapes that are those of the run before.

        For a partition that takes tensors, and leaves what it gives on the host.
        """
        fed, given = self._latest
        try:
            # by numbers, as zip() and comprehensions take longer than what they do
            place = 0
            for value in inputs:
                if value.shape != fed[place]:
                    break
                place += 1
            else:
                place = 0
                for result in results:
                    dtype, expected = given[place]
                    if dtype is None:
                        if not expected(result):
                            break
                    elif result.dtype is not dtype or result.shape != expected:
                        break
                    place += 1  # noqa: SIM113 (as said above)
                else:
                    return
        # nothing, or whatever an object of an EP's raises
        except Exception as error:  # noqa: BLE001
            raise_interruption(error)
        self.check(inputs, outputs, results)
        self._latest = (
            [value.shape for value in inputs],
            [
                (dtype, self._containers[position] if dtype is None else result.shape)
                for position, (dtype, result) in enumerate(
                    zip(self._dtypes, results, strict=True)
                )
            ],
        )

    def check(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        results: Sequence[Any],
    ) -> None:
        """Check the results of a run.

        Raises:
            EpError: one is not what the partition's operators give.
        """
        shapes: tuple[Shape | None, ...] | None
        try:
            if self._inputs_have_shapes and not self._containers:
                shapes = tuple([value.shape for value in (*inputs, *results)])
            else:
                values = (*inputs, *results)
                shapes = tuple([getattr(value, "shape", None) for value in values])
            if shapes in self._seen:
                for result, dtype in zip(results, self._dtypes, strict=True):
                    if dtype is not None and result.dtype is not dtype:
                        break
                else:
                    if not self._has_others or self._seem_right(results):
                        return
        # nothing, or whatever an object of an EP's raises
        except Exception as error:  # noqa: BLE001
            raise_interruption(error)
            shapes = None
        self.check_closely(inputs, outputs, results)
        if shapes is not None and not self._always:
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen.add(shapes)

    def _seem_right(self, results: Sequence[Any]) -> bool:
        """Whether what is no array of numpy's is as it was before.

        May raise whatever an EP's array or context does.
        """
        for position, holds in self._containers.items():
            if not holds(results[position]):
                return False
        for on_device in self._on_devices:
            if not on_device.holds(results[on_device.position]):
                return False
        return True

    def check_closely(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        results: Sequence[Any],
    ) -> None:
        """As :meth:`check`, whatever was run before."""
        names = self._partition.outputs
        for position, (name, type, result) in enumerate(
            zip(names, self._types, results, strict=True)
        ):
            device = self._devices[position]
            wrong = _mismatch(result, type, device)
            if wrong is not None:
                raise self.error(name, wrong)
            bound = outputs[position]
            if bound is not None and not _is_same(result, bound):
                raise self.error(
                    name, "another array than the one that was bound to the output"
                )
        sizes = named_sizes(
            (self._partition.value(name).type for name in self._partition.inputs),
            (getattr(value, "shape", None) for value in inputs),
        )
        follows: dict[Any, Any] = {}  # many outputs are stated alike
        doubtful: list[str] = []
        for name, type, result in zip(names, self._types, results, strict=True):
            if isinstance(type, TensorType):
                if type.shape not in follows:
                    follows[type.shape] = type.shape_for(sizes)
                if not _fits(tuple(result.shape), follows[type.shape]):
                    doubtful.append(name)
        if doubtful:
            self._judge(inputs, dict(zip(names, results, strict=True)), doubtful)

    def _judge(
        self, inputs: Sequence[Any], results: Mapping[str, Any], doubtful: Sequence[str]
    ) -> None:
        """Blame the EP for shapes that do not follow from those of the inputs."""
        from onnxplug.prepare.follow import shapes_for

        fed = {
            name: value.shape
            for name, value in zip(self._partition.inputs, inputs, strict=True)
            if hasattr(value, "shape")
        }
        partition = self._partition
        follows = shapes_for(partition.graph, partition.nodes, doubtful, fed)
        for name in doubtful:
            found, expected = tuple(results[name].shape), follows.get(name)
            if expected is not None and not _fits(found, expected):
                raise self.error(
                    name,
                    f"an array of shape {list(found)}",
                    f"; for inputs of {_listed(fed)} it has the shape {list(expected)}",
                )
            if self.doubts is not None and name not in self.doubts:
                self.doubts.append(name)
            import logging  # seldom needed, and slow to import

            logging.getLogger("onnxplug.session").info(
                "%s has the shape %s, and the model declares %s; the declaration is "
                "not believed",
                name,
                list(found),
                self._partition.value(name).type,
            )

    def error(self, name: str, found: str, expected: str | None = None) -> EpError:
        """The EP's failure to return what output *name* is."""
        if expected is None:
            expected = f"; expected {self._partition.value(name).type}"
        return EpError(
            f"{self._place.ep} returned {found} for {name!r}, an output of "
            f"{self._place}{expected}",
            ep=self._place.ep,
            stage="run",
        )


class _OnDevice:
    """What a result on a device has to be, asked in each run in the shortest way.

    Arrays of one class whose ``dtype`` is one object are of one element type, so that
    the context is asked for the first.

    Attributes:
        position: of the output.
        kind, dtype: the class and the ``dtype`` of the last result that was right.
    """

    __slots__ = ("_data_type", "_device", "dtype", "kind", "position")

    def __init__(self, position: int, device: Device, data_type: DataType) -> None:
        self.position = position
        self.kind: type[Any] | None = None
        self.dtype: Any = None
        self._device = device
        self._data_type = data_type

    def holds(self, result: Any) -> bool:
        """Whether *result* is of the element type, and no array of the host.

        May raise whatever the EP's array or context does.
        """
        dtype = getattr(result, "dtype", None)
        if type(result) is self.kind and dtype is self.dtype and dtype is not None:
            return True
        if isinstance(result, np.ndarray):
            return False
        if self._device.context.data_type(result) is not self._data_type:
            return False
        self.kind, self.dtype = type(result), dtype
        return True


def checks_always(config: Mapping[str, str]) -> bool:
    """Whether a session with this *config* looks at all results closely.

    Raises:
        OptionError: the environment variable has a value that is not understood.
    """
    said = config[CHECK_RESULTS]
    return said == "1" if said else truth(os.environ, CHECK, default=False)


def _numpy_dtype(type: ValueType | None) -> np.dtype[Any] | None:
    if not isinstance(type, TensorType) or type.dtype is None:
        return None
    return type.dtype.numpy


def _container_check(value_type: ValueType | None) -> Callable[[Any], bool]:
    """What finds out in the shortest way whether a result is sure to be of a type that
    is no tensor's."""
    match value_type:
        case SequenceType(TensorType(DataType() as dtype)):
            expected = dtype.numpy
            return lambda result: (
                type(result) is list
                and _ONLY_ARRAY.issuperset(map(type, result))
                and all(map(is_, map(_DTYPE, result), repeat(expected)))
            )
        case SequenceType(MapType()):
            return lambda result: (
                type(result) is list and _ONLY_DICT.issuperset(map(type, result))
            )
        case MapType():
            return lambda result: type(result) is dict
    return lambda result: False


def _mismatch(result: Any, type: ValueType | None, device: Device | None) -> str | None:
    """What *result* is if it is no value of *type*; shapes are looked at elsewhere.

    Args:
        device: what is where it has to be; ``None`` where numpy reads it.
    """
    match type:
        case TensorType(dtype):
            if device is not None and result is not None:
                return device.what_is_wrong(result, None, dtype)
            if not isinstance(result, np.ndarray):
                return _kind(result)
            if dtype is not None and not _holds(result, dtype):
                return f"{result.dtype}{list(result.shape)}"
        case SequenceType(element):
            if not isinstance(result, list | tuple):
                return _kind(result)
            wrong = (_mismatch(item, element, device) for item in result)
            found = next(filter(None, wrong), None)
            return None if found is None else f"a list with {found}"
        case OptionalType(element):
            if result is not None:
                return _mismatch(result, element, device)
        case MapType():
            if not isinstance(result, dict):
                return _kind(result)
        case SparseTensorType():
            if not isinstance(result, SparseTensor):
                return _kind(result)
    return None


def _kind(value: object) -> str:
    if value is None:
        return "nothing (None)"
    return in_words(value)


def _holds(array: np.ndarray[Any, Any], dtype: DataType) -> bool:
    if array.dtype is dtype.numpy:  # which saves asking numpy for its name
        return True
    try:
        return DataType.from_numpy(array.dtype) is dtype and array.dtype.isnative
    except TypeError:
        return False


def _is_same(result: Any, bound: Any) -> bool:
    if result is bound:
        return True
    if isinstance(result, np.ndarray) and isinstance(bound, np.ndarray):
        place, wanted = (
            array.__array_interface__["data"][0] for array in (result, bound)
        )
        return result.shape == bound.shape and bool(place == wanted)
    return False


def _fits(found: Shape, expected: Sequence[int | None] | None) -> bool:
    """Whether *found* is what is *expected*, as far as that is known."""
    return expected is None or (
        len(found) == len(expected)
        and all(
            size in (None, have) for have, size in zip(found, expected, strict=True)
        )
    )


def _listed(shapes: Mapping[str, Shape]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
