"""Stages that threads share, one stage after the other.

A stage has as many shares as there are threads.  A thread begins with the share that
is its own, as its cache has the weights of it, goes on with those that nobody has
claimed, and waits until all are done.  So one thread alone does everything, and a
thread that comes late finds its place.  Where one has waited for long, as the system
has put another aside, it does what is left alone, and the others leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen import atomics
from onnxplug_cpu.compiler.codegen.types import I8, I64

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Value
    from onnxplug_cpu.compiler.machine.isa import Isa

_LINE: Final = 64
_DONE, _OWNER, _CLAIMS = 0, _LINE, 2 * _LINE  # an i64 in a cache line each

_PATIENCE: Final = 4096
"""Pauses, about 0.1 ms, that a thread waits before it goes on alone."""


def shared_bytes(shares: int) -> int:
    """The size of what threads write for each other; zeros before the first stage."""
    return _CLAIMS + shares * _LINE


def write_stages(
    f: Function,
    isa: Isa,
    memory: Value,
    own: Value,
    shares: Value,
    stages: Value,
    body: Callable[[Value, Value], None],
) -> None:
    """Emit ``body(stage, share)`` for all stages, at least one, and shares.

    Args:
        memory: :func:`shared_bytes`.
        own: the number of the thread's own share.
    """
    done, owner = f.at(memory, _DONE, I8), f.at(memory, _OWNER, I8)

    def share(place: Value, stage: Value) -> None:
        turned = own + place
        number = f.select(turned < shares, turned, turned - shares)
        claim = f.at(memory, number * _LINE + _CLAIMS, I8)

        def do() -> None:
            body(stage, number)
            atomics.add(f, done, 1)

        f.branch(atomics.replace(f, claim, stage, stage + 1), do)

    def own_all() -> None:
        atomics.replace(f, owner, f.value(0, I64), own + 1)

    def wait(stage: Value) -> None:
        wanted = (stage + 1) * shares

        def pause(count: Value) -> tuple[Value, Sequence[Value]]:
            waits = atomics.load(f, done, I64) < wanted
            f.branch(waits, lambda: atomics.pause(f, isa))
            f.branch(waits & count.compare("eq", _PATIENCE), own_all)
            return waits, [count + 1]

        f.repeat(pause, [f.value(0, I64)])

    def turn(stage: Value) -> tuple[Value, Sequence[Value]]:
        who = atomics.load(f, owner, I64)
        stays = who.compare("eq", 0) | who.compare("eq", own + 1)

        def do() -> None:
            f.loop(shares, lambda place: share(place, stage), nonempty=True)
            wait(stage)

        f.branch(stays, do)
        following = stage + 1
        return stays & (following < stages), [following]

    f.repeat(turn, [f.value(0, I64)])
