"""Whether an EP restores what it serialised wherever the host may ask for it, and
believes nothing that whoever wrote the bytes may have put there."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.device_streams import in_threads, taking_turns
from onnxplug_testing.conformance.groups.restored import GIVES, NO_SERIALISER
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    asking,
    laboratory,
)
from onnxplug_testing.conformance.networks import NO_WORDS, draw_network, vocabulary
from onnxplug_testing.conformance.partitions import examined, settled
from onnxplug_testing.conformance.specimens import (
    DTYPES,
    Node,
    Specimen,
    agrees,
    differs,
    make,
    several,
    single,
    taken,
    takes,
)
from onnxplug_testing.conformance.taps import listening
from onnxplug_testing.conformance.trial import Trial, in_words

HOSTILE: Final = Sentence(
    "Serialiser.restore",
    "Who wrote the model wrote the data, which may be hostile with a checksum that is "
    "right.",
)
MAPPED: Final = Sentence(
    "Serialiser.restore", "the bytes, read-only, which may be mapped from a file."
)
AT_ONCE: Final = Sentence(
    "Specialiser",
    "``compile`` and the serialiser are called from any thread, several times at once",
)

_THREADS: Final = 4

_SHORT: Final = 16
"""Bytes that are found in data by chance."""

_DIGITS: Final = 60
"""Digits in the data that are changed, at most, one after the other."""


class _Made(Record):
    """What is restored: the partition that it is of, by which serialiser, its bytes."""

    lab: Laboratory
    serialiser: ep.Serialiser
    data: bytes

    def restore(self, data: Any = None) -> ep.CompiledPartition:
        """What is restored of *data*; by default of the bytes as they are."""
        given = self.data if data is None else data
        view = memoryview(given).toreadonly()
        return self.serialiser.restore(self.lab.partition, view)

    def results(
        self, compiled: ep.CompiledPartition, feeds: Mapping[str, Array]
    ) -> dict[str, Array]:
        """What *compiled* gives, on the host."""
        lab = self.lab
        before, lab.compiled = lab.compiled, compiled
        try:
            with settled(lab) as stream:
                given = lab.run(lab.put(feeds, stream), None, stream)
            return {name: lab.get(name, array) for name, array in given.items()}
        finally:
            lab.compiled = before


def _serialised(
    trial: Trial, what: str, *choices: Any
) -> Iterator[tuple[_Made, Specimen, Case]]:
    for lab, specimen, case in examined(trial, what, *choices):
        with asking(trial, said.SERIALISED, case):
            serialiser = lab.provider.serialiser
            if serialiser is None:
                trial.take_back(NO_SERIALISER)
                return
            try:
                data = bytes(serialiser.serialise(lab.compiled))
            except ep.Declined as why:
                trial.take_back(f"declined to serialise: {why}"[:160])
                continue
            yield _Made(lab, serialiser, data), specimen, case


@check("epcontext", share=0.2)
def restored_anywhere(trial: Trial) -> None:
    """What was serialised is restored again and again, from bytes wherever they are, in
    threads at once, when it was run or closed, and what is restored is its own."""
    for made, specimen, case in _serialised(
        trial, "restored anywhere", single, several
    ):
        with asking(trial, GIVES, case):
            feeds = specimen.feeds(trial.numbers("restored"))
            expected = specimen.expected(feeds)
            look = functools.partial(_look, trial, made, feeds, expected, case)
            _in_places(trial, made, look, case)
            _apart(trial, made, look)
            _in_threads(trial, made, look, case)
            _later(trial, made, feeds, look, case)


def _look(
    trial: Trial,
    made: _Made,
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    case: Case,
    compiled: ep.CompiledPartition,
    what: str,
    sentence: Sentence = GIVES,
) -> None:
    """Find what is wrong of a run of *compiled*."""
    trial.count()
    for name, array in made.results(compiled, feeds).items():
        if not agrees(array, expected[name]):
            text = f"{what}: {name!r}: {differs(array, expected[name])}"
            trial.find(sentence, text, case=case, kind=what)


def _in_places(
    trial: Trial, made: _Made, look: Callable[..., None], case: Case
) -> None:
    """Restore from bytes that begin anywhere, and stay as they are."""
    room = bytearray(b"\xaa" * 3 + made.data + b"\xbb" * 5)
    view = memoryview(room)[3 : 3 + len(made.data)]
    with asking(trial, MAPPED, case):
        compiled = made.restore(view)
        look(compiled, "restored from the midst of a buffer", MAPPED)
        if bytes(view) != made.data:
            trial.find(MAPPED, "the bytes were written to", case=case, kind="written")
        compiled.close()


def _apart(trial: Trial, made: _Made, look: Callable[..., None]) -> None:
    """Whether two that were restored have nothing to do with each other."""
    first, second = made.restore(), made.restore()
    if first is second:
        text = "restore gave the same object twice, which is closed twice"
        trial.find(GIVES, text, kind="same object")
        return
    look(first, "restored twice, the first")
    first.close()
    first.close()
    look(second, "restored twice, when the other one was closed")
    second.close()
    look(made.lab.compiled, "what was compiled, when what was restored was closed")


def _in_threads(
    trial: Trial, made: _Made, look: Callable[..., None], case: Case
) -> None:
    restored: list[ep.CompiledPartition] = []

    def work(_: int) -> None:
        for _turn in range(3):
            again = made.serialiser.serialise(made.lab.compiled)
            restored.append(made.restore(bytes(again)))

    with taking_turns():
        failed = in_threads(_THREADS, work)
    for error in failed:
        ep.raise_interruption(error)
        text = f"in {_THREADS} threads at once, {in_words(error)}"
        trial.find(AT_ONCE, text, case=case, kind="threads raised")
    for compiled in restored[:: max(len(restored) // 4, 1)]:
        look(compiled, f"restored in {_THREADS} threads at once", AT_ONCE)
    for compiled in restored:
        compiled.close()


def _later(
    trial: Trial,
    made: _Made,
    feeds: Mapping[str, Array],
    look: Callable[..., None],
    case: Case,
) -> None:
    """Whether bytes stay what they are, and are the same when it was run."""
    given = made.serialiser.serialise(made.lab.compiled)
    before = bytes(given)
    made.results(made.lab.compiled, feeds)
    restored = made.restore()
    made.results(restored, feeds)
    for what, compiled in (("what was run", made.lab.compiled), ("that", restored)):
        with asking(trial, said.SERIALISED, case):
            again = bytes(made.serialiser.serialise(compiled))
            if bytes(given) != before:
                text = "bytes that serialise had given changed when it was called again"
                trial.find(said.SERIALISED, text, case=case, kind="changed")
                break
            restored_again = made.restore(again)
            look(restored_again, f"serialised from {what}, restored")
            restored_again.close()
    restored.close()


@check("epcontext", share=0.1)
def several_at_once(trial: Trial) -> None:
    """Partitions of one session are serialised and restored in threads at once, and
    each stays what it is."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    network = draw_network(words, trial.draw(), nodes=12, rows=3, foreign=_FOREIGN)
    case = network.case(trial.numbers(), 3, "several partitions at once")
    if not trial.attempt(case):
        return
    with (
        asking(trial, AT_ONCE, case),
        listening(trial.subject) as talk,
        trial.subject.session(case.model, alone=False, checked=False),
    ):
        serialiser = talk.providers[-1].serialiser
        if serialiser is None:
            trial.take_back(NO_SERIALISER)
            return
        alone = [
            (partition, compiled, bytes(serialiser.serialise(compiled)))
            for partition, compiled in talk.compiled
        ]
        if not all(_stays(serialiser, *each) for each in alone):
            trial.take_back("what is serialised twice has other bytes each time")
            return
        _all_in_threads(trial, serialiser, alone, case)


@check("epcontext", share=0.1)
def constants(trial: Trial) -> None:
    """Constants of any shape, and numbers of all digits, are what they were where they
    are restored."""
    has = taken(trial)
    if has is None:
        return
    if not has.binary:
        trial.leave_out("the EP takes no node of two inputs")
        return
    for dtype in DTYPES:
        specimen = _of_constants(has.binary[0], dtype)
        if not takes(trial.subject, specimen):
            trial.leave_out(f"the EP does not take {specimen.name}")
            continue
        feeds = specimen.feeds(trial.numbers(dtype))
        case = specimen.case(feeds, "restored")
        if not trial.attempt(case):
            continue
        with asking(trial, GIVES, case), laboratory(trial.subject, specimen) as lab:
            serialiser = lab.provider.serialiser
            if serialiser is None:
                trial.take_back(NO_SERIALISER)
                return
            try:
                data = bytes(serialiser.serialise(lab.compiled))
            except ep.Declined as why:
                trial.take_back(f"declined to serialise: {why}"[:160])
                continue
            made = _Made(lab, serialiser, data)
            before = made.results(lab.compiled, feeds)
            restored = made.restore()
            after = made.results(restored, feeds)
            restored.close()
            for name, array in before.items():
                found = after[name]
                if found.shape == array.shape and found.tobytes() == array.tobytes():
                    continue
                shape = specimen.shapes[f"x{name[1:]}"]
                text = f"of a constant of {list(shape)}, restored, {found.tolist()}"
                text = f"{text} of shape {list(found.shape)}, before {array.tolist()}"
                trial.find(GIVES, text[:300], case=case, kind=f"constant {shape}")


def _of_constants(op_type: str, dtype: ep.DataType) -> Specimen:
    """A node for each shape of a constant that it reads."""
    numbers: list[Any] = [1, 3, 5, 7, 9, 11]
    if dtype.numpy.kind == "f":
        with np.errstate(over="ignore"):
            all_digits = [1 / 3, -1e-5, 1e300, np.inf, -0.0, 2 / 3]
            numbers = list(np.array(all_digits).astype(dtype.numpy))
    elif dtype is ep.DataType.INT64:
        numbers = [2**53 + 1, -(2**62) - 1, 3, 5, -1, 0]
    nodes, weights, shapes = [], {}, {}
    for number, shape in enumerate(((), (1,), (2, 3), (3, 2), (1, 6), (1, 1, 1))):
        content = np.array(numbers[: int(np.prod(shape))]).astype(dtype.numpy)
        weights[f"c{number}"] = content.reshape(shape)
        shapes[f"x{number}"] = shape
        nodes.append(Node(op_type, [f"x{number}", f"c{number}"], f"y{number}"))
    outputs = [node.output for node in nodes]
    name = f"{op_type} of constants of {dtype}"
    return make(name, dtype, nodes, shapes, outputs=outputs, weights=weights)


_FOREIGN: Final = ("Erf", "Acosh", "Sinh", "Floor")
"""Unary operators, which part a network where the EP does not take them."""


def _stays(
    serialiser: ep.Serialiser,
    partition: ep.Partition,
    compiled: ep.CompiledPartition,
    data: bytes,
) -> bool:
    """Whether what was compiled has the bytes *data* again, and what is restored."""
    if bytes(serialiser.serialise(compiled)) != data:
        return False
    restored = serialiser.restore(partition, memoryview(data).toreadonly())
    try:
        return all(bytes(serialiser.serialise(restored)) == data for _ in range(2))
    finally:
        restored.close()


def _all_in_threads(
    trial: Trial, serialiser: ep.Serialiser, alone: Sequence[Any], case: Case
) -> None:
    def work(number: int) -> None:
        for turn in range(4):
            partition, compiled, data = alone[(number + turn) % len(alone)]
            again = bytes(serialiser.serialise(compiled))
            restored = serialiser.restore(partition, memoryview(data).toreadonly())
            try:
                given = bytes(serialiser.serialise(restored))
            finally:
                restored.close()
            if data not in (again, given) or again != given:
                text = "other bytes than alone, or what is restored has"
                what = f"partitions that are serialised in threads at once have {text}"
                trial.find(AT_ONCE, what, case=case, kind="mixed")

    trial.count(_THREADS)
    with taking_turns():
        failed = in_threads(_THREADS, work)
    for error in failed:
        ep.raise_interruption(error)
        text = f"in {_THREADS} threads at once, {in_words(error)}"
        trial.find(AT_ONCE, text, case=case, kind="threads raised")


# what is believed


@check("epcontext", share=0.2)
def hostile(trial: Trial) -> None:
    """Nothing of the bytes is run as code or unpickled, and what makes no sense in them
    is declined, whatever it is."""
    for made, specimen, case in _serialised(trial, "hostile data", several):
        with asking(trial, HOSTILE, case):
            with _heard(made.data) as heard:
                made.restore().close()
            for what in sorted(heard - {_READ}):
                text = f"restore {what}, which whoever wrote the model may have written"
                trial.find(HOSTILE, text, case=case, kind=what)
            feeds = specimen.feeds(trial.numbers("hostile"))
            for what, data in trial.in_time(list(_numbers(trial, made.data))):
                _restore_other(trial, made, what, data, feeds, case)


def _numbers(trial: Trial, data: bytes) -> Iterator[tuple[str, bytes]]:
    """*data* with other digits, and with other bytes, in one place each."""
    digits = [match.start() for match in re.finditer(rb"\d", data)]
    # of noise most digits are none
    places = [at for at in digits if data[max(at - 2, 0) : at + 2].isascii()]
    draw = trial.draw("numbers")
    draw.shuffle(places)
    for at in places[:_DIGITS]:
        for digit in b"9" if data[at] != ord("9") else b"7":
            changed = bytearray(data)
            changed[at] = digit
            near = data[max(at - 12, 0) : at + 12].decode(errors="replace")
            yield f"a {chr(digit)} at byte {at} of it, in {near!r}", bytes(changed)
    for _ in range(_DIGITS // 2):
        at = draw.randrange(len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << draw.randrange(8)
        yield f"byte {at} of it changed", bytes(changed)
    yield "it twice", data + data
    yield "it with eight bytes more", data + bytes(8)
    yield "all of it but the last byte", data[:-1]


def _restore_other(
    trial: Trial,
    made: _Made,
    what: str,
    data: bytes,
    feeds: Mapping[str, Array],
    case: Case,
) -> None:
    """Restore *data*, which may be declined or be something else, and run that."""
    tried = Case(case.model, case.feeds, f"{case.name}, {what}")
    if not trial.attempt(tried):
        return
    try:
        compiled = made.restore(data)
    except ep.Declined as error:
        if not str(error.reason).strip():
            trial.find(
                said.DECLINED, f"given {what}, declines without words", case=tried
            )
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        ep.raise_interruption(error)
        text = f"given {what}, {in_words(error)}; expected Declined"
        trial.find(
            said.DECLINED, text, case=tried, kind=f"raised {type(error).__name__}"
        )
        return
    found: Mapping[str, Array] | None = None
    try:
        found = made.results(compiled, feeds)
    except Exception as error:  # noqa: BLE001 (it is something else now)
        ep.raise_interruption(error)
    finally:
        compiled.close()
    # bytes that nobody reads do no harm
    if what.startswith(_WHOLE) and not _is_same(found, made, feeds):
        text = f"given {what}, it restores something else"
        trial.find(said.DECLINED, text, case=tried, kind=what)


def _is_same(
    found: Mapping[str, Array] | None, made: _Made, feeds: Mapping[str, Array]
) -> bool:
    """Whether results are those of the bytes as they were."""
    if found is None:
        return False
    compiled = made.restore()
    try:
        right = made.results(compiled, feeds)
    finally:
        compiled.close()
    return all(agrees(found[name], array) for name, array in right.items())


_WHOLE: Final = ("it ", "all of it")
"""How bytes are told of that are too many or too few."""

_READ: Final = "reads code"
"""What is no more than read, as by ``ast.literal_eval``, is not run."""

_listening: Final[list[tuple[bytes, set[str]]]] = []


@contextmanager
def _heard(data: bytes) -> Iterator[set[str]]:
    """A context in which it is noted what of *data* is made code or objects of."""
    found: set[str] = set()
    _listen()
    _listening.append((data, found))
    try:
        yield found
    finally:
        _listening.pop()


@functools.cache
def _listen() -> None:
    sys.addaudithook(_note)  # which cannot be undone


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if not _listening:
        return
    data, found = _listening[-1]
    if event == "pickle.find_class":
        found.add("unpickles what is in the bytes")
    elif event == "exec" and _READ in found:
        found.add("runs code that is in the bytes")
    elif event in ("compile", "marshal.loads") and arguments:
        source = arguments[0]
        text = source.encode() if isinstance(source, str) else source
        if isinstance(text, bytes) and len(text) >= _SHORT and text.strip() in data:
            found.add(_READ)
