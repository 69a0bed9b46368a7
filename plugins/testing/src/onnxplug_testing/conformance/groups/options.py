"""Whether what users may set of an EP is as it is declared.

Beside it :mod:`.option_effects` asks what becomes of that, and of what else.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

import onnxplug
from onnxplug import ep, errors
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import option_effects
from onnxplug_testing.conformance.networks import (
    NO_WORDS,
    Network,
    draw_network,
    vocabulary,
)
from onnxplug_testing.conformance.opinions import contradiction
from onnxplug_testing.conformance.subject import refusal
from onnxplug_testing.conformance.taps import (
    ignoring_failures,
    listening,
    replaced,
)
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial, in_words

__all__ = ["option_effects"]

DEFAULT: Final = Sentence(
    "Option", "the value when the user says nothing; its type is the option's type."
)
BOUNDS: Final = Sentence("Option", "inclusive bounds of a number; ``None`` for none.")
CHOICES: Final = Sentence("Option", "the only values accepted; empty for no limit.")
ERROR: Final = Sentence(
    "EpFactory.create",
    "Raising anything but ``OptionError`` is a failure of the EP, which the host "
    "reports with the exception, and after which it tries the next EP.",
)
COMPILED_IN: Final = Sentence(
    "Option",
    "what is compiled depends on it: what was serialised with another value is not "
    "restored.",
)
OPEN: Final = Sentence("OpenOptions", "The EP refuses what it does not know.")
RUN: Final = Sentence(
    "EpFactory.run_options",
    "a name begins with the EP's own, ``acme.priority``, unless EPs share a meaning.",
)
READ: Final = Sentence("EpFactory.options", "The options users may set, by name.")
SUGGESTED: Final = Sentence(
    "EpDevice", "options the EP suggests for this device; the user's win."
)

_SAID_DEFAULT: Final = re.compile(
    r"\bdefaults?(?: is| to|:)? (-?\d+(?:\.\d+)?|true|false)\b", re.IGNORECASE
)

STREAM: Final = Sentence(
    "Streams",
    "A stream of the user's, given to an EP by its option `user_compute_stream`, is "
    "used for all runs of the session, one after the other, and stays open.",
    "explanation/memory-and-streams.md",
)

_STREAM: Final = "user_compute_stream"

_LARGEST_ADDRESS: Final = (1 << 57) - 1
"""Of what processors have today."""

_OF_THE_HOST: Final = frozenset({_STREAM})
"""Options of EPs that the host reads, so that the EP need not."""

_UNKNOWN: Final = "conformance_no_such_option"

_Tables = Iterator[tuple[str, Mapping[str, ep.Option]]]


def _tables(factory: ep.EpFactory) -> _Tables:
    yield "option", factory.options
    yield "config entry", factory.config_entries
    yield "run option", factory.run_options


@check("options", share=0.2)
def declarations(trial: Trial) -> None:
    """Defaults are among the choices and within the bounds, and all is described."""
    _look_at_handles(trial, trial.subject.factory.options.get(_STREAM))
    for noun, table in _tables(trial.subject.factory):
        seen: dict[str, str] = {}
        for name, option in table.items():
            trial.count()
            _look_at(trial, f"{noun} {name!r}", option)
            for alias in option.aliases:
                if alias in table or seen.setdefault(alias, name) != name:
                    trial.find(DEFAULT, f"two {noun}s are called {alias!r}")
            if noun == "run option" and "." not in name:
                trial.find(RUN, f"the {noun} {name!r} begins with no EP's name")
    if not trial.tried:
        trial.leave_out("the EP declares nothing that users may set")


def _look_at_handles(trial: Trial, option: ep.Option | None) -> None:
    """Find whether handles of streams may be given, which are often addresses."""
    if option is None or option.maximum is None or isinstance(option.default, str):
        return
    if option.maximum < _LARGEST_ADDRESS:
        text = f"{_STREAM} is {option.maximum:.0f} at most; the native_handle of a "
        trial.find(STREAM, f"{text}stream may be an address, up to {_LARGEST_ADDRESS}")


def _look_at(trial: Trial, what: str, option: ep.Option) -> None:
    default = option.default
    if not isinstance(default, bool | int | float | str):
        text = f"the default of {what} is a {type(default).__name__}"
        trial.find(DEFAULT, text)
        return
    if not option.doc.strip() and not option.refused and not option.ignored:
        trial.find(said.DESCRIBED, f"{what} is not described")
    stated = _SAID_DEFAULT.search(option.doc)
    if stated and stated[1].lower() not in (str(default).lower(), f"{default!r}"):
        text = f"the description of {what} says that the default is {stated[1]}"
        trial.find(said.DESCRIBED, f"{text}; it is {default!r}")
    if option.choices and default not in option.choices:
        trial.find(CHOICES, f"the default of {what}, {default!r}, is not among them")
    for choice in option.choices:
        if type(choice) is not type(default):
            text = f"{choice!r} of {what} is no {type(default).__name__}"
            trial.find(DEFAULT, f"{text}, as the default {default!r} is")
    least, most = option.minimum, option.maximum
    if least is not None and most is not None and least > most:
        trial.find(BOUNDS, f"{what} is from {least} to {most}, which is nothing")
    for value in option.substitutes.values():
        if option.choices and value not in option.choices:
            text = f"{what} has {value!r} for another value, which is no choice of it"
            trial.find(CHOICES, text)
    for bound in (option.minimum, option.maximum):
        if bound is not None and isinstance(default, bool | str):
            trial.find(BOUNDS, f"{what} has a bound, {bound}, and is no number")
    if isinstance(default, int | float) and not isinstance(default, bool):
        low, high = option.minimum, option.maximum
        if (low is not None and default < low) or (high is not None and default > high):
            text = f"the default of {what}, {default}, is not from {low} to {high}"
            trial.find(BOUNDS, text)


@check("options", share=0.8)
def values(trial: Trial) -> None:
    """Each value that is declared to be accepted is, or is refused by an OptionError;
    types and shapes do not change by it; what the EP was given it reads."""
    factory = trial.subject.factory
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    network = draw_network(words, trial.draw(), nodes=7)
    settings = [
        (noun, name, value)
        for noun, table in _tables(factory)
        for name, option in table.items()
        for value in dict.fromkeys([*_accepted(option), *_between(name, option)])
    ]
    for noun, name, value in trial.in_time(settings):
        _set(trial, network, noun, name, value)
    if not settings:
        trial.leave_out("the EP declares nothing that users may set")
        return
    _look_for_unread(trial, network)


def _accepted(option: ep.Option) -> list[ep.OptionValue]:
    """Values that the declaration accepts, at its edges."""
    if option.refused or option.ignored:
        return []
    if option.choices:
        return list(option.choices)
    default = option.default
    if isinstance(default, bool):
        return [False, True]
    if isinstance(default, int | float):
        kind = type(default)
        edges = [kind(b) for b in (option.minimum, option.maximum) if b is not None]
        # the largest number of threads, say, is nothing to try
        return [default, *(edge for edge in edges if abs(edge) <= 64)]
    return [default]  # which texts an EP knows cannot be guessed


def _between(name: str, option: ep.Option) -> list[ep.OptionValue]:
    """Values between the edges, and an edge that is far off, where that is no number of
    what the machine has few of."""
    default = option.default
    if isinstance(default, bool | str) or option.choices or not _is_used(option):
        return []
    if re.search(r"handle|pointer|address", f"{option.doc} {name}", re.IGNORECASE):
        return []  # of what there is, or is not
    kind = type(default)
    low = kind(default if option.minimum is None else option.minimum)
    high = kind(low + _FEW if option.maximum is None else option.maximum)
    if not np.isfinite([low, high]).all():
        return []
    some = [low + kind(step) for step in (1, 2, 3, 5)] if kind is int else []
    halves = [] if kind is int else [(low + high) / 2]
    few = [each for each in (*some, *halves) if low <= each <= min(high, low + _FEW)]
    is_rare = _RARE.search(f"{option.doc} {name}")
    return [*few, *([high] if not is_rare and abs(high) <= _FAR else [])]


_FEW: Final = 64
_FAR: Final = 1 << 16
_RARE: Final = re.compile(
    r"thread|worker|process|stream|device|byte|MB|GB|memory|second|core", re.IGNORECASE
)
"""What descriptions speak of where a large value takes what there is."""


def _set(
    trial: Trial, network: Network, noun: str, name: str, value: ep.OptionValue
) -> None:
    what = f"{noun} {name}={value!r}"
    case = network.case(trial.numbers(), 3, f"a network with {what}")
    if not trial.attempt(case):
        return
    settings, options, run = onnxplug.SessionOptions(), {}, onnxplug.RunOptions()
    text = _as_text(value)
    if noun == "option":
        options[name] = value
    elif noun == "config entry":
        short = trial.subject.name.removesuffix("ExecutionProvider").lower()
        settings.add_session_config_entry(f"ep.{short}.{name}", text)
    else:
        run.add_run_config_entry(name, text)
    try:
        with trial.subject.session(
            case.model, options=options, settings=settings, alone=False
        ) as session:
            found = session.run(None, dict(case.feeds), run)
    except (errors.OptionError, ep.SessionRefused) as error:
        trial.take_back(f"refused in words: {error}"[:160])
        return
    except MemoryError as error:
        trial.take_back(f"leaves too little memory: {error}"[:160])
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        if refusal(error) is not None:
            trial.take_back(f"with {what} the EP takes nothing of the network")
            return
        trial.find(ERROR, f"{what}: {in_words(error)}", case=case)
        return
    wrong, _ = contradiction(found, case, trial.subject)
    if wrong and " is wrong in " not in wrong:  # an option may ask for less precision
        trial.find(READ, f"with {what} {wrong}", case=case)


def _look_for_unread(trial: Trial, network: Network) -> None:
    """Options that neither the EP nor the host ever looks at, whatever is done."""
    case = network.case(trial.numbers(), 3)
    declared = trial.subject.factory.options
    unread = _unread(trial, case, {})
    if unread is None:  # what it raises is told of above
        return
    trial.count(len(declared))
    unread = {name for name in unread if _is_used(declared.get(name))}
    # an option may be about what another one switches on
    switches = {
        name: not option.default
        for name, option in declared.items()
        if type(option.default) is bool and _is_used(option)
    }
    for name, value in switches.items() if unread else ():
        if not trial.has_time:
            trial.leave_out(OUT_OF_TIME, len(unread))
            return
        left = _unread(trial, case, {name: value})
        unread = unread if left is None else unread & left
    for name in sorted(unread):
        text = f"the option {name!r} is declared, and never looked at"
        trial.find(READ, text, case=case)


def _is_used(option: ep.Option | None) -> bool:
    return option is not None and not (option.refused or option.ignored)


def _unread(
    trial: Trial, case: Case, options: Mapping[str, ep.OptionValue]
) -> set[str] | None:
    """Options that nobody looks at in a session with *options*; ``None``: it fails
    before an EP has any."""
    with listening(trial.subject) as talk, ignoring_failures():
        session = trial.subject.session(case.model, options=options, alone=False)
        with session:
            session.run(None, dict(case.feeds))
    if not talk.options:
        return None
    return set.intersection(
        *(set(dict.keys(given)) - given.read - _OF_THE_HOST for given in talk.options)
    )


@check("options", share=0.3)
def unknown_names(trial: Trial) -> None:
    """An option that nobody declared is refused, and so are values beyond bounds."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    network = draw_network(words, trial.draw(), nodes=2)
    case = network.case(trial.numbers(), 2)
    wrong: list[tuple[Sentence, str, Any]] = [(OPEN, _UNKNOWN, "1")]
    for name, option in trial.subject.factory.options.items():
        wrong += [(sentence, name, value) for sentence, value in _refused(option)]
    for sentence, name, value in trial.in_time(wrong):
        tried = Case(case.model, case.feeds, f"a network with {name}={value!r}")
        if not trial.attempt(tried):
            continue
        try:
            trial.subject.session(
                case.model, options={name: value}, alone=False
            ).close()
        except (errors.OptionError, ep.SessionRefused):
            continue
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever is raised)
            text = f"{name}={value!r} {in_words(error)}; expected an OptionError"
            trial.find(ERROR, text, case=tried)
            continue
        trial.find(sentence, f"{name}={value!r} is accepted", case=tried)


def _refused(option: ep.Option) -> Iterator[tuple[Sentence, Any]]:
    """Values that the declaration does not accept."""
    if option.choices:
        yield CHOICES, "conformance: no such choice"
    if isinstance(option.default, str):
        return
    yield DEFAULT, "conformance: no number"
    if isinstance(option.default, bool):
        return
    if option.minimum is not None and np.isfinite(option.minimum):
        yield BOUNDS, type(option.default)(option.minimum - 1)
    if option.maximum is not None and np.isfinite(option.maximum):
        yield BOUNDS, type(option.default)(option.maximum + 1)


@check("options", share=0.5)
def compiled_in(trial: Trial) -> None:
    """What was compiled with another value of an option that is declared not to be
    compiled in computes, where it is restored, as the session there is set."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    pairs = [
        (name, option.default, value)
        for name, option in trial.subject.factory.options.items()
        if not option.compiled_in
        for value in _accepted(option)
        if value != option.default
    ]
    if not pairs:
        trial.leave_out("what is compiled depends on all options")
    summing = [each for each in words.operators if each in _SUMMING]
    rounds = 2 if trial.quick else 6
    for number in trial.in_time(range(rounds if pairs else 0)):
        # options of precision, say, show in sums
        of = words._replace(operators=summing) if number % 2 and summing else words
        network = draw_network(of, trial.draw(number), nodes=4, rows=24)
        for name, *values in pairs:
            case = network.case(trial.numbers(number), 24, f"a network, {name} changes")
            if trial.attempt(case):
                _restore_with_another(trial, case, name, values)
                _restore_with_another(trial, case, name, values[::-1])


_SUMMING: Final = ("MatMul", "Softmax")


def _restore_with_another(
    trial: Trial, case: Case, name: str, values: Sequence[ep.OptionValue]
) -> None:
    """Compile *case* with the first of two values, and restore it with the other."""
    subject = trial.subject
    before, now = ({name: value} for value in values)
    try:
        as_before, as_now, again = (
            _bytes(subject.run(case.model, case.feeds, options=each))
            for each in (before, now, now)
        )
        if as_before == as_now or as_now != again:
            trial.leave_out("nothing in the results tells which value an option has")
            return
        settings = onnxplug.SessionOptions()
        settings.add_provider_for_devices([subject.pair], {**subject.options, **before})
        compiler = onnxplug.ModelCompiler(settings, case.model, True)
        model = compiler.compile_to_bytes()
        found = _bytes(subject.run(model, case.feeds, options=now))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        trial.leave_out(f"{type(error).__name__}, which others tell of")
        return
    if found == as_before:
        text = (
            f"compiled with {name}={values[0]!r} and restored with {values[1]!r}, it "
            f"computes as with {values[0]!r}, though compiled_in is False"
        )
        trial.find(COMPILED_IN, text, case=case, kind=name)


def _bytes(results: Sequence[Any]) -> list[bytes]:
    return [np.asarray(each).tobytes() for each in results]


@check("options", share=0.3)
def side_by_side(trial: Trial) -> None:
    """Of two sessions with other values of an option, both open, each computes as with
    its own, though it may be compiled later."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    pairs = [
        (name, option.default, value)
        for name, option in trial.subject.factory.options.items()
        for value in _accepted(option)
        if value != option.default
    ]
    if not pairs:
        trial.leave_out("the EP has no option with several values that are known")
    summing = [each for each in words.operators if each in _SUMMING]
    rounds = range(2 if trial.quick else 6)
    for number, (name, *values) in trial.in_time([*itertools.product(rounds, pairs)]):
        # options of precision, say, show in sums
        of = words._replace(operators=summing) if number % 2 == 0 and summing else words
        # of rows that no session knows before its first run
        network = draw_network(of, trial.draw(number), nodes=4)
        case = network.case(trial.numbers(number), 24, f"a network, {name} differs")
        if trial.attempt(case):
            _run_side_by_side(trial, case, name, values)


def _run_side_by_side(
    trial: Trial, case: Case, name: str, values: Sequence[ep.OptionValue]
) -> None:
    """Run *case* in two open sessions, each the later and the first to run once."""
    subject, feeds = trial.subject, dict(case.feeds)
    given = [{name: value} for value in values]
    try:
        alone = [
            [_bytes(subject.run(case.model, feeds, options=each)) for _ in range(2)]
            for each in given
        ]
        if alone[0][0] == alone[1][0] or any(one != two for one, two in alone):
            trial.leave_out("nothing in the results tells which value an option has")
            return
        for later in (1, 0):
            with (
                subject.session(case.model, options=given[1 - later]) as earlier,
                subject.session(case.model, options=given[later]) as second,
            ):
                for session, place in ((earlier, 1 - later), (second, later)):
                    found = _bytes(session.run(None, feeds))
                    if found == alone[1 - place][0]:
                        text = (
                            f"a session with {name}={values[place]!r}, beside one with "
                            f"{values[1 - place]!r}, computes as the latter does alone"
                        )
                        trial.find(said.EACH_SESSION, text, case=case, kind=name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        ep.raise_interruption(error)
        trial.leave_out(f"{type(error).__name__}, which others tell of")


@check("options", share=0.2)
def suggested(trial: Trial) -> None:
    """What users set counts, whatever options the EP suggests for a device."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    suggests = trial.subject.pair.default_options
    pairs = [
        (name, text, value)
        for name, text in suggests.items()
        if (option := trial.subject.factory.options.get(name)) is not None
        for value in _accepted(option)
        if _as_text(value) != text
    ]
    if not pairs:
        trial.leave_out("the EP suggests no options, or users may set nothing else")
        return
    network = draw_network(words, trial.draw(), nodes=4, rows=24)
    for name, text, value in trial.in_time(pairs):
        what = f"{name}={value!r}, where the device suggests {text!r}"
        case = network.case(trial.numbers(), 24, f"a network, {what}")
        if not trial.attempt(case):
            continue
        with ignoring_failures():  # of values that fail others tell
            _set_against(trial, case, name, text, value)


def _set_against(
    trial: Trial, case: Case, name: str, text: str, value: ep.OptionValue
) -> None:
    """Set *value* where the device suggests *text*, and where it suggests that, too."""
    wanted = {**trial.subject.pair.default_options, name: _as_text(value)}
    against, agreed = (
        [_abilities(trial, case, {name: value}, each) for _ in range(2)]
        for each in (trial.subject.pair.default_options, wanted)
    )
    if against[0] != against[1] or agreed[0] != agreed[1]:
        trial.take_back("sessions of the same options are not alike")
        return
    for what, found in against[0].items():
        if found != agreed[0][what]:
            told = (
                f"with {name}={value!r} set, {what} is {found} where default_options "
                f"say {text!r}, and {agreed[0][what]} where they say {value!r}"
            )
            trial.find(SUGGESTED, told[:400], case=case, kind=name)


def _abilities(
    trial: Trial, case: Case, options: Mapping[str, Any], suggests: Mapping[str, str]
) -> dict[str, str]:
    """What there is to be seen of an EP that is told that its devices suggest
    *suggests*, and what it computes.

    The options that it is given are those that the host makes of *options*.
    """
    subject = trial.subject
    create = subject.factory.create

    def created(
        devices: Sequence[ep.EpDevice], options: Mapping[str, Any], session: Any
    ) -> ep.ExecutionProvider:
        told = [dataclasses.replace(d, default_options=suggests) for d in devices]
        return create(told, options, session)

    with replaced(subject.factory, "create", created), listening(subject) as talk:
        session = subject.session(case.model, options=options, alone=False)
        with session:
            results = session.run(None, dict(case.feeds))
    provider = talk.providers[-1]
    seen = {"location": str(provider.location)}
    for what in _ABILITIES:
        ability = getattr(provider, what)
        seen[what] = "None" if ability is None else f"a {type(ability).__name__}"
    seen["what it computes"] = " ".join(each.hex()[:24] for each in _bytes(results))
    return seen


_ABILITIES: Final = (
    "capture",
    "cost_model",
    "preferences",
    "serialiser",
    "specialiser",
)
"""Of an EP, which its options may switch on."""


def _as_text(value: ep.OptionValue) -> str:
    """As users may write it."""
    return str(int(value)) if isinstance(value, bool) else str(value)
