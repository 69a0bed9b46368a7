"""Cases by their kind and number: the same ones in each process."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx

from .children import Case
from .mutate_bytes import mutated_bytes
from .mutate_feeds import mutated_feeds, resized_feeds
from .mutate_model import graphs, mutated_model
from .operators import random_operator
from .seeds import Seed


def _operators(model: onnx.ModelProto) -> str:
    nodes = [node for each in (*graphs(model), *model.functions) for node in each.node]
    return "+".join(sorted({node.op_type for node in nodes}))


def _case(seed: Seed, told: str, **given: Any) -> Case:
    complete = {
        "model": seed.model.SerializeToString(),
        "runs": [seed.feeds],
        "files": seed.files,
        "ops": _operators(seed.model),
        **given,
    }
    return Case(f"{seed.name}: {told}", **complete)


def _of_bytes(seed: Seed, choose: random.Random) -> Case:
    content, told = mutated_bytes(seed.model.SerializeToString(), choose)
    return _case(seed, told, model=content)


def _of_structure(seed: Seed, choose: random.Random) -> Case:
    model, told = mutated_model(seed.model, choose)
    try:
        content = model.SerializeToString()
    except ValueError as error:  # of text that is no UTF-8
        return _case(seed, f"{told} (left as it was: {error})")
    return _case(seed, told, model=content, ops=_operators(model))


def _of_feeds(seed: Seed, choose: random.Random) -> Case:
    """Several runs of one session, the last one as it should be."""
    runs, told = [], []
    for _ in range(choose.choice((1, 2, 3))):
        make = choose.choice((mutated_feeds, mutated_feeds, resized_feeds))
        feeds, how = make(seed.feeds, choose)
        runs.append(feeds)
        told.append(how)
    return _case(seed, " | ".join(told), runs=[*runs, seed.feeds])


def _of_operators(_: Seed, choose: random.Random) -> Case:
    seed = random_operator(choose.randrange(1 << 40))
    other, told = resized_feeds(seed.feeds, choose)
    runs = [seed.feeds, other, seed.feeds]
    return _case(seed, f"then {told}", runs=runs, threads=choose.choice((1, 2)))


def _of_both(seed: Seed, choose: random.Random) -> Case:
    """Structure and feeds, of a model or of an operator that is wrong before."""
    if choose.random() < 0.5:
        seed = random_operator(choose.randrange(1 << 40))
    case = _of_structure(seed, choose)
    feeds, how = mutated_feeds(seed.feeds, choose)
    return case._replace(name=f"{case.name} | {how}", runs=[feeds, seed.feeds])


KINDS: Final[dict[str, Callable[[Seed, random.Random], Case]]] = {
    "bytes": _of_bytes,
    "structure": _of_structure,
    "feeds": _of_feeds,
    "operators": _of_operators,
    "both": _of_both,
}
"""What is wrong with a case."""


def random_case(kind: str, number: int, seeds: Sequence[Seed]) -> Case:
    """The case of a kind with a number, the same one for the same seeds."""
    choose = random.Random(f"{kind} {number}")
    return KINDS[kind](choose.choice(seeds), choose)
