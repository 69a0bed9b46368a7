"""What an EP must not do to the arrays of others, looked for around each of its runs.

For sessions that ask for it (``session.check_results``): all that a partition reads and
leaves is waited for, read and compared, so that its runs take as long as that.
"""

from __future__ import annotations

import contextlib
import weakref
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug.ep import CapturePhase, RunContext
from onnxplug.errors import EpError
from onnxplug.guard import Check, RunFunction, ignoring_failures
from onnxplug.run.aliasing import overlap, parts

if TYPE_CHECKING:
    from onnxplug.ep import Stream
    from onnxplug.run.device import Device
    from onnxplug.run.results import Place

NOISE_BYTES: Final = 8
"""Bytes from which on no result is noise by chance."""

Digests = list[tuple[str, Any, int]]
"""Arrays, what they are in words, and what shows whether they were written to."""


class Watch:
    """What is looked at around the runs of one partition.

    Args:
        place: who runs what.
        read_on, left_on: for each input and output the device where it is; ``None``
            where numpy reads it.
        home: the device of the EP's location, whose streams its work is queued on.
    """

    def __init__(
        self,
        place: Place,
        read_on: Sequence[Device | None],
        left_on: Sequence[Device | None],
        home: Device | None,
    ) -> None:
        self._place = place
        self._inputs = place.partition.inputs
        self._outputs = place.partition.outputs
        self._read_on = list(read_on)
        self._left_on = list(left_on)
        self._home = home
        self._given: list[weakref.ref[Any]] = []

    def over(self, run: RunFunction, check: Check) -> RunFunction:
        """*run*, and an error if it does what it must not.

        Args:
            check: what its results have to pass before they are read.
        """

        def run_watched(
            inputs: Sequence[Any],
            outputs: Sequence[Any | None],
            context: RunContext | None,
            /,
        ) -> Sequence[Any]:
            if context is not None and context.capture is CapturePhase.CAPTURE:
                return run(inputs, outputs, context)  # what is noted is not done
            stream = None if context is None else context.stream
            self._wait_for(stream)
            # what is filled in place has to keep its content, and may change
            apart = [None if _is_one_of(i, outputs) else i for i in inputs]
            rooms = [None if _is_one_of(o, inputs) else o for o in outputs]
            before = self._digests(apart)
            with self._noise_in(rooms) as noise:
                results = run([_read_only(value) for value in inputs], outputs, context)
                if len(results) != len(self._outputs):
                    return results  # whose number is an error
                check(inputs, outputs, results)
                self._check_order(results, stream)
                self._require_unchanged(before)
                self._require_filled(results, noise)
                self._require_own(inputs, outputs, results)
                return results

        return run_watched

    def _wait_for(self, stream: Stream | None) -> None:
        if stream is not None and self._home is not None:
            self._home.synchronize(stream)

    # what is written to

    def _digests(self, inputs: Sequence[Any]) -> Digests:
        """What the partition reads: its inputs, and the weights of the EP's device."""
        rows = [
            (f"{name!r}, an input of {self._place}", value, device)
            for name, value, device in zip(
                self._inputs, inputs, self._read_on, strict=True
            )
        ]
        if self._home is not None and not self._home.location.host_accessible:
            rows += [
                (f"a weight in {self._home.location}", weight, self._home)
                for weight in self._home.weights()
            ]
        return [
            (what, value, digest)
            for what, value, device in rows
            if (digest := self._digest(value, device)) is not None
        ]

    def _digest(self, value: Any, device: Device | None) -> int | None:
        """What shows whether an array was written to; ``None`` for other values."""
        content = _content(value, device)
        return None if content is None else zlib.crc32(content)

    def _changed(self, before: Digests) -> Iterator[tuple[str, Any]]:
        for what, value, digest in before:
            device = None if isinstance(value, np.ndarray) else self._device_of(value)
            if self._digest(value, device) != digest:
                yield what, value

    def _device_of(self, value: Any) -> Device | None:
        devices = [self._home, *self._read_on, *self._left_on]
        return next(
            (
                device
                for device in devices
                if device is not None
                and device.what_is_wrong(value, None, None) is None
            ),
            None,
        )

    def _require_unchanged(self, before: Digests) -> None:
        for what, _ in self._changed(before):
            raise self._error(
                f"wrote to {what}; it must not write to its inputs, nor to what it "
                "made of weights"
            )

    # what is left

    def _check_order(self, results: Sequence[Any], stream: Stream | None) -> None:
        """Whether what an event says is done is done."""
        if stream is None or self._home is None:
            return
        event = self._home.record(stream)
        if not event.done():
            event.synchronize()
        early = self._contents(results)
        self._home.synchronize(stream)
        for name, first, last in zip(
            self._outputs, early, self._contents(results), strict=True
        ):
            if first != last:
                raise self._error(
                    f"left {name!r}, an output of {self._place}, which changed after "
                    "an event recorded behind its work was done; Event.done() and "
                    "Event.synchronize() are to say that all work before is done"
                )

    def _contents(self, values: Sequence[Any]) -> list[bytes | None]:
        return [
            _content(value, device)
            for value, device in zip(values, self._left_on, strict=True)
        ]

    @contextlib.contextmanager
    def _noise_in(self, outputs: Sequence[Any | None]) -> Iterator[list[bytes | None]]:
        """Bound arrays filled with what no result is, and what that is for each.

        None of them shares memory with an input.  One that nothing was written to has
        its content again afterwards.
        """
        noise: list[bytes | None] = []
        with contextlib.ExitStack() as ends:
            for bound, device in zip(outputs, self._left_on, strict=True):
                content = None if bound is None else _content(bound, device)
                if content is None or len(content) < NOISE_BYTES:
                    noise.append(None)
                    continue
                random = np.random.default_rng(0).bytes(len(content))
                ends.callback(_give_back, bound, content, random, device)
                _fill(bound, random, device)
                noise.append(random)
            yield noise

    def _require_filled(
        self, results: Sequence[Any], noise: Sequence[bytes | None]
    ) -> None:
        for name, found, unwritten in zip(
            self._outputs, self._contents(results), noise, strict=True
        ):
            if unwritten is not None and found == unwritten:
                raise self._error(
                    f"did not write to the array bound to {name!r}, an output of "
                    f"{self._place}, and raised nothing when its work was waited for"
                )

    # what is returned

    def _require_own(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        results: Sequence[Any],
    ) -> None:
        """Whether new results share no memory with what others have.

        What a result has of an input, as a sequence that grows, is not new.
        """
        new = []
        for name, result, bound, device in zip(
            self._outputs, results, outputs, self._left_on, strict=True
        ):
            made = [
                part
                for part in parts(result)
                if bound is None and not any(overlap(part, value) for value in inputs)
            ]
            if made:
                new.append((name, result, made, device))
        given = [
            array for array in (known() for known in self._given) if array is not None
        ]
        for name, _, made, _ in new:
            if any(
                _is_writeable(part) and overlap(part, old)
                for part in made
                for old in given
            ):
                raise self._error(
                    f"returned for {name!r}, an output of {self._place}, an array that "
                    "it returned in an earlier run; an array that was returned belongs "
                    "to the host, so make a new one or return a copy"
                )
        for name, result, _, device in new:
            if device is not None:
                self._require_no_view(name, result, device, inputs, results)
        self._given = [known for known in self._given if known() is not None]
        for _, _, made, _ in new:
            try:
                self._given += map(weakref.ref, made)
            except TypeError:  # of a class without weak references
                continue

    def _require_no_view(
        self,
        name: str,
        result: Any,
        device: Device,
        inputs: Sequence[Any],
        results: Sequence[Any],
    ) -> None:
        """Write to *result*, and look whether anything else changes."""
        content = _content(result, device)
        if not content:
            return
        others = self._digests(inputs)
        others += [
            (f"output {other!r}", value, digest)
            for other, value, where in zip(
                self._outputs, results, self._left_on, strict=True
            )
            if value is not result
            and (digest := self._digest(value, where)) is not None
        ]
        inverted = np.bitwise_not(np.frombuffer(content, np.uint8)).tobytes()
        _fill(result, inverted, device)
        try:
            shared = next(self._changed(others), None)
        finally:
            _fill(result, content, device)
        if shared is not None:
            raise self._error(
                f"returned for {name!r}, an output of {self._place}, an array that "
                f"shares memory with {shared[0]}; on a device an output is a new "
                "array, or an input itself"
            )

    def _error(self, did: str) -> EpError:
        ep = self._place.ep
        return EpError(f"{ep} {did}", ep=ep, stage="run")


def _is_one_of(value: Any | None, others: Sequence[Any | None]) -> bool:
    return value is not None and any(value is other for other in others)


def _content(value: Any, device: Device | None) -> bytes | None:
    """The bytes of an array at *device*; ``None`` for values that are no arrays."""
    if isinstance(value, np.ndarray):
        return None if value.dtype.hasobject else value.tobytes()
    if device is None or device.what_is_wrong(value, None, None) is not None:
        return None
    return bytes(device.to_host(value).tobytes())


def _fill(array: Any, content: bytes, device: Device | None) -> None:
    dtype = array.dtype if device is None else device.data_type(array).numpy
    elements = np.frombuffer(content, dtype).reshape(tuple(array.shape))
    if device is None:
        array[...] = elements
    else:
        device.copy(elements, array)


def _give_back(array: Any, content: bytes, noise: bytes, device: Device | None) -> None:
    """Fill *array*, if it has *noise*, with the *content* that it had before."""
    with ignoring_failures():  # that of the run matters more
        if _content(array, device) == noise:
            _fill(array, content, device)


def _read_only(value: Any) -> Any:
    if type(value) is not np.ndarray:
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _is_writeable(value: Any) -> bool:
    """Whether it could be written to: constants of the host may be given twice."""
    return not isinstance(value, np.ndarray) or value.flags.writeable
