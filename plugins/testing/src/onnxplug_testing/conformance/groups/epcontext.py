"""Whether what an EP serialises is restored elsewhere, and nothing else is.

Beside it :mod:`.restored` asks of each operator, and :mod:`.restoring` where, when and
of which bytes something is restored.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np
import onnx

import onnxplug
from onnxplug import ep
from onnxplug.authoring.compilers import SameCompiler
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.forked import CAN_FORK, in_child
from onnxplug_testing.conformance.groups import restoring
from onnxplug_testing.conformance.groups.restored import (
    GIVES,
    NO_SERIALISER,
)
from onnxplug_testing.conformance.networks import NO_WORDS, draw_network, vocabulary
from onnxplug_testing.conformance.opinions import contradiction, difference
from onnxplug_testing.conformance.taps import Talk, ignoring_failures, listening
from onnxplug_testing.conformance.trial import Trial, in_words

__all__ = ["restoring"]

INFO: Final = Sentence(
    "CompatibilityCheck.compatibility_info",
    "Printable text for :meth:`check`; options are not in it, as the host compares "
    "these itself.",
)
JUDGES: Final = Sentence(
    "CompatibilityCheck.check",
    "of :meth:`compatibility_info`, perhaps in another version; it may also be "
    "damaged, or ONNX Runtime's.",
)
ANSWER: Final = Sentence(
    "CompatibilityCheck.check",
    "The answer and the reason, which is empty if it is ``OPTIMAL``.",
)


class _Compiled(NamedTuple):
    """What the EP compiled of one network, in a session that is open.

    Attributes:
        case: the network.
        serialiser: the EP's.
        partition: the first that was compiled.
        compiled: what was made of it.
    """

    case: Case
    serialiser: ep.Serialiser
    partition: ep.Partition
    compiled: ep.CompiledPartition


def _compiled(trial: Trial, talk: Talk, case: Case) -> _Compiled | None:
    """What there is to serialise; ``None``, and that is told, if there is nothing."""
    if not talk.providers or not talk.compiled:
        trial.leave_out("nothing was compiled")
        return None
    serialiser = talk.providers[0].serialiser
    if serialiser is None:
        trial.leave_out(NO_SERIALISER)
        return None
    return _Compiled(case, serialiser, *talk.compiled[0])


def _cases(trial: Trial, most: int, foreign: Sequence[str] = ()) -> Iterator[Case]:
    """Networks whose sizes are known, so that they are compiled at once.

    Args:
        foreign: operators that are mixed into every second one; those that the EP does
            not take part it.
    """
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    for number in trial.in_time(range(most)):
        draw = trial.draw(number)
        mixed = foreign if number % 2 else ()
        count = 8 if mixed else draw.randint(1, 8)
        network = draw_network(words, draw, nodes=count, rows=3, foreign=mixed)
        yield network.case(trial.numbers(number), 3, f"network {number}")


_FOREIGN: Final = ("Erf", "Acosh", "Sinh", "Floor")
"""Unary operators; few EPs take all of them."""


@check("epcontext", share=0.6)
def round_trips(trial: Trial) -> None:
    """A model compiled ahead gives the same results, and nothing is compiled again."""
    for case in _cases(trial, 2 if trial.quick else 8, _FOREIGN):
        if not trial.attempt(case):
            continue
        with listening(trial.subject) as talk:
            settings = onnxplug.SessionOptions()
            settings.add_provider_for_devices(
                [trial.subject.pair], trial.subject.options
            )
            try:
                compiler = onnxplug.ModelCompiler(settings, case.model, True)
                model = compiler.compile_to_bytes()
            except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it raises)
                if talk.providers and talk.providers[0].serialiser is None:
                    trial.take_back(NO_SERIALISER)
                    return
                trial.find(said.SERIALISED, in_words(error), case=case, kind="compile")
                continue
            if b"EPContext" not in model:
                trial.take_back("the EP serialised nothing of the network")
                continue
            count = len(talk.compiled)
            _restored(trial, case, model, talk, count)
            _again(trial, case, talk)


def _restored(trial: Trial, case: Case, model: bytes, talk: Talk, count: int) -> None:
    try:
        found = trial.subject.run(model, case.feeds, alone=False)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        trial.find(GIVES, f"loading {in_words(error)}", case=case, kind="load")
        return
    wrong, _ = contradiction(found, case, trial.subject)
    if wrong:
        trial.find(GIVES, f"restored, {wrong}", case=case, kind="wrong")
    if len(talk.compiled) > count:
        text = "compiled again, though the model has what was compiled"
        trial.find(GIVES, text, case=case, kind="again")


def _again(trial: Trial, case: Case, talk: Talk) -> None:
    """Whether what was restored is serialised, and restored, like what was compiled."""
    made = _compiled(trial, talk, case)
    if made is None:
        return
    try:
        first = made.serialiser.restore(
            made.partition, memoryview(bytes(made.serialiser.serialise(made.compiled)))
        )
    except (Exception, SystemExit):  # noqa: BLE001 (told of above)
        return
    try:
        data = made.serialiser.serialise(first)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        text = f"of what restore gave, serialise {in_words(error)}"
        trial.find(said.SERIALISED, text, case=case, kind="restored")
        return
    try:
        made.serialiser.restore(made.partition, memoryview(bytes(data)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        text = f"what was restored, and serialised again, {in_words(error)}"
        trial.find(GIVES, text, case=case, kind="restored again")


@check("epcontext", share=0.3)
def weights(trial: Trial) -> None:
    """What was compiled of models that differ in their weights alone is restored with
    the weights of each, whichever was compiled last."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    for number in trial.in_time(range(2 if trial.quick else 6)):
        network = draw_network(words, trial.draw(number), nodes=8, rows=3)
        case = network.case(trial.numbers(number), 3, f"network {number}, twice")
        other = Case(_with_other_weights(case.model), case.feeds, case.name)
        if other.model == case.model:
            continue
        if not trial.attempt(case):
            continue
        settings = onnxplug.SessionOptions()
        settings.add_provider_for_devices([trial.subject.pair], trial.subject.options)
        try:
            models = [
                onnxplug.ModelCompiler(settings, each.model, True).compile_to_bytes()
                for each in (case, other)
            ]
            if not all(b"EPContext" in model for model in models):
                trial.take_back(NO_SERIALISER)
                continue
            results = [trial.subject.run(model, case.feeds) for model in models]
        except (Exception, SystemExit) as error:  # noqa: BLE001 (told of by others)
            trial.take_back(f"{type(error).__name__}, which others tell of")
            continue
        for each, found in zip((case, other), results, strict=True):
            wrong, _ = contradiction(found, each, trial.subject)
            if wrong:
                text = "restored after a model with other weights was compiled"
                trial.find(GIVES, f"{text}, {wrong}", case=each, kind="weights")
    if not trial.tried and not trial.untried:
        trial.leave_out("the EP takes no node with a weight")


def _with_other_weights(model: bytes) -> bytes:
    """*model* with each weight's numbers in the opposite order, and negative."""
    changed = onnx.load_model_from_string(model)
    for weight in changed.graph.initializer:
        array = onnx.numpy_helper.to_array(weight)
        turned = -array.reshape(-1)[::-1].reshape(array.shape)
        weight.CopyFrom(onnx.numpy_helper.from_array(turned, weight.name))
    return bytes(changed.SerializeToString())


@check("epcontext", share=0.6)
def damaged(trial: Trial) -> None:
    """Data that is cut off, or is something else, is declined in words."""
    for case in _cases(trial, 1 if trial.quick else 3):
        with listening(trial.subject) as talk:
            try:
                session = trial.subject.session(case.model)
            except Exception:  # noqa: BLE001 (told of by others)
                trial.leave_out("no session could be made")
                continue
            with session:
                made = _compiled(trial, talk, case)
                if made is None:
                    return
                data = _serialised(trial, made)
                if data is not None:
                    for what, wrong in _damages(data, trial.draw(case.name)):
                        _restore_wrong(trial, made, what, wrong)
                    right = _right(made)
                    for what, other in _headers(data) if right else ():
                        _restore_header(trial, made, what, other, right)


def _serialised(trial: Trial, made: _Compiled) -> bytes | None:
    try:
        data = made.serialiser.serialise(made.compiled)
    except ep.Declined as error:
        trial.leave_out(f"declined to serialise: {error}"[:160])
        return None
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        trial.find(said.SERIALISED, in_words(error), case=made.case, kind="raised")
        return None
    if not isinstance(data, bytes | memoryview):
        text = f"serialise gave a {type(data).__name__}; expected bytes"
        trial.find(said.SERIALISED, text, case=made.case, kind="type")
        return None
    return bytes(data)


def _damages(data: bytes, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    yield "nothing at all", b""
    yield "zeros", bytes(len(data))
    yield "something else", b'{"this": "is something else"}' * 4
    for part in (1, 2, 3):
        yield f"the first {part}/4 of it", data[: len(data) * part // 4]
    for _ in range(4):
        yield "noise", draw.randbytes(draw.randint(1, max(len(data), 2)))


def _right(made: _Compiled) -> Sequence[Any]:
    """What the partition gives, where it is the whole model and works on the host."""
    compiled = made.compiled
    places = (*(compiled.input_locations or ()), *(compiled.output_locations or ()))
    if made.partition.inputs != tuple(made.partition.graph.inputs) or any(
        place != ep.HOST for place in places
    ):
        return ()
    with ignoring_failures():
        inputs = [made.case.feeds[name] for name in made.partition.inputs]
        outputs = [None] * len(made.partition.outputs)
        found = list(compiled.run(inputs, outputs, None))
        if all(isinstance(each, np.ndarray) for each in found):
            return found
    return ()


def _headers(data: bytes) -> Iterator[tuple[str, bytes]]:
    """*data* with other signs and versions, where formats have these."""
    for place in range(min(8, len(data))):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        yield f"it with byte {place} changed", bytes(changed)
    for match in list(re.finditer(rb"(?i)version\W{0,6}(\d)", data[:64]))[:4]:
        changed = bytearray(data)
        changed[match.start(1)] = ord("0") + (int(match.group(1)) + 1) % 10
        yield (
            f"it with another {match.group().decode(errors='replace')}",
            bytes(changed),
        )


def _restore_header(
    trial: Trial, made: _Compiled, what: str, data: bytes, right: Sequence[Any]
) -> None:
    """*data* may be declined, or be something else; it is not the same all the same."""
    case = Case(made.case.model, made.case.feeds, f"{made.case.name}, given {what}")
    if not trial.attempt(case):
        return
    try:
        restored = made.serialiser.restore(
            made.partition, memoryview(data).toreadonly()
        )
    except ep.Declined:
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        text = f"given {what}, {in_words(error)}; expected Declined"
        trial.find(
            said.DECLINED, text, case=case, kind=f"raised {type(error).__name__}"
        )
        return
    try:
        inputs = [made.case.feeds[name] for name in made.partition.inputs]
        same = not difference(restored.run(inputs, [None] * len(right), None), right)
    except (Exception, SystemExit):  # noqa: BLE001 (what it is now, it may not do)
        same = False
    if same:
        text = f"given {what}, it restores what it was, and does not look at that"
        trial.find(said.DECLINED, text, case=case, kind="header")
    restored.close()


def _restore_wrong(trial: Trial, made: _Compiled, what: str, data: bytes) -> None:
    case = Case(made.case.model, made.case.feeds, f"{made.case.name}, given {what}")
    if not trial.attempt(case):
        return
    view = memoryview(data).toreadonly()
    try:
        restored: Any = made.serialiser.restore(made.partition, view)
    except ep.Declined as error:
        if not str(error.reason).strip():
            trial.find(
                said.DECLINED, f"given {what}, declines without words", case=case
            )
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        text = f"given {what}, {in_words(error)}; expected Declined"
        trial.find(
            said.DECLINED, text, case=case, kind=f"raised {type(error).__name__}"
        )
        return
    trial.find(
        said.DECLINED, f"given {what}, it restores", case=case, kind=f"took {what}"
    )
    restored.close()


@check("epcontext", share=0.2)
def compatibility(trial: Trial) -> None:
    """What was compiled here is good here; what another version compiled is not."""
    factory = trial.subject.factory
    judge = factory.compatibility
    if judge is None:
        trial.leave_out("the EP leaves it to the host's own")
        judge = SameCompiler(factory)
    for pair in trial.subject.pairs:
        try:
            info = judge.compatibility_info(pair)
            again = judge.compatibility_info(pair)
        except Exception as error:  # noqa: BLE001 (whatever an EP raises)
            trial.find(INFO, in_words(error))
            continue
        trial.count()
        if not isinstance(info, str) or not info.isprintable():
            trial.find(INFO, f"{str(info)[:80]!r} is no printable text")
            continue
        if info != again:
            trial.find(INFO, f"it says {info[:80]!r}, then {again[:80]!r}")
        _judge(trial, judge, pair, info, "its own words", good=True)
        for what, told in _told_elsewhere(judge, pair):
            _judge(trial, judge, pair, told, what, good=True)
        for what, other in _other_words(info):
            _judge(trial, judge, pair, other, what, good=False)


def _told_elsewhere(
    judge: ep.CompatibilityCheck, pair: ep.EpDevice
) -> Iterator[tuple[str, str]]:
    """What a process says that is forked from this one, and a thread of this one."""
    with ThreadPoolExecutor(1) as pool:
        yield (
            "what it says in a thread",
            pool.submit(judge.compatibility_info, pair).result(),
        )
    if CAN_FORK:
        child = in_child(lambda: judge.compatibility_info(pair), 10.0)
        if child.said and not child.said.startswith("raised "):
            yield "what it says in another process", child.said


def _other_words(info: str) -> Iterator[tuple[str, str]]:
    yield "nothing", ""
    yield "an empty object", "{}"
    yield "half of its words", info[: len(info) // 2]
    yield "ONNX Runtime's words", "ort_version=1.23.0;vendor=acme;version=0"
    yield "a number", "7"
    yield "a list", "[]"
    for match in list(re.finditer(r"\d+(\.\d+)+", info))[:12]:
        digit = str((int(info[match.start()]) + 1) % 10)
        changed = info[: match.start()] + digit + info[match.start() + 1 :]
        yield f"its words with another version than {match.group()}", changed


def _judge(
    trial: Trial,
    judge: ep.CompatibilityCheck,
    pair: ep.EpDevice,
    info: str,
    what: str,
    *,
    good: bool,
) -> None:
    trial.count()
    try:
        answer = judge.check(pair, info)
        verdict, reason = answer
    except Exception as error:  # noqa: BLE001 (whatever an EP raises)
        trial.find(JUDGES, f"given {what}, {in_words(error)}", kind=f"raised {what}")
        return
    if not isinstance(verdict, ep.Compatibility) or not isinstance(reason, str):
        trial.find(ANSWER, f"given {what}, it answers {answer!r}"[:300], kind="type")
    elif verdict is ep.Compatibility.OPTIMAL and reason:
        text = f"given {what}, it says {verdict.value}, and a reason: {reason}"
        trial.find(ANSWER, text[:300], kind="reason")
    elif good and verdict is not ep.Compatibility.OPTIMAL:
        trial.find(ANSWER, f"given {what}, it says {verdict.value}: {reason}")
    elif not good and verdict is ep.Compatibility.OPTIMAL:
        trial.find(JUDGES, f"given {what}, it says {verdict.value}")
    elif not good and not reason.strip():
        trial.find(ANSWER, f"given {what}, it says {verdict.value} and no reason")
