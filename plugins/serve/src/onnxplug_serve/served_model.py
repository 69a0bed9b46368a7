"""A model that is served: its session, what it takes and gives, and its threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnxplug
from onnxplug.ep import DataType, TensorType
from onnxplug.session.model_info import type_name
from onnxplug_serve.batching import BatchPlan, find_plan
from onnxplug_serve.datatypes import datatype_of
from onnxplug_serve.devices import DeviceRuns, kinds_of_devices
from onnxplug_serve.errors import Abandoned, BadRequest, TooLate
from onnxplug_serve.metrics import Metrics
from onnxplug_serve.requests import InferRequest, InferResponse
from onnxplug_serve.scheduler import Scheduler
from onnxplug_serve.settings import Settings

if TYPE_CHECKING:
    from onnxplug import NodeArg

PLATFORM: Final = "onnx_onnxv1"
"""What the protocol calls ONNX models."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output, as the protocol tells of it.

    Attributes:
        shape: -1 for sizes that vary; ``None`` if its rank does.
        required: it has to be fed.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] | None
    required: bool = True


class CannotServe(onnxplug.errors.OnnxplugError, ValueError):
    """The model has inputs or outputs that the protocol has no words for."""


class ServedModel:
    """One version of a model.

    Args:
        path: of the model's file.
        settings: the server's.
        devices: of all its models.

    Raises:
        OnnxplugError: a session cannot be made of it.
        CannotServe: see there.
    """

    def __init__(
        self,
        name: str,
        version: str,
        path: Path,
        settings: Settings,
        metrics: Metrics,
        devices: DeviceRuns | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.path = path
        self.session = onnxplug.InferenceSession(
            str(path),
            settings.options(),
            providers=settings.providers,
            policy=settings.policy,
        )
        self._timeout = settings.timeout
        self._users = 0
        self._idle = threading.Condition()
        try:
            self.inputs = _described(self.session.get_inputs(), "input")
            self.outputs = _described(self.session.get_outputs(), "output")
            self.optional = _described(
                self.session.get_overridable_initializers(), "input", required=False
            )
            self.plan, self.why_not_joined = self._find_plan(settings)
            self._scheduler = Scheduler(
                self.session,
                self.plan,
                settings.batching,
                instances=settings.instances,
                queued=settings.limits.queued,
                timeout=settings.timeout,
                name=name,
                devices=devices,
                kinds=kinds_of_devices(self.session),
                observe=metrics.observer(name, version),
            )
        except BaseException:
            self.session.close()
            raise

    def _find_plan(self, settings: Settings) -> tuple[BatchPlan | None, str]:
        if settings.batching.size == 1:
            return None, "batches have one position"
        return find_plan(self.path, self.session.get_inputs())

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self._scheduler.waiting

    def check(self, request: InferRequest) -> None:
        """Check the names of what is fed and asked for.

        Raises:
            BadRequest: the model has no such input or output, or one is missing.
        """
        known = {each.name: each for each in (*self.inputs, *self.optional)}
        for name in request.feeds:
            if name not in known:
                raise BadRequest(
                    f"the model has no input {name!r}; it has {_listed(self.inputs)}"
                )
        for each in self.inputs:
            if each.name not in request.feeds:
                raise BadRequest(f"input {each.name!r} is missing")
        outputs = {each.name for each in self.outputs}
        for name in request.outputs:
            if name not in outputs:
                raise BadRequest(
                    f"the model has no output {name!r}; it has {_listed(self.outputs)}"
                )

    @contextmanager
    def in_use(self) -> Iterator[ServedModel]:
        """A context in which it stays open, whatever takes its place."""
        with self._idle:
            self._users += 1
        try:
            yield self
        finally:
            with self._idle:
                self._users -= 1
                self._idle.notify_all()

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run the model, when it is the request's turn.

        Raises:
            RequestError: it is refused, or fails.
        """
        self.check(request)
        future = self._scheduler.submit(request)
        seconds = request.timeout or self._timeout
        try:
            # also where another run would have to end before it is looked at
            async with asyncio.timeout(seconds or None):
                results, joined = await asyncio.wrap_future(future)
        except TimeoutError as error:
            if isinstance(error, TooLate):
                raise
            raise TooLate(
                f"the request took longer than the {seconds:g} s that it had; it is "
                "not run, or its run was cancelled"
            ) from error
        except asyncio.CancelledError:
            if future.cancelled():  # by nobody but who waits
                raise
            raise Abandoned("nobody waits for the answer") from None
        names = request.outputs or [each.name for each in self.outputs]
        return InferResponse(
            self.name,
            self.version,
            request.id,
            {name: results[name] for name in names},
            {"batched_requests": joined} if joined > 1 else {},
        )

    def close(self, timeout: float) -> None:
        """Finish the requests that there are, for *timeout* seconds at most; nobody
        finds it any more."""
        end = time.monotonic() + timeout
        with self._idle:
            while self._users and time.monotonic() < end:
                self._idle.wait(end - time.monotonic())
        if self._scheduler.close(max(end - time.monotonic(), 0.0)):
            self.session.close()

    def metadata(self) -> Mapping[str, Any]:
        """What the protocol tells of a model, but for its versions."""
        return {
            "name": self.name,
            "platform": PLATFORM,
            "inputs": [_told(each) for each in self.inputs],
            "outputs": [_told(each) for each in self.outputs],
        }


def _told(info: TensorInfo) -> dict[str, Any]:
    # the protocol has no tensors of unknown rank: one dimension that varies
    shape = [-1] if info.shape is None else list(info.shape)
    return {"name": info.name, "datatype": info.datatype, "shape": shape}


def _listed(infos: list[TensorInfo]) -> str:
    return ", ".join(repr(each.name) for each in infos) or "none"


def _described(
    items: list[NodeArg], kind: str, *, required: bool = True
) -> list[TensorInfo]:
    found = []
    for item in items:
        datatype = next(
            (
                datatype_of(dtype)
                for dtype in DataType
                if item.type == type_name(TensorType(dtype))
            ),
            None,
        )
        if datatype is None:
            raise CannotServe(
                f"{kind} {item.name!r} is {item.type}, for which the Open Inference "
                "Protocol has no datatype; serve a model with a tensor of another type"
            )
        shape = (
            tuple(size if isinstance(size, int) else -1 for size in item.shape)
            if item.rank_is_known
            else None
        )
        found.append(TensorInfo(item.name, datatype, shape, required))
    return found
