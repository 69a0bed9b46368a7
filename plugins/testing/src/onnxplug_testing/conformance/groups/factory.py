"""Whether what a factory says of itself is of the form that it has to be, and stays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import onnx

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.trial import Trial, in_words

PAIRS: Final = Sentence(
    "EpFactory.supported_devices",
    "The pairs of this EP and those of *devices* it can drive.",
)
VERSIONS: Final = Sentence(
    "EpFactory.engine_versions",
    "(optional) Versions of what computes on *device*, such as engine and driver.",
)
DIAGNOSES: Final = Sentence(
    "EpFactory.diagnose",
    "(optional) What ``onnxplug doctor`` should report.",
)
OPERATORS: Final = Sentence(
    "EpFactory.operators",
    "(optional) The operators that the EP runs, for ``onnxplug ops``.",
)


@check("factory", share=0.1)
def facts(trial: Trial) -> None:
    """Devices, versions and diagnoses are the same again, and of the right types."""
    factory = trial.subject.factory
    hardware = onnxplug.get_hardware_devices()
    pairs = _twice(trial, PAIRS, lambda: list(factory.supported_devices(hardware)))
    for pair in pairs or ():
        if isinstance(pair, ep.RefusedDevice):
            if not pair.reason.strip():
                trial.find(PAIRS, f"refuses {pair.device} without words")
        elif not isinstance(pair, ep.EpDevice):
            trial.find(PAIRS, f"gives a {type(pair).__name__}; expected an EpDevice")
        elif pair.ep_name != factory.name:
            trial.find(PAIRS, f"gives a pair of {pair.ep_name!r}, not of itself")
    for device in trial.subject.pairs:
        ask = functools.partial(factory.engine_versions, device)
        versions = _twice(trial, VERSIONS, ask)
        if versions is not None and not all(
            isinstance(text, str) for pair in dict(versions).items() for text in pair
        ):
            trial.find(VERSIONS, f"gives {versions!r}; expected texts by text"[:200])
    for finding in _twice(trial, DIAGNOSES, lambda: list(factory.diagnose())) or ():
        if not isinstance(finding, ep.Finding):
            trial.find(DIAGNOSES, f"gives a {type(finding).__name__}, no Finding")


def _twice(trial: Trial, sentence: Sentence, call: Callable[[], Any]) -> Any:
    """What *call* gives, if it gives it twice."""
    trial.count()
    try:
        first, second = call(), call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        trial.find(sentence, in_words(error))
        return None
    if first != second:
        trial.find(sentence, f"gives {first!r}, then {second!r}"[:300])
    return first


@check("factory", share=0.1)
def operators(trial: Trial) -> None:
    """The operators that it says it has are ONNX's, and of versions that there are."""
    said = trial.subject.factory.operators()
    if said is None:
        trial.leave_out("the EP does not say which operators it has")
        return
    versions: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            versions.setdefault(schema.name, set()).add(schema.since_version)
    for each in said:
        trial.count()
        if not isinstance(each, ep.OperatorSupport):
            trial.find(OPERATORS, f"gives a {type(each).__name__}")
        elif not each.domain:
            _look_at(trial, each, versions)


def _look_at(
    trial: Trial, said: ep.OperatorSupport, known: Mapping[str, Collection[int]]
) -> None:
    versions = known.get(said.op_type)
    if not versions:
        # a distribution may add operators to ONNX's
        if registry.domains.find("ai.onnx", said.op_type, said.since) is not None:
            return
        trial.find(OPERATORS, f"ONNX has no operator {said.op_type!r}")
        return
    if said.until is not None and said.until < said.since:
        text = f"{said.op_type} is said to be had since {said.since}"
        trial.find(OPERATORS, f"{text} until {said.until}")
    elif not any(
        said.since <= version <= (said.until or version) for version in versions
    ) and said.since > max(versions):
        text = f"{said.op_type} has no version from {said.since} on"
        trial.find(OPERATORS, f"{text}; there are {sorted(versions)}")
