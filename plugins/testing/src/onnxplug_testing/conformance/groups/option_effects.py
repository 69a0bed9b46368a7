"""Whether what users set has an effect on what it is set for, and on nothing else.

What two values make of the same is seen in processes of their own, of which neither has
seen the other value.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxplug import ep, errors
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.forked import CAN_FORK, in_child
from onnxplug_testing.conformance.groups.captures import option_of
from onnxplug_testing.conformance.laboratory import RunNow, asking
from onnxplug_testing.conformance.networks import NO_WORDS, draw_network, vocabulary
from onnxplug_testing.conformance.partitions import examined, settled
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.taps import (
    ReadOptions,
    ignoring_failures,
    listening,
    replaced,
)
from onnxplug_testing.conformance.trial import Trial, in_words

GIVEN: Final = Sentence(
    "EpFactory.create",
    "*options* has every option of :attr:`options`, typed and validated.",
)
AS_ASKED: Final = Sentence(
    "ExecutionProvider.capture",
    "Has runs on bound values captured and replayed, as the EP's options ask for.",
)
OF_A_RUN: Final = Sentence(
    "RunContext.options",
    "Every one of the EP's ``run_options``, typed and validated.",
)
ENTRIES: Final = Sentence(
    "SessionContext.entries",
    "Every one of the EP's ``config_entries``, typed and validated.",
)
DYNAMIC: Final = Sentence(
    "DynamicOptions.set",
    "one is not known, or cannot have this value; then none of them is changed.",
)

_CHILD_SECONDS: Final = 20.0

_NETWORKS: Final = 3

_SUMMING: Final = ("MatMul", "Softmax")

_LONG: Final = 2048
"""Numbers that are added up."""

_BITS: Final = {
    **dict.fromkeys(("single", "float32", "fp32", "f32"), 24),
    **dict.fromkeys(("double", "float64", "fp64", "f64"), 53),
}
"""Of the precisions by which choices are called."""

_UNKNOWN: Final = "conformance_no_such_option"


def values_of(option: ep.Option) -> list[ep.OptionValue]:
    """Values that the declaration accepts, one of which is the default; few, as small
    as they can be."""
    if option.refused or option.ignored:
        return []
    if option.choices:
        return list(option.choices)
    if isinstance(option.default, bool):
        return [option.default, not option.default]
    if isinstance(option.default, int | float):
        kind = type(option.default)
        edges = [kind(b) for b in (option.minimum, option.maximum) if b is not None]
        near = [edge for edge in edges if abs(edge) <= 64]
        return list(dict.fromkeys([option.default, *near]))
    return [option.default]


def _cases(trial: Trial) -> list[Case]:
    """Networks whose results may depend on options, of sizes that are known and not."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return []
    summing = [each for each in words.operators if each in _SUMMING]
    cases = []
    for number in range(_NETWORKS):
        of = words._replace(operators=summing) if number % 2 == 0 and summing else words
        rows: int | str = 24 if number < 2 else "n"
        network = draw_network(of, trial.draw(number), nodes=4, rows=rows)
        cases.append(network.case(trial.numbers(number), 24, f"network {number}"))
    return cases


def _seen(
    subject: Subject, cases: Sequence[Case], options: Mapping[str, Any]
) -> list[str]:
    """What is to be seen of sessions with *options*: what each case gives, and what the
    EP says of itself."""
    found = []
    for case in cases:
        with listening(subject) as talk:
            session = subject.session(
                case.model, options=options, alone=False, checked=False
            )
            with session:
                results = session.run(None, dict(case.feeds))
        digest = hashlib.sha256(b"".join(np.asarray(r).tobytes() for r in results))
        provider = talk.providers[-1]
        facts = [type(getattr(provider, what)).__name__ for what in _ABILITIES]
        found.append(f"{digest.hexdigest()[:24]} {' '.join(facts)}")
    return found


_ABILITIES: Final = ("capture", "cost_model", "location", "serialiser", "specialiser")


@check("options", share=0.3)
def one_after_the_other(trial: Trial) -> None:
    """A session has its own options, and not those of sessions that were made before
    it, of the same model or others."""
    pairs = [
        (name, option.default, value)
        for name, option in trial.subject.factory.options.items()
        for value in values_of(option)
        if value != option.default
    ]
    cases = _cases(trial) if pairs else []
    if not pairs:
        trial.leave_out("the EP has no option with several values that are known")
    if not CAN_FORK:
        trial.leave_out("the system forks no processes")
        return
    for name, *values in trial.in_time(pairs if cases else []):
        tried = Case(cases[0].model, cases[0].feeds, f"{name} changes")
        if trial.attempt(tried):
            with asking(trial, said.EACH_SESSION, tried):
                _one_after_the_other(trial, cases, name, values, tried)
    _leave_tables(trial, cases[:1])


def _one_after_the_other(
    trial: Trial,
    cases: Sequence[Case],
    name: str,
    values: Sequence[ep.OptionValue],
    tried: Case,
) -> None:
    apart = []
    for value in values:
        options = {name: value}
        child = in_child(
            lambda options=options: "\n".join(  # type: ignore[misc]
                _seen(trial.subject, cases, options)
            ),
            _CHILD_SECONDS,
        )
        apart.append(child.said.splitlines())
        if child.hung or len(apart[-1]) != len(cases):
            trial.leave_out("a child of the process is not served, or told so")
            return
    if apart[0] == apart[1]:
        trial.leave_out("nothing that is to be seen tells which value an option has")
        return
    for place in (1, 0, 1):
        found = _seen(trial.subject, cases, {name: values[place]})
        for one, right, other in zip(
            found, apart[place], apart[1 - place], strict=True
        ):
            if one not in (right, other) or right == other or one == right:
                continue
            text = (
                f"a session with {name}={values[place]!r}, after others with "
                f"{values[1 - place]!r}, is as those with {values[1 - place]!r} are"
            )
            trial.find(said.EACH_SESSION, text, case=tried, kind=name)


def _leave_tables(trial: Trial, cases: Sequence[Case]) -> None:
    """Whether the EP leaves alone what it declares, and what it is given."""
    factory = trial.subject.factory
    tables = (factory.options, factory.config_entries, factory.run_options)
    before = [dict(table) for table in tables]
    changed: list[str] = []
    create = factory.create

    def created(devices: Any, options: Mapping[str, Any], session: Any) -> Any:
        given, kept = dict(options), dict(options)
        provider = create(devices, given, session)
        if given != kept:
            changed.append(f"the options that it was given: {given}, before {kept}")
        return provider

    for case in cases:
        trial.count()
        with ignoring_failures(), replaced(factory, "create", created):
            trial.subject.run(case.model, case.feeds, alone=False)
        for what in changed:
            trial.find(GIVEN, f"create changed {what}"[:300], case=case, kind="given")
        after = [dict(table) for table in tables]
        if after != before:
            text = "what the factory declares changed when a session was made"
            trial.find(GIVEN, text, case=case, kind="declared")


# of what is known what it asks for


@check("options", share=0.1)
def precisions(trial: Trial) -> None:
    """An option that names precisions has sums added up in them, of each operator."""
    for name, option in trial.subject.factory.options.items():
        named = {c: _BITS[c] for c in map(str, values_of(option)) if c in _BITS}
        if len(set(named.values())) < 2:
            continue
        for operator, case, exact in _sums(trial):
            tried = Case(case.model, case.feeds, f"{operator}, {name} changes")
            if not trial.attempt(tried):
                continue
            found = {}
            for choice in named:
                with ignoring_failures():
                    (result,) = trial.subject.run(
                        case.model, case.feeds, options={name: choice}
                    )
                    found[choice] = result
            if len(found) < len(named):
                trial.take_back(f"the EP does not take {operator}")
                continue
            _hold_against(trial, name, named, found, exact, operator, tried)
    if not trial.tried:
        trial.leave_out("no option of the EP names precisions as it is known")


def _hold_against(
    trial: Trial,
    name: str,
    bits: Mapping[str, int],
    found: Mapping[str, Any],
    exact: Any,
    operator: str,
    case: Case,
) -> None:
    off = {
        choice: float((np.abs(result.astype(np.float64) - exact) / np.abs(exact)).max())
        for choice, result in found.items()
    }
    coarse = min(bits.values())
    best = max(off[choice] for choice in bits if bits[choice] > coarse)
    rest = [off[choice] for choice in bits if bits[choice] == coarse]
    # rounded once, at the end
    if best > 2.0**-22 and best >= min(rest) / 8:
        choices = " and ".join(f"{off[c]:.1e} with {name}={c}" for c in bits)
        text = f"{operator} of {_LONG} numbers is off by {choices}"
        trial.find(said.DESCRIBED, text, node=operator, case=case, kind=operator)


def _sums(trial: Trial) -> Iterator[tuple[str, Case, Any]]:
    """Models of one node that adds up, what they are fed, and what is exact."""
    numbers = trial.numbers("sums")
    x = numbers.uniform(-1, 1, (3, _LONG)).astype(np.float32)
    w = numbers.uniform(-1, 1, (_LONG, 4)).astype(np.float32)
    # large ones that nearly cancel each other, of which single precision has little
    x[:, 1::2] = x[:, ::2] * (np.float32(-1) + np.float32(1e-3))
    w[1::2] = w[::2]
    wide, weight = x.astype(np.float64), w.astype(np.float64)
    along = {"axes": np.array([1], np.int64)}
    made: dict[str, tuple[dict[str, Any], Any]] = {
        "MatMul": ({"w": w}, wide @ weight),
        "Gemm": ({"w": w}, wide @ weight),
        "ReduceSum": (along, wide.sum(1, keepdims=True)),
        "ReduceMean": (along, wide.mean(1, keepdims=True)),
    }
    for operator, (weights, exact) in made.items():
        graph = helper.make_graph(
            [helper.make_node(operator, ["x", *weights], ["y"])],
            "sums",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, key) for key, array in weights.items()],
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
        )
        case = Case(model.SerializeToString(), {"x": x}, operator)
        yield operator, case, exact


@check("options", share=0.1)
def captures_as_asked(trial: Trial) -> None:
    """Runs are captured where the option says so, and not where it does not."""
    options = option_of(trial)
    if options is None:
        trial.leave_out("no option of the EP asks for captures")
        return
    (name,) = options
    default = trial.subject.factory.options[name].default
    for case in _cases(trial)[:1]:
        for value in (True, False, None):
            given = {} if value is None else {name: value}
            tried = Case(case.model, case.feeds, f"a network, {given or 'no options'}")
            if not trial.attempt(tried):
                continue
            with listening(trial.subject) as talk:
                try:
                    trial.subject.session(
                        case.model, options=given, alone=False, checked=False
                    ).close()
                except (ep.SessionRefused, errors.OptionError):
                    continue
                except (Exception, SystemExit) as error:  # noqa: BLE001 (others tell)
                    ep.raise_interruption(error)
                    continue
            wanted = default if value is None else value
            capture = talk.providers[-1].capture
            if (capture is not None) != wanted:
                has = "None" if capture is None else f"a {type(capture).__name__}"
                text = f"with {name}={wanted}, ExecutionProvider.capture is {has}"
                trial.find(AS_ASKED, text, case=tried, kind=str(wanted))


# of runs, and of sessions that are open


@check("options", share=0.2)
def of_runs(trial: Trial) -> None:
    """Options of a run are looked at, and are those of that run alone; options that
    change while a session lives are refused if nobody knows them."""
    declared = trial.subject.factory.run_options
    if not declared:
        trial.leave_out("the EP declares no options of runs")
    for lab, specimen, case in examined(trial, "options of runs"):
        with asking(trial, OF_A_RUN, case):
            _set_dynamic(trial, lab.provider.dynamic_options, case)
            if not declared:
                continue
            feeds = specimen.feeds(trial.numbers("options"))
            unread = set(declared)
            for name, option in declared.items():
                results = []
                values = values_of(option) or [option.default]
                for value in (option.default, *values, option.default):
                    trial.count()
                    read = ReadOptions({**lab.run_options, name: value})
                    with settled(lab) as stream:
                        context = RunNow(stream, MappingProxyType(read))
                        placed = lab.put(feeds, stream)
                        given = lab.run(placed, None, stream, context=context)
                    found = [lab.get(key, array) for key, array in given.items()]
                    results.append([array.tobytes() for array in found])
                    unread -= read.read
                if results[0] != results[-1]:
                    text = f"a run with {name}={option.default!r}, after others with "
                    text = f"{text}other values, gives other numbers than before"
                    trial.find(OF_A_RUN, text, case=case, kind=name)
            for name in sorted(unread):
                text = f"the run option {name!r} is declared, and never looked at"
                trial.find(OF_A_RUN, text, case=case, kind=f"unread {name}")
    _look_for_unread_entries(trial)


def _set_dynamic(trial: Trial, dynamic: ep.DynamicOptions | None, case: Case) -> None:
    if dynamic is None:
        trial.leave_out("the EP takes no options while a session lives")
        return
    known = [
        {name: str(int(value) if isinstance(value, bool) else value)}
        for name, option in trial.subject.factory.options.items()
        for value in values_of(option)
    ]
    for options in ({}, *known):
        for wrong in ({_UNKNOWN: "1"}, {"": ""}):
            trial.count()
            try:
                dynamic.set({**options, **wrong})
            except errors.OptionError:
                continue
            except Exception as error:  # noqa: BLE001 (whatever an EP raises)
                ep.raise_interruption(error)
                text = f"of {list(wrong)} {in_words(error)}; expected an OptionError"
                trial.find(DYNAMIC, text, case=case, kind="raised")
            else:
                text = f"{list(wrong)} is accepted"
                trial.find(DYNAMIC, text, case=case, kind="accepted")


class _ReadEntries:
    """A session's description, which knows of which entries something was asked."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.entries = ReadOptions(session.entries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def _look_for_unread_entries(trial: Trial) -> None:
    factory = trial.subject.factory
    if not factory.config_entries:
        return
    create, seen = factory.create, []

    def created(devices: Any, options: Any, session: Any) -> Any:
        seen.append(_ReadEntries(session))
        return create(devices, options, seen[-1])

    for case in _cases(trial):
        with ignoring_failures(), replaced(factory, "create", created):
            trial.subject.run(case.model, case.feeds, alone=False)
    if not seen:
        return
    trial.count(len(factory.config_entries))
    read = set(itertools.chain.from_iterable(each.entries.read for each in seen))
    for name in sorted(set(factory.config_entries) - read):
        text = f"the config entry {name!r} is declared, and never looked at"
        trial.find(ENTRIES, text, kind=f"unread {name}")
