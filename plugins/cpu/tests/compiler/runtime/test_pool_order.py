"""The pool's protocol on memory that is ordered as ARM orders it, tried exhaustively.

How its accesses are ordered is read from the code that the pool is compiled from; what
they are is written here a second time, as :mod:`~onnxplug_cpu.compiler.runtime.pool`
has it: a ticket of unclaimed chunks, what the job is, how many chunks are done, a lock,
and of each worker whether it is parked.
"""

from __future__ import annotations

import re

import pytest

from onnxplug_cpu.compiler.codegen.emit import Module
from onnxplug_cpu.compiler.machine.isa import NEON
from onnxplug_cpu.compiler.runtime import pool

from .weak_memory import Do, Explorer, Program, Violation

KINDS = {
    "load": r"load atomic \S+, .* (\w+), align",
    "exchange": r"atomicrmw xchg .* (\w+)$",
    "replace": r"cmpxchg .* (\w+) \w+$",
    "add": r"atomicrmw add .* (\w+)$",
}


def orders_of_the_code() -> dict[str, str]:
    """The order of each kind of access in the pool's code."""
    module = Module()
    pool.WORKER.generator.write(module, "worker", NEON)
    pool.write_parallel(module, "run", NEON, "futex")
    text = module.text(NEON.attributes)
    found = {k: set(re.findall(p, text, re.MULTILINE)) for k, p in KINDS.items()}
    assert all(len(orders) == 1 for orders in found.values()), found
    assert len(re.findall(r"\bfence\b", text)) == 0
    return {kind: orders.pop() for kind, orders in found.items()}


def drain(orders: dict[str, str], end: str) -> Program:
    """Do chunks until all are claimed, then go to *end*."""
    return [
        f"{end}.drain",
        Do("load", "ticket", orders["load"], into="ticket"),
        Do("go", end, test=lambda r: r["ticket"][0] >= r["ticket"][1]),
        Do(
            "replace",
            "ticket",
            orders["replace"],
            lambda r: (r["ticket"], (r["ticket"][0] + 1, r["ticket"][1])),
            into="won",
        ),
        Do("go", f"{end}.drain", test=lambda r: not r["won"]),
        Do("load", "function", into="function"),
        Do("load", "words", into="words"),
        Do("check", "half a job", test=lambda r: r["function"] == r["words"]),
        *(
            step
            for chunk in range(2)
            for step in (
                Do(
                    "go",
                    f"{end}.not{chunk}",
                    test=lambda r, c=chunk: r["ticket"][0] != c,
                ),
                Do("store", f"result{chunk}", value=lambda r: r["words"]),
                f"{end}.not{chunk}",
            )
        ),
        Do("add", "done", orders["add"], lambda _: 1),
        Do("go", f"{end}.drain"),
        end,
    ]


def worker(orders: dict[str, str], number: int = 1) -> Program:
    """A worker's life, which ends in its sleep."""
    parked = f"parked{number}"
    return [
        "turn",
        *drain(orders, "idle"),
        Do("exchange", parked, orders["exchange"], lambda _: 1),
        Do("load", "ticket", orders["load"], into="ticket"),
        Do("go", "wanted", test=lambda r: r["ticket"][0] < r["ticket"][1]),
        Do("sleep", parked),
        "wanted",
        Do("exchange", parked, orders["exchange"], lambda _: 0),
        Do("go", "turn"),
    ]


def job(
    orders: dict[str, str],
    number: int,
    chunks: int,
    workers: int = 1,
    *,
    helps: bool = True,
) -> Program:
    """What ``parallel`` does: one job, of which the caller takes chunks, too.

    Args:
        helps: the caller does; otherwise somebody must have been woken to do them.
    """
    end = f"job{number}"
    wakes = [
        step
        for each in range(1, workers + 1)
        for step in (
            Do("load", f"parked{each}", orders["load"], into="parked"),
            Do("go", f"{end}.awake{each}", test=lambda r: r["parked"] == 0),
            Do("exchange", f"parked{each}", orders["exchange"], lambda _: 0),
            Do("wake", f"parked{each}"),
            f"{end}.awake{each}",
        )
    ]
    results = [
        step
        for chunk in range(chunks)
        for step in (
            Do("load", f"result{chunk}", into="result"),
            Do("check", "another's result", test=lambda r: r["result"] == number),
        )
    ]
    return [
        Do("exchange", "lock", orders["exchange"], lambda _: 1, into="busy"),
        Do("go", f"{end}.alone", test=lambda r: r["busy"] == 1),
        Do("store", "function", value=lambda _: number),
        Do("store", "words", value=lambda _: number),
        Do("store", "done", "monotonic", lambda _: 0),  # which others only add to
        Do("exchange", "ticket", orders["exchange"], lambda _: (0, chunks)),
        *wakes,
        *(drain(orders, f"{end}.drained") if helps else []),
        Do("await", "done", orders["load"], test=lambda done: done == chunks),
        *results,
        Do("exchange", "lock", orders["exchange"], lambda _: 0),
        f"{end}.alone",
    ]


START = {
    **dict.fromkeys(("function", "words", "done", "lock"), 0),
    **dict.fromkeys(("parked1", "parked2", "result0", "result1"), 0),
    "ticket": (0, 0),
}


def scenarios(orders: dict[str, str]) -> dict[str, Explorer]:
    """What few threads do that finds what is ordered too little."""
    alone = job(orders, 1, 1, helps=False)
    twice = [*job(orders, 1, 1), *job(orders, 2, 1)]
    return {
        "a sleeper is woken": Explorer([alone, worker(orders)], START, [1]),
        "two jobs": Explorer([twice, worker(orders)], START, [1]),
        "two chunks": Explorer([job(orders, 1, 2), worker(orders)], START, [1]),
        "two callers": Explorer(
            [job(orders, 1, 1), job(orders, 2, 1), worker(orders)], START, [2]
        ),
    }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] * (name == "two callers"))
        for name in scenarios(dict.fromkeys(KINDS, "seq_cst"))
    ],
)
def test_every_order_of_events_is_right(name: str) -> None:
    explorer = scenarios(orders_of_the_code())[name]
    explorer.explore()
    assert explorer.states > 100


WEAKER = [
    *(("load", order) for order in ("acquire", "monotonic")),
    *(("exchange", order) for order in ("acq_rel", "release", "monotonic")),
    *(("replace", order) for order in ("monotonic",)),
    *(("add", order) for order in ("acquire", "monotonic")),
]


@pytest.mark.parametrize(("kind", "order"), WEAKER)
def test_what_is_ordered_less_is_found(kind: str, order: str) -> None:
    weaker = orders_of_the_code() | {kind: order}
    found = []
    for name, explorer in scenarios(weaker).items():
        try:
            explorer.explore()
        except Violation as error:
            found.append(f"{name}: {error}")
            break
    assert found
