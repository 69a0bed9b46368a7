"""The EP that is examined: its factory, one of its devices, and sessions on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnxplug
from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug.errors import EpError, InvalidArgument, NotFound, UnassignedNode
from onnxplug.plugins import registry

CPU: Final = "CPUExecutionProvider"


class Subject(Record):
    """An EP on a device.

    Attributes:
        name: the EP's.
        factory: as it was registered.
        pair: the EP on the device that is examined.
        pairs: all that the factory offers on this machine.
        options: of all its sessions, besides those that a check sets.
        answers: what it says of ONNX's cases, by operator, if it was asked before; see
            :func:`~onnxplug_testing.conformance.survey.survey`.
        listed: what the factory says of its operators, if it was asked before.
    """

    name: str
    factory: ep.EpFactory
    pair: ep.EpDevice
    pairs: Sequence[ep.EpDevice]
    options: Mapping[str, Any] = {}
    answers: Mapping[str, Sequence[Any]] | None = None
    listed: Sequence[ep.OperatorSupport] | None = None

    @property
    def is_reference(self) -> bool:
        """It is the CPU EP, with which others are compared."""
        return self.name == CPU

    def operators(self) -> list[ep.OperatorSupport]:
        """What the factory says of its operators; empty if it does not."""
        if self.listed is not None:
            return list(self.listed)
        return list(self.factory.operators() or ())

    def session(
        self,
        model: bytes,
        *,
        alone: bool = True,
        options: Mapping[str, Any] | None = None,
        config: Mapping[str, str] | None = None,
        checked: bool = True,
        settings: onnxplug.SessionOptions | None = None,
    ) -> onnxplug.InferenceSession:
        """A session of *model* on the device.

        Args:
            alone: nodes that the EP does not take are an error, and not the CPU EP's.
            options: of the EP, besides the subject's.
            config: entries of the session.
            checked: all that the EP returns is held against the model in each run.
            settings: to add to; by default new ones.

        Raises:
            UnassignedNode: *alone*, and the EP does not take all nodes.
        """
        wanted = settings or onnxplug.SessionOptions()
        given = {**self.options, **(options or {})}
        wanted.add_provider_for_devices([self.pair], given)
        entries = {"session.check_results": "1"} if checked else {}
        if alone and not self.is_reference:
            entries["session.disable_cpu_ep_fallback"] = "1"
        for key, value in {**entries, **(config or {})}.items():
            wanted.add_session_config_entry(key, value)
        return onnxplug.InferenceSession(model, wanted)

    def run(self, model: bytes, feeds: Mapping[str, Any], **session: Any) -> list[Any]:
        """What the EP gives for *feeds*; see :meth:`session`."""
        with self.session(model, **session) as opened:
            return list(opened.run(None, dict(feeds)))


class Runner:
    """Runs one model after the other, and leaves each session open until the next one
    is: the device's context is not made anew for each."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._open: onnxplug.InferenceSession | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._keep(None)

    def run(self, model: bytes, feeds: Mapping[str, Any], **session: Any) -> list[Any]:
        """What the EP gives for *feeds*; see :meth:`Subject.session`."""
        return list(self.session(model, **session).run(None, dict(feeds)))

    def session(self, model: bytes, **session: Any) -> onnxplug.InferenceSession:
        """A session that is closed when the next one is open."""
        opened = self._subject.session(model, **session)
        self._keep(opened)
        return opened

    def _keep(self, opened: onnxplug.InferenceSession | None) -> None:
        before, self._open = self._open, opened
        if before is not None:
            before.close()


_IDLE: Final = "runs no node of the model"
"""What the host says of an EP that was asked for and takes nothing."""


def refusal(error: BaseException, operator: str = "") -> str | None:
    """Why the EP takes no node, if it is that what a session of it alone raised.

    Args:
        operator: only what is said of its nodes, and not of those that it was expanded
            to; empty for all.
    """
    if isinstance(error, UnassignedNode):
        return "; ".join(
            text
            for node, said in error.reasons.items()
            for text in said
            if not operator or node.startswith(f"{operator} ")
        )
    if isinstance(error, EpError) and _IDLE in str(error):
        return str(error).partition(f"{_IDLE}: ")[2]
    return None


def reference_session(
    model: bytes, config: Mapping[str, str] | None = None
) -> onnxplug.InferenceSession:
    """A session of the CPU EP, with which others are compared."""
    settings = onnxplug.SessionOptions()
    for key, value in (config or {}).items():
        settings.add_session_config_entry(key, value)
    return onnxplug.InferenceSession(model, settings, providers=[CPU])


class BrokenDevices(NotFound):
    """The host cannot use the pairs that the factory gives; the text says why."""


def find_subject(
    name: str, device: str = "", options: Mapping[str, Any] | None = None
) -> Subject:
    """The EP *name*, on the first of its devices that fits *device*.

    Args:
        name: as users may write it.
        device: a position among the EP's devices, a type (``gpu``), or a part of how
            the device is called, whatever the case; empty for the first device.

    Raises:
        PluginError: there is no such EP, or it cannot be loaded.
        NotFound: it drives no such device here; says which it drives, and what it says
            of those that it refuses.
        BrokenDevices: it says that it drives some, in a way that the host refuses.
        InvalidArgument: the position is out of range.
    """
    factory = registry.factory(registry.resolve(name).name)
    pairs = [pair for pair in onnxplug.get_ep_devices() if pair.ep_name == factory.name]
    if not pairs:
        why = onnxplug.is_available(factory.name)
        remedy = f"; {why.remedy}" if why.remedy else ""
        if _offers_any(factory):
            raise BrokenDevices(why.reason)
        raise NotFound(f"{factory.name} drives no device here: {why.reason}{remedy}")
    return Subject(
        factory.name, factory, _fitting(pairs, device), pairs, dict(options or {})
    )


def _offers_any(factory: ep.EpFactory) -> bool:
    """Whether the factory offers pairs, or fails to say."""
    hardware = onnxplug.get_hardware_devices()
    try:
        offered = list(factory.supported_devices(hardware))
    except (Exception, SystemExit):  # noqa: BLE001 (whatever an EP raises)
        return True
    return any(not isinstance(each, ep.RefusedDevice) for each in offered)


def _fitting(pairs: Sequence[ep.EpDevice], device: str) -> ep.EpDevice:
    if not device:
        return pairs[0]
    if device.isdecimal():
        if int(device) >= len(pairs):
            raise InvalidArgument(
                f"device {device} is out of range; there are {len(pairs)}, from 0 on"
            )
        return pairs[int(device)]
    for pair in pairs:
        facts = " ".join([str(pair), *pair.device.metadata.values()])
        if device.lower() in (str(pair.device.type), *facts.lower().split()) or (
            device.lower() in facts.lower()
        ):
            return pair
    raise NotFound(
        f"no device of {pairs[0].ep_name} is {device!r}; there are "
        + ", ".join(map(str, pairs))
    )
