"""Models of one node: ONNX's own cases, variations of them, and mutations at random.

The suite takes some fifteen seconds to write its cases, so they are kept on disk.
"""

from __future__ import annotations

import functools
import itertools
import pickle
import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import onnx
from onnx import helper

from onnxplug.authoring.entries import Cache, fingerprint
from onnxplug_testing.conformance.edges import counts_from_the_end, edges, targets
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.mutation import Pool, mutations
from onnxplug_testing.conformance.pitfalls import pitfalls_of
from onnxplug_testing.measuring.variations import Variation, suite_cases, variations

SEVERAL: Final = 16
"""Variations of an operator are made of so many of its cases."""

KINDS: Final = (
    "suite", "pitfall", "edge", "pitfall", "mutated", "pitfall", "target", "edge",
    "pitfall", "version", "pitfall", "axis", "edge", "pitfall", "dtype", "pitfall",
    "dynamic", "edge", "pitfall", "version", "mutated", "pitfall", "edge", "shape",
    "pitfall", "target", "version", "edge", "pitfall", "suite", "constant", "edge",
    "pitfall", "mutated", "values", "edge", "pitfall", "version", "special", "edge",
    "pitfall", "dtype",
)  # fmt: skip
"""In which order kinds take turns, as long as there are any of them."""

_RANDOM: Final = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators whose results are drawn, which no two implementations draw alike."""

_FORMAT: Final = 1


@functools.cache
def load_suite() -> dict[str, list[Variation]]:
    """The suite's cases of one node, by operator."""
    cache = Cache("onnxplug-testing")
    name = "suite-" + fingerprint(f"{onnx.__version__} {_FORMAT}").hex()[:24]
    kept = cache.load(name)
    if kept is not None:
        found: dict[str, list[Variation]] = pickle.loads(kept)
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        found = {
            operator: cases
            for operator, cases in suite_cases().items()
            if operator not in _RANDOM
        }
    cache.store(name, pickle.dumps(found))
    return found


def trials_of(
    cases: Sequence[Variation], draw: random.Random, kinds: Sequence[str] = KINDS
) -> Iterator[Variation]:
    """The *cases* of an operator, and what is made of them, kinds taking turns.

    Mutations never end, where there is something to mutate.
    """
    waiting: dict[str, list[Variation]] = {kind: [] for kind in kinds}
    source = _made(cases)
    apart = {
        "axis": (turned for case in cases if (turned := from_the_end(case))),
        "edge": edges(cases),
        "pitfall": pitfalls_of(cases[0].node.op_type, draw) if cases else iter(()),
        "mutated": mutations(Pool(cases), draw),
        "target": targets(cases),
    }
    fruitless = 0
    for turn in itertools.count():
        kind = kinds[turn % len(kinds)]
        while kind not in apart and not waiting[kind]:
            made = next(source, None)
            if made is None:
                break
            if made.kind in waiting:
                waiting[made.kind].append(made)
        if kind in apart:
            found = next(apart[kind], None)
        else:
            found = waiting[kind].pop(0) if waiting[kind] else None
        fruitless = 0 if found is not None else fruitless + 1
        if found is not None:
            yield found
        elif fruitless == len(kinds):
            return


def from_the_end(case: Variation) -> Variation | None:
    """*case* with axes counted from the end; ``None`` if it has none, or they may not
    be."""
    schema = onnx.defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    if not case.inputs or case.inputs[0] is None:
        return None
    rank = case.inputs[0].ndim
    given = {attribute.name: attribute for attribute in case.node.attribute}
    put: dict[str, Any] = {}
    changed = False
    for name, declared in schema.attributes.items():
        if not counts_from_the_end(schema, name):
            continue
        value = helper.get_attribute_value(given.get(name, declared.default_value))
        numbers = value if isinstance(value, Sequence) else [value]
        if not all(isinstance(each, int) for each in numbers):
            continue  # it has no default
        turned = [each - rank if each >= 0 else each for each in numbers]
        changed = changed or turned != list(numbers)
        put[name] = turned if numbers is value else turned[0]
    return replace(case.with_attributes(**put), kind="axis") if changed else None


def _made(order: Sequence[Variation]) -> Iterator[Variation]:
    """All cases and their variations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for position, case in enumerate(order[:SEVERAL]):
            yield from variations(case, position)
    yield from order[SEVERAL:]


def as_case(tried: Variation) -> Case:
    """*tried* with its model written.

    Raises:
        Exception: it cannot be written, so that it is no model of ONNX's.
    """
    return Case(
        tried.plain_model().SerializeToString(),
        tried.feeds(),
        f"{tried.case} ({tried.kind}), opset {tried.opset}",
    )


def describe(tried: Variation) -> str:
    """The node in words: operator, version, attributes."""
    attributes = ", ".join(
        f"{attribute.name}={_shown(attribute)}" for attribute in tried.node.attribute
    )
    head = f"{tried.node.op_type}-{tried.since}"
    return f"{head} ({attributes})" if attributes else head


def _shown(attribute: onnx.AttributeProto) -> str:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto | onnx.GraphProto | onnx.TypeProto):
        return f"a {type(value).__name__}"
    return str(list(value) if hasattr(value, "__len__") else value)[:60]
