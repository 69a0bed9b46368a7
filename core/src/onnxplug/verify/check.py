"""Checks EPs on devices before their claims are believed, once for all processes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.locks import new_lock
from onnxplug.errors import EpError, PluginError
from onnxplug.hardware import discover
from onnxplug.plugins.settings import VERIFY
from onnxplug.selection import CPU, Origin, ProviderRequest
from onnxplug.selection.choose import create_ep
from onnxplug.selection.devices import hardware_for, logger
from onnxplug.verify import store
from onnxplug.verify.code import code_digest
from onnxplug.verify.probes import read_probes, read_versions
from onnxplug.verify.stopwatch import Phase, Stopwatch
from onnxplug.verify.trial import judge, unverified
from onnxplug.verify.verdict import FailedFamilies, FamilyVerdict, Verdict
from onnxplug.verify.worker import judge_within
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice, EpFactory, Probe
    from onnxplug.options import SessionOptions
    from onnxplug.plugins import PluginRegistry
    from onnxplug.selection import ChosenEp, SessionContext

SECONDS: Final = 2.0
"""What running the probes of a device may take together when a session is made."""

TIMEOUTS: Final = 3
"""So many processes wait for a family that there is no time for."""


def verify(ep: ChosenEp, registry: PluginRegistry, options: SessionOptions) -> ChosenEp:
    """*ep* with a veto of what it computes wrong on its devices.

    Warns of that, once for each device in a process.

    Raises:
        LoadCancelled: *options* say so.
    """
    verdicts = [
        verdict
        for device in ep.devices
        for verdict in _verdicts(ep.factory, device, registry, options)
    ]
    if all(verdict.verdict is not Verdict.FAILED for verdict in verdicts):
        return ep
    return ep._replace(veto=FailedFamilies(verdicts, f"see `{_command(ep.name)}`"))


def known_verdicts(
    factory: EpFactory, device: EpDevice, registry: PluginRegistry
) -> Sequence[FamilyVerdict]:
    """What was found before of each family, without running anything.

    Raises:
        EpError: the EP's probes are not as they have to be.
    """
    known = _memo(factory, device).verdicts
    if known:
        return known
    subject = _Subject(factory, device, registry)
    return subject.kept() or [
        unverified(probe, "not run on this device so far") for probe in subject.probes
    ]


def run_probes(
    factory: EpFactory, device: EpDevice, registry: PluginRegistry
) -> Iterator[FamilyVerdict]:
    """Run the probes of a device, however long they take, and keep the verdicts.

    Raises:
        EpError: the EP's probes are not as they have to be.
    """
    subject = _Subject(factory, device, registry)
    verdicts = []
    stopwatch = Stopwatch()
    for probe in subject.probes:
        verdicts.append(subject.judge(probe, stopwatch))
        yield verdicts[-1]
    _memo(factory, device).verdicts = verdicts
    subject.keep(verdicts)


class _Memo:
    """What this process knows of one EP on one device.

    Attributes:
        lock: held while that is found out.
        verdicts: ``None`` if it was not yet.
    """

    def __init__(self, factory: EpFactory) -> None:
        self.factory = weakref.ref(factory)
        self.lock = new_lock()
        self.verdicts: Sequence[FamilyVerdict] | None = None


_memos: Final[dict[tuple[int, EpDevice], _Memo]] = {}
_memos_lock: Final = new_lock()


def _memo(factory: EpFactory, device: EpDevice) -> _Memo:
    key = id(factory), device
    with _memos_lock:
        memo = _memos.get(key)
        # the factory of that id may be gone, and another one have it
        if memo is None or memo.factory() is not factory:
            memo = _memos[key] = _Memo(factory)
        return memo


def _verdicts(
    factory: EpFactory,
    device: EpDevice,
    registry: PluginRegistry,
    options: SessionOptions,
) -> Sequence[FamilyVerdict]:
    """What is known of each family, or is found out now; warned of the first time."""
    memo = _memo(factory, device)
    with memo.lock:
        if memo.verdicts is not None:
            return memo.verdicts
        text = ""
        try:
            subject = _Subject(factory, device, registry)
            memo.verdicts, is_new = subject.find_out(options)
        except EpError as error:
            memo.verdicts = ()
            text = f"{error}; what it computes on {device} is used unverified"
        else:
            text = _complaint(device, memo.verdicts, is_new=is_new)
        verdicts = memo.verdicts
    if text:
        warn_user(text)
    return verdicts


class _Subject:
    """An EP on one device, and what it is compared with.

    Attributes:
        probes: those of the device.
        problem: why there is nothing to compare with; empty if there is.
        entry: the name that verdicts are kept by; empty if none can be found.
    """

    def __init__(
        self, factory: EpFactory, device: EpDevice, registry: PluginRegistry
    ) -> None:
        self.probes: Sequence[Probe] = read_probes(factory, device)
        self.problem = ""
        self.entry = ""
        self._factory = factory
        self._device = device
        self._registry = registry
        self._reference: EpFactory | None = None
        if self.probes:
            self._find_reference()

    def _find_reference(self) -> None:
        registry, factory = self._registry, self._factory
        if factory.name == CPU:
            self.problem = "it is the CPU EP, with which others are compared"
            return
        try:
            self._reference = registry.factory(CPU)
        except PluginError as error:
            self.problem = f"there is no CPU EP to compare with: {error}"
            return
        ep, reference = self._facts(factory), self._facts(self._reference)
        if ep is None or reference is None:
            return
        self.entry = store.entry_name(
            ep,
            read_versions(factory, self._device),
            reference,
            self._device,
            self.probes,
        )

    def _facts(self, factory: EpFactory) -> dict[str, str] | None:
        """What tells one EP from another, and what it was before a change; ``None`` if
        nothing could tell that."""
        record = self._registry.resolve(factory.name)
        kind, code = type(factory), code_digest(factory)
        if code is None:
            return None
        return {
            "name": factory.name,
            "version": factory.version,
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "distribution": f"{record.distribution} {record.version}",
            "code": code,
        }

    def find_out(self, options: SessionOptions) -> tuple[Sequence[FamilyVerdict], bool]:
        """What was kept, or else what the probes show in time; whether it is new.

        Raises:
            LoadCancelled: *options* say so.
        """
        kept = self.kept()
        probes = self.probes if kept is None else self._to_retry(kept)
        if kept is not None and not probes:
            return kept, False
        verification = self._factory.verification
        assert verification is not None  # there are probes
        limits = {
            Phase.COMPILING: verification.compile_seconds,
            Phase.RUNNING: SECONDS,
        }
        remedy = f"`{_command(self._factory.name)}` sets no limit"
        found = judge_within(limits, probes, self.judge, options.check_load, remedy)
        verdicts = _after_retries(kept or (), found)
        self.keep(verdicts)
        return verdicts, True

    def _to_retry(self, kept: Sequence[FamilyVerdict]) -> list[Probe]:
        """The probes that there was no time for, and those last that took it all."""
        timeouts = {
            verdict.family: verdict.timeouts
            for verdict in kept
            if verdict.timeouts is not None and verdict.timeouts < TIMEOUTS
        }
        late = [probe for probe in self.probes if probe.family in timeouts]
        return sorted(late, key=lambda probe: timeouts[probe.family])

    def kept(self) -> Sequence[FamilyVerdict] | None:
        """What is known without running anything; ``None`` if nothing is."""
        if not self.probes:
            return ()
        if self.problem:
            return [unverified(probe, self.problem) for probe in self.probes]
        return store.load(self.entry) if self.entry else None

    def judge(self, probe: Probe, stopwatch: Stopwatch) -> FamilyVerdict:
        """Run *probe* and compare."""
        if self.problem:
            return unverified(probe, self.problem)
        return judge(
            probe, self._create, self._create_reference, self._registry, stopwatch
        )

    def keep(self, verdicts: Sequence[FamilyVerdict]) -> None:
        """Keep *verdicts* for other processes, if these would find the same."""
        if not self.entry or not all(verdict.lasts for verdict in verdicts):
            return
        problem = store.store(self.entry, verdicts)
        if problem:
            logger().warning(
                "what was found of %s is not kept for other processes: %s",
                self._device,
                problem,
            )

    def _create(self, context: SessionContext) -> ChosenEp:
        request = ProviderRequest(
            self._factory.name, devices=(self._device,), origin=Origin.IMPLIED
        )
        ep = create_ep(request, self._factory, (), context, {})
        return ep._replace(request=None)

    def _create_reference(self, context: SessionContext) -> ChosenEp:
        assert self._reference is not None
        request = ProviderRequest(CPU, origin=Origin.IMPLIED)
        hardware = hardware_for(self._registry, CPU, discover())
        ep = create_ep(request, self._reference, hardware, context, {})
        return ep._replace(request=None)


def _after_retries(
    kept: Sequence[FamilyVerdict], found: Sequence[FamilyVerdict]
) -> list[FamilyVerdict]:
    """*kept* with what was *found* now of its families, and of others behind them."""
    new = {verdict.family: verdict for verdict in found}
    verdicts = []
    for before in kept:
        now = new.pop(before.family, before)
        if now is not before and now.timeouts is not None:
            now = now._replace(timeouts=now.timeouts + (before.timeouts or 0))
        verdicts.append(now)
    return [*verdicts, *new.values()]


def _complaint(
    device: EpDevice, verdicts: Sequence[FamilyVerdict], *, is_new: bool
) -> str:
    """What to warn of; empty if there is nothing."""
    failed = [each for each in verdicts if each.verdict is Verdict.FAILED]
    late = [each for each in verdicts if each.late] if is_new else []
    sentences = []
    if failed:
        failures = "; ".join(f"{each.family!r}: {each.detail}" for each in failed)
        sentences.append(
            "operators of these families fail there, and are left to other EPs: "
            f"{failures}"
        )
    if late:
        names = ", ".join(repr(each.family) for each in late)
        sentences.append(
            f"there was no time to check these families, which are used unverified: "
            f"{names}"
        )
    if not sentences:
        return ""
    return (
        f"{device} was checked against the CPU EP: {'.  '.join(sentences)}.  "
        f"`{_command(device.ep_name)}` checks it again; {VERIFY}=0 leaves the check out"
    )


def _command(ep: str) -> str:
    return f"onnxplug doctor --verify {ep}"
