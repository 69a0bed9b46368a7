"""Asks an EP to compile one partition, and checks what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxplug.authoring.nodes import describe
from onnxplug.ep import CompiledPartition, Declined, Reason, RefusalCode, SessionRefused
from onnxplug.errors import EpError, LoadCancelled, OutOfMemory, PluginIncompatible
from onnxplug.graph import Node
from onnxplug.guard import FAILURES, in_words
from onnxplug.interruption import raise_interruption
from onnxplug.partition import Candidate, GraphPartition
from onnxplug.plugins.versions import removed_from, warn_deprecated


def compile_partition(
    candidate: Candidate,
    partition: GraphPartition,
    note: Callable[[str], None] | None = None,
) -> CompiledPartition:
    """What the EP makes of *partition*, or made of it before if it is cached.

    Args:
        note: called with what was done with the cache, if the EP has one.

    Raises:
        Declined, SessionRefused, LoadCancelled: the EP says so.
        EpError, OutOfMemory: it failed, or what it made is malformed.
    """
    cache = candidate.cache
    if cache is None:
        return _compiled(candidate, partition)
    name = cache.name_of(partition)
    data = cache.load(name)
    compiled: CompiledPartition | None = None
    fault: BaseException | None = None
    if data is not None:
        try:
            compiled = cache.restore(partition, data)
            _check(compiled, "restore", partition)
            outcome = cache.RESTORED
        except LoadCancelled:
            raise
        except FAILURES as error:
            raise_interruption(error)
            compiled, fault = None, error  # whatever is wrong, compiling gives another
            cache.discard(name)
    if compiled is None:
        compiled = _compiled(candidate, partition)
        outcome = cache.store(name, partition, compiled, fault)
    if note is not None:
        note(outcome)
    return compiled


def _compiled(candidate: Candidate, partition: GraphPartition) -> CompiledPartition:
    return checked(
        candidate, partition, lambda: candidate.provider.compile(partition), "compile"
    )


def checked(
    candidate: Candidate,
    partition: GraphPartition,
    make: Callable[[], CompiledPartition],
    stage: str,
) -> CompiledPartition:
    """What *make* gives, which asks the EP of *candidate* at *stage*.

    Raises:
        Declined, SessionRefused, LoadCancelled: the EP says so.
        EpError, OutOfMemory: it failed, or what it made is malformed.
    """
    try:
        compiled = make()
        _check(compiled, stage, partition)
        return compiled
    except (Declined, SessionRefused, LoadCancelled) as error:
        raise_interruption(error)
        raise
    except MemoryError as error:
        raise_interruption(error)
        what = f"{candidate.name}, to {stage} {_named(partition)},"
        raise OutOfMemory.of(error, what, ep=candidate.name) from error
    except FAILURES as error:
        raise_interruption(error)
        raise EpError(
            f"{candidate.name} failed to {stage} {_named(partition)}: "
            f"{in_words(error)}",
            ep=candidate.name,
            stage=stage,
        ) from error


def _named(partition: GraphPartition) -> str:
    nodes = partition.nodes
    if len(nodes) == 1:
        return describe(nodes[0])
    return f"a partition of {len(nodes)} nodes from {describe(nodes[0])} on"


def _check(compiled: object, method: str, partition: GraphPartition) -> None:
    if not isinstance(compiled, CompiledPartition):
        raise TypeError(
            f"{method}() returned a {type(compiled).__name__}; expected a "
            "CompiledPartition"
        )
    gone = removed_from(compiled, "CompiledPartition")
    if gone:
        raise PluginIncompatible(gone)
    warn_deprecated(compiled, "CompiledPartition")
    _check_locations(compiled, partition)
    _check_limit(compiled.max_concurrent_runs)


def _check_locations(compiled: CompiledPartition, partition: GraphPartition) -> None:
    for kind, locations, names in (
        ("input", compiled.input_locations, partition.inputs),
        ("output", compiled.output_locations, partition.outputs),
    ):
        if locations is not None and len(locations) != len(names):
            raise ValueError(
                f"{kind}_locations has {len(locations)} entries; expected one for each "
                f"of the {len(names)} {kind}s, or None"
            )


def _check_limit(limit: object) -> None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(
            f"max_concurrent_runs is {limit!r}; expected at least 1, or None"
        )


def declined_nodes(
    error: Declined, candidate: Candidate, partition: GraphPartition
) -> Sequence[Node]:
    """The nodes that an EP declined: those that it names, or all.

    Raises:
        EpError: it names none, or one that is not the partition's.
    """
    if error.nodes is None:
        return partition.nodes
    if not error.nodes:
        raise EpError(
            f"{candidate.name} declined a partition and named no node; expected some "
            "of Partition.nodes, or nodes=None for all",
            ep=candidate.name,
            stage="compile",
        ) from error
    own = {id(node): node for node in partition.nodes}
    for node in error.nodes:
        if id(node) not in own:
            raise EpError(
                f"{candidate.name} declined a partition and named {node!r}, which is "
                "none of its nodes; expected nodes of Partition.nodes",
                ep=candidate.name,
                stage="compile",
            ) from error
    return [own[id(node)] for node in error.nodes]


def declined_reason(reason: object) -> Reason:
    """Why an EP declined, whatever it gave for a reason."""
    return (
        reason
        if isinstance(reason, Reason)
        else Reason(RefusalCode.OTHER, f"declined at compile: {reason}")
    )
