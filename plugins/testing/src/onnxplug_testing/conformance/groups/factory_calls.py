"""Whether a factory may be asked anywhere and of anything, and only looks."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import onnxplug
from onnxplug import ep
from onnxplug.authoring.compilers import SameCompiler
from onnxplug.plugins import registry
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.forked import CAN_FORK, in_child
from onnxplug_testing.conformance.laboratory import asking
from onnxplug_testing.conformance.makings import noting
from onnxplug_testing.conformance.specimens import (
    Node,
    Specimen,
    agrees,
    chosen,
    differs,
    make,
    several,
    single,
)
from onnxplug_testing.conformance.subject import refusal
from onnxplug_testing.conformance.taps import ignoring_failures, listening, replaced
from onnxplug_testing.conformance.trial import Trial, in_words

VERSIONS: Final = Sentence(
    "EpFactory.engine_versions",
    "Looks, as :meth:`supported_devices` does: no driver is loaded.",
)
JUDGES: Final = Sentence(
    "CompatibilityCheck",
    "Both methods look, as ``EpFactory.supported_devices`` does: no driver is loaded.",
)
TOLD: Final = Sentence("EpFactory.operators", "Told without a device.")
CHANGES: Final = Sentence(
    "EpFactory.engine_versions",
    "If one changes, probes are run again, and what was compiled is not restored.",
)
ANY_THREAD: Final = Sentence("EpFactory", "Every method may be called from any thread.")
NO_DEVICE: Final = Sentence(
    "MemorySpaces.create_context", "LookupError: there is no such device."
)

KIND: Final = Sentence(
    "RefusedDevice",
    "What is no device of the EP's kind, such as a GPU for an EP of processors, is "
    "just left out.",
)

_SECONDS: Final = 30.0

_SLOW: Final = 0.3

_NO_ORDINAL: Final = 977
"""Of a device that no machine has."""

_STRANGE: Final = (
    ep.HardwareDevice(type=ep.DeviceType.GPU),
    ep.HardwareDevice(type=ep.DeviceType.NPU, vendor="Nobody", vendor_id=0xFFFE),
    ep.HardwareDevice(type=ep.DeviceType.CPU, metadata={"conformance": "1"}),
)
"""Devices of which little is known, and some of what nobody makes."""


@check("factory", share=0.2)
def looks(trial: Trial) -> None:
    """What the factory says it says without a device, in any thread and process, of
    whatever devices there are."""
    factory = trial.subject.factory
    for name, sentence, ask in _questions(trial, factory):
        trial.count()
        began = time.perf_counter()
        with ignoring_failures():
            ask()  # what it imports, it imports once
        if time.perf_counter() - began > _SLOW:
            trial.leave_out("an answer that takes long is asked for once")
            continue
        with _watched(factory) as seen, ignoring_failures():
            ask()
        for what in seen:
            trial.find(sentence, f"{name} {what}", kind=f"{name} {what[:12]}")
        _in_another(trial, name, ask)
    _other_devices(trial, factory)


def _questions(
    trial: Trial, factory: ep.EpFactory
) -> Iterator[tuple[str, Sentence, Callable[[], Any]]]:
    hardware = onnxplug.get_hardware_devices()
    pair = trial.subject.pair
    judge = factory.compatibility or SameCompiler(factory)
    yield (
        "supported_devices",
        said.LOOKS,
        lambda: list(factory.supported_devices(hardware)),
    )
    yield "engine_versions", VERSIONS, lambda: dict(factory.engine_versions(pair))
    if not trial.subject.is_reference:  # which has many, and takes long to tell
        yield "operators", TOLD, lambda: list(factory.operators() or ())
    yield "compatibility_info", JUDGES, lambda: judge.compatibility_info(pair)
    yield (
        "CompatibilityCheck.check",
        JUDGES,
        lambda: judge.check(pair, judge.compatibility_info(pair)),
    )


@contextmanager
def _watched(factory: ep.EpFactory) -> Iterator[list[str]]:
    """A context in which what is more than a look is noted."""
    seen: list[str] = []
    spaces = factory.memory_spaces
    create = getattr(spaces, "create_context", None)

    def created(location: ep.MemoryLocation) -> Any:
        assert create is not None
        seen.append(f"makes a context of {location}")
        return create(location)

    before = threading.active_count()
    with noting() as heard:
        if spaces is not None and hasattr(spaces, "__dict__"):
            with replaced(spaces, "create_context", created):
                yield seen
        else:
            yield seen
    if threading.active_count() > before:
        seen.append(f"leaves {threading.active_count() - before} threads running")
    if heard["loaded libraries"]:
        seen.append("loads libraries each time")


def _in_another(trial: Trial, name: str, ask: Callable[[], Any]) -> None:
    """Find what differs of an answer in another thread, or another process."""
    try:
        here = ask()
    except (Exception, SystemExit) as error:  # noqa: BLE001 (told of by others)
        ep.raise_interruption(error)
        return
    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(ask)
    failure = answered.exception()
    if failure is not None:
        trial.find(ANY_THREAD, f"in another thread, {name} {in_words(failure)}")
    elif answered.result() != here:
        text = f"{name} says {answered.result()!r} in another thread; here {here!r}"
        trial.find(ANY_THREAD, text[:300], kind=f"{name} thread")
    if CAN_FORK:
        child = in_child(lambda: repr(ask()), _SECONDS)
        if child.hung:
            text = f"{name} had not ended in a child after {_SECONDS:.0f} s"
            trial.find(said.LOOKS, text, kind=f"{name} hung")
        elif child.said and child.said != repr(here)[: len(child.said)]:
            text = f"{name} says {child.said[:120]} in another process; here {here!r}"
            trial.find(CHANGES, text[:300], kind=f"{name} process")


def _other_devices(trial: Trial, factory: ep.EpFactory) -> None:
    """Ask about other devices than those of this machine."""
    hardware = list(onnxplug.get_hardware_devices())
    for what, devices in (
        ("no devices", ()),
        ("the devices", hardware),
        ("a tuple of the devices", tuple(hardware)),
        ("the devices the other way round", hardware[::-1]),
        ("devices that nobody knows", _STRANGE),
        ("each device twice", [*hardware, *hardware]),
    ):
        trial.count()
        given = devices[:]
        try:
            pairs = list(factory.supported_devices(given))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it raises)
            ep.raise_interruption(error)
            trial.find(said.PAIRS, f"given {what}, {in_words(error)}", kind=what)
            continue
        for pair in pairs:
            device = getattr(pair, "device", None)
            if not isinstance(device, ep.HardwareDevice):
                continue
            # of what no system lists, such as software, it tells by itself
            is_own = device not in hardware and device not in _STRANGE
            if device not in devices and not is_own:
                text = f"given {what}, it gives a pair of {device}, which is none of"
                trial.find(said.PAIRS, f"{text} them"[:300], kind=f"foreign {what}")
        _of_any_kind(trial, [each for each in pairs if isinstance(each, ep.EpDevice)])
        if given != devices:
            text = f"given {what}, it changes the list that it was given"
            trial.find(said.PAIRS, text, kind="changed")


def _of_any_kind(trial: Trial, pairs: Sequence[ep.EpDevice]) -> None:
    """Find whether it takes what nobody makes, of more kinds than its own."""
    own = trial.subject.pair.device.type
    taken = {pair.device.type for pair in pairs if pair.device in _STRANGE} - {own}
    if len(taken) > 1:
        kinds = " and ".join(sorted(each.name for each in taken))
        text = (
            f"supported_devices gives pairs of any {kinds}, of makers unknown; it is "
        )
        trial.find(KIND, f"{text}asked here on a {own.name}", kind="any kind")


@check("factory", share=0.1)
def spaces(trial: Trial) -> None:
    """A context of a device that there is not is refused by a LookupError."""
    memory = trial.subject.factory.memory_spaces
    owned = () if memory is None else sorted(memory.owned)
    if memory is None or not owned:
        trial.leave_out("the EP owns no memory")
        return
    for space in owned:
        location = ep.MemoryLocation(space, _NO_ORDINAL)
        trial.count()
        try:
            memory.create_context(location)
        except LookupError:
            continue
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it raises)
            ep.raise_interruption(error)
            text = f"of {location} {in_words(error)}; expected a LookupError"
            trial.find(NO_DEVICE, text, kind="raised")
            continue
        text = f"create_context gave one of {location}, which there is not"
        trial.find(NO_DEVICE, text, kind="given")


@check("factory", share=0.1)
def made_anywhere(trial: Trial) -> None:
    """Each session has an EP of its own, made in whatever thread."""
    _make_again(trial)
    for specimen in chosen(trial, single, several):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "sessions of other threads")
        if not trial.attempt(case):
            continue
        with asking(trial, said.EACH_SESSION, case):
            _make_in_threads(trial, specimen, case)
            _make_and_close(trial, specimen, case)


def _make_again(trial: Trial) -> None:
    """Whether a session can be made when another one was closed."""
    for op_type, names in (("Add", ["x", "z"]), ("Relu", ["x"]), ("Abs", ["x"])):
        node = Node(op_type, names, "y")
        shapes = dict.fromkeys(names, (4, 6))
        specimen = make(f"one {op_type}", ep.DataType.FLOAT32, [node], shapes)
        for which in ("first", "second"):
            trial.count()
            try:
                trial.subject.session(specimen.model, checked=False).close()
            except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it is)
                ep.raise_interruption(error)
                if refusal(error) is not None:
                    break
                text = f"the {which} session of one {op_type} {in_words(error)}"
                trial.find(said.EACH_SESSION, text, case=specimen.case({}), kind="made")
                return
        else:
            return


def _make_in_threads(trial: Trial, specimen: Specimen, case: Case) -> None:
    """Make sessions in threads that end, one after the other, and run them here."""
    expected = list(specimen.expected(case.feeds).values())
    for _ in range(2):
        trial.count()
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(trial.subject.session, specimen.model, checked=False)
        error = made.exception()
        if error is not None:
            text = f"made in another thread, a session {in_words(error)}"
            trial.find(ANY_THREAD, text, case=case, kind="made")
            return
        with made.result() as session:
            for found, right in zip(
                session.run(None, dict(case.feeds)), expected, strict=True
            ):
                if not agrees(found, right):
                    text = f"made in another thread, {differs(found, right)}"
                    trial.find(ANY_THREAD, text, case=case, kind="wrong")


def _make_and_close(trial: Trial, specimen: Specimen, case: Case) -> None:
    with listening(trial.subject) as talk:
        opened = [
            trial.subject.session(specimen.model, checked=False) for _ in range(3)
        ]
        trial.count(len(opened))
        known = [id(each) for each in talk.providers]
        for session in opened:
            session.run(None, dict(case.feeds))
            session.close()
    if len(set(known)) < len(known):
        text = f"{len(known)} sessions have {len(set(known))} EPs"
        trial.find(said.EACH_SESSION, text, case=case, kind="same")


@check("factory", share=0.1)
def closed_again(trial: Trial) -> None:
    """The factory may be closed again when it is closed with all its sessions."""
    if not CAN_FORK:
        trial.leave_out("the system forks no processes")
        return
    # before the engine is started here, as not every engine can be forked then
    child = in_child(lambda: _close(trial), _SECONDS)
    for specimen in chosen(trial, single):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "the factory is closed again")
        if not trial.attempt(case):
            continue
        if child.hung or child.ended:
            text = child.ended or f"not ended after {_SECONDS:.0f} s"
            trial.find(
                said.CLOSE_FACTORY, f"EpFactory.close, called again: {text}", case=case
            )
        elif child.said.startswith("not served"):
            trial.leave_out("a child of the process is not served, or told so")
        elif child.said != "right":
            trial.find(said.CLOSE_FACTORY, child.said, case=case)


def _close(trial: Trial) -> str:
    """What goes wrong, in words; ``right`` if nothing does."""
    subject = trial.subject
    with ignoring_failures():
        for specimen in chosen(trial, single):
            feeds = specimen.feeds(trial.numbers(specimen.name))
            expected = next(iter(specimen.expected(feeds).values()))
            (found, *_) = subject.run(specimen.model, dict(feeds), checked=False)
            if not agrees(found, expected):
                return "not served: wrong numbers"
        gc.collect()
        for number in (1, 2):
            try:
                if number == 1:
                    registry.remove(subject.name)
                subject.factory.close()
            except Exception as error:  # noqa: BLE001 (whatever it raises)
                return f"EpFactory.close, called again, {in_words(error)}"
        return "right"
    return "not served"
