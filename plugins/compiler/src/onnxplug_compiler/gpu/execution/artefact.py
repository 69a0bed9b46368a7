"""Compiled partitions as bytes: texts of kernels, numbers, places and constants.

Nothing in them is run but these texts, so they are for dialects alone whose kernels
read and write only what is bound, as WGSL's, which the driver's compiler checks: what
one does not write first is what an earlier run of the process left there.  All else is
data that is checked here, as who wrote a model wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.execution.device import Device
from onnxplug_compiler.gpu.execution.linking import (
    FLAG,
    KINDS,
    AnyStep,
    CallStep,
    FlagCheck,
    Linked,
    Place,
    Step,
)
from onnxplug_compiler.gpu.packing import packed
from onnxplug_compiler.gpu.shapes import Shapes
from onnxplug_compiler.ir.buffers import Constant, Packed
from onnxplug_compiler.schedule.planned import Result

FORMAT: Final = 4

_LENGTH: Final = 8
"""Bytes of the length of the description that the bytes begin with."""

_ALIGNMENT: Final = 64
_MOST: Final = 1 << 40
"""No number of a description is larger, but of what is only shown."""

_MOST_WORK: Final = 1 << 62


class KeptSegment(Record):
    """A segment for one set of input shapes.

    Attributes:
        inputs, outputs: names of values.
        given: dtypes and shapes of the inputs.
        results: of the outputs.
        linked: what computes them; ``None`` if nothing has to.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    given: tuple[Result, ...]
    results: tuple[Result, ...]
    linked: Linked | None


class Artefact(Record):
    """A compiled partition.

    Attributes:
        inputs, outputs: names of its values, by position.
        segments: in the order in which they run.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    segments: tuple[KeptSegment, ...]


def _compiled_for(device: Device, shapes: Shapes) -> dict[str, Any]:
    """What compiled partitions depend on."""
    return {"format": FORMAT, **device.identity(), "shapes": shapes._asdict()}


# writing


class _Data:
    """Bytes behind the description."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, content: bytes) -> list[int]:
        """Where *content* is, and how long it is."""
        begin = self.size
        padded = content.ljust(-(-len(content) // _ALIGNMENT) * _ALIGNMENT, b"\0")
        self.parts.append(padded)
        self.size += len(padded)
        return [begin, len(content)]


def write(artefact: Artefact, device: Device, shapes: Shapes) -> bytes:
    """*artefact* as bytes for :func:`read`.

    Raises:
        Declined: some of it is done by a library.
    """
    data = _Data()
    texts: dict[tuple[str, tuple[bool, ...], int], int] = {}
    segments = [_segment(each, data, texts) for each in artefact.segments]
    described = json.dumps(
        {
            "identity": _compiled_for(device, shapes),
            "inputs": artefact.inputs,
            "outputs": artefact.outputs,
            "texts": list(texts),
            "segments": segments,
        }
    ).encode()
    length = _LENGTH + len(described)
    described += b" " * (-length % _ALIGNMENT)
    head = len(described).to_bytes(_LENGTH, "little")
    return b"".join([head, described, *data.parts])


def _segment(
    segment: KeptSegment, data: _Data, texts: dict[Any, int]
) -> dict[str, Any]:
    linked = segment.linked
    return {
        "inputs": segment.inputs,
        "outputs": segment.outputs,
        "given": [_value(each, data) for each in segment.given],
        "results": [_value(each, data) for each in segment.results],
        "program": None if linked is None else _program(linked, data, texts),
    }


def _value(value: Result, data: _Data) -> list[Any]:
    content = value.content
    kept = (
        None if content is None else data.add(np.ascontiguousarray(content).tobytes())
    )
    return [str(ep.DataType.from_numpy(value.dtype)), value.shape, kept]


def _program(linked: Linked, data: _Data, texts: dict[Any, int]) -> dict[str, Any]:
    return {
        "steps": [_step(step, texts) for step in linked.steps],
        "numbers": data.add(linked.numbers),
        "slots": linked.slots,
        "constants": [data.add(_content(each)) for each in linked.constants],
        "flags": linked.flags,
        "checks": [_check(each) for each in linked.checks],
    }


def _step(step: AnyStep, texts: dict[Any, int]) -> list[Any]:
    if isinstance(step, CallStep):
        raise ep.Declined(f"{step.label} is done by a library")
    kernel = step.text, step.written, step.lanes
    return [
        texts.setdefault(kernel, len(texts)),
        [[KINDS.index(kind), *rest] for kind, *rest in step.places],
        step.window,
        step.start,
        step.x,
        step.y,
        [step.label, step.flops, step.nbytes, step.in_place],
    ]


def _content(constant: Constant | Packed) -> bytes:
    if isinstance(constant, Packed):
        raise ep.Declined("a constant has a layout of a library's")
    return packed(constant.array).tobytes()


def _check(check: FlagCheck) -> list[Any]:
    error = check.error(1)
    return [check.number, str(error), getattr(error, "node", "")]


# reading


def read(content: memoryview, device: Device, shapes: Shapes) -> Artefact:
    """What :func:`write` made bytes of; its constants are views of *content*.

    Raises:
        ValueError: it is damaged, was not written by this version, or for another
            adapter or driver, or other shapes of workgroups.
    """
    try:
        end = _LENGTH + _whole(int.from_bytes(content[:_LENGTH], "little"))
        described = json.loads(bytes(content[_LENGTH:end]))
        found, here = described["identity"], _compiled_for(device, shapes)
        if found != here:
            raise ValueError(f"it was compiled for {found}, and here is {here}")
        reader = _Reader(content[end:], described["texts"], device)
        return Artefact(
            _names(described["inputs"]),
            _names(described["outputs"]),
            tuple(reader.segment(each) for each in described["segments"]),
        )
    except (KeyError, TypeError, IndexError, RecursionError) as error:
        ep.raise_interruption(error)
        raise ValueError(f"it is damaged: {type(error).__name__}: {error}") from error


class _Reader:
    def __init__(self, data: memoryview, texts: Any, device: Device) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._largest = device.largest_buffer
        self._most = device.largest
        self._most_buffers = device.most_buffers
        self._most_groups = device.most_groups
        self._alignment = device.alignment
        self._apart = device.numbers_alignment
        self._texts = [
            (_text(text), tuple(bool(each) for each in written), _whole(lanes))
            for text, written, lanes in texts
        ]

    def _content(self, place: Any) -> np.ndarray[Any, Any]:
        begin, nbytes = place
        begin, end = _whole(begin), _whole(begin) + _whole(nbytes)
        if end > len(self._data):
            raise ValueError("it ends before its data do")
        return self._data[begin:end]

    def segment(self, found: Mapping[str, Any]) -> KeptSegment:
        given = tuple(self._value(each) for each in found["given"])
        results = tuple(self._value(each) for each in found["results"])
        inputs, outputs = _names(found["inputs"]), _names(found["outputs"])
        if (len(inputs), len(outputs)) != (len(given), len(results)):
            raise ValueError("a segment has more names than values, or fewer")
        program = found["program"]
        linked = None
        if program is not None:
            linked = self._program(program, given, results)
        return KeptSegment(inputs, outputs, given, results, linked)

    def _value(self, found: Any) -> Result:
        kind, shape, place = found
        dtype = ep.DataType(kind).numpy
        if dtype.hasobject:
            raise ValueError(f"a value has elements of {kind}")
        sizes = tuple(_whole(size) for size in shape)
        value = Result(dtype, sizes)
        if value.nbytes > self._largest:
            raise ValueError("a value is larger than the device has arrays")
        if place is None:
            return value
        return value._replace(content=self._content(place).view(dtype).reshape(sizes))

    def _program(
        self,
        found: Mapping[str, Any],
        given: Sequence[Result],
        results: Sequence[Result],
    ) -> Linked:
        numbers = self._content(found["numbers"]).tobytes()
        slots = tuple(_whole(size, self._largest) for size in found["slots"])
        constants = tuple(self._constant(each) for each in found["constants"])
        flags = _whole(found["flags"], self._largest // FLAG)
        buffers = {
            "slot": slots,
            "input": [each.nbytes for each in given],
            "output": [each.nbytes for each in results],
            "constant": [each.nbytes for each in constants],
            "flags": [flags * FLAG] if flags else [],
        }
        steps = tuple(
            self._step(each, buffers, len(numbers)) for each in found["steps"]
        )
        checks = []
        for number, text, node in found["checks"]:
            error = _raising(_text(text), _text(node))
            checks.append(FlagCheck(_whole(number, flags - 1), error))
        return Linked(steps, numbers, slots, constants, flags, tuple(checks))

    def _constant(self, place: Any) -> Constant:
        content = self._content(place)
        if content.size > self._largest:
            raise ValueError("a constant is larger than the device has arrays")
        return Constant(content.size, lambda: content)

    def _place(self, found: Any, buffers: Mapping[str, Sequence[int]]) -> Place:
        number, which, begin, nbytes = found
        kind = KINDS[_whole(number)]
        size = buffers[kind][_whole(which)]
        begin, nbytes = _whole(begin), _whole(nbytes, self._most)
        room = -(-size // self._alignment) * self._alignment
        if begin + nbytes > room or (begin and not nbytes):
            raise ValueError("a launch reads or writes beyond the end of a buffer")
        return Place(kind, which, begin, nbytes)

    def _step(
        self, found: Any, buffers: Mapping[str, Sequence[int]], length: int
    ) -> Step:
        number, places, window, start, x, y, rest = found
        label, flops, nbytes, in_place = rest
        text, written, lanes = self._texts[_whole(number)]
        bound = tuple(self._place(place, buffers) for place in places)
        if len(bound) != len(written) or len(bound) > self._most_buffers:
            raise ValueError("a launch has more buffers than its kernel, or fewer")
        read_only = [place.kind in ("input", "constant") for place in bound]
        if any(a and b for a, b in zip(written, read_only, strict=True)):
            raise ValueError("a launch writes to what is only read")
        window, start = _whole(window), _whole(start)
        if start % self._apart or start + window > length or not window:
            raise ValueError("a launch has its numbers elsewhere")
        return Step(
            text,
            written,
            lanes,
            bound,
            window,
            start,
            _whole(x, self._most_groups[0]),
            _whole(y, self._most_groups[1]),
            nodes=(),
            label=_text(label),
            flops=_whole(flops, _MOST_WORK),
            nbytes=_whole(nbytes, _MOST_WORK),
            in_place=bool(in_place) and len(bound) > 1,
        )


def _whole(number: Any, most: int = _MOST) -> int:
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError(f"it has {number!r} where a number is from 0 to {most}")
    return number


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} in the place of a text")
    return text


def _names(names: Sequence[Any]) -> tuple[str, ...]:
    return tuple(_text(name) for name in names)


def _raising(text: str, node: str) -> Any:
    return lambda found: ep.NodeError(text, node=node)
