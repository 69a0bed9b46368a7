"""What a simulated EP claims, what it has, and where it fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from onnxplug import ep
from onnxplug_testing.simulated.kernels import KERNELS


class Stage(StrEnum):
    """Where a simulated EP can be made to fail."""

    LOAD = "load"
    DEVICES = "devices"
    CREATE = "create"
    GET_CAPABILITY = "get_capability"
    CONTEXT = "create_context"
    COMPILE = "compile"
    CAPTURE = "capture"
    """When a stream ends its capture, which noted something that it cannot launch."""
    SERIALISE = "serialise"
    RESTORE = "restore"
    RUN = "run"
    WORK = "work"
    """In work queued on a stream: the stream's ``synchronize`` raises it."""


class SimulatedFailure(RuntimeError):
    """Raised because ``Knobs.fail_at`` says so."""


FREE_COPIES: Final = ep.Costs(seconds_per_copy=0, seconds_per_byte=0)
"""Costs by which the host gives nothing back because of its copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """How a simulated EP behaves.  The default claims all it can, and never fails.

    Attributes:
        name: the EP's name; ``<Space>ExecutionProvider`` has the memory ``<space>``.

        device_type: what kind of devices it drives.
        device_count: how many, at most.
        virtual: the devices are its own, with metadata ``is_virtual``; otherwise it
            takes those that the host found.
        refused: kinds of devices that it refuses, and why, and what to do about it.
        costs: what each pair says of copies and nodes.
        seconds: how long it estimates that a node takes, by operator, 0 for those that
            are not named; ``None``: it does not estimate.
        findings: what it reports to ``onnxplug doctor``.

        ops: operators it takes, ``domain.Name`` outside ONNX's domain.  What it has no
            function for, ``Loop``, ``If`` and ``Scan`` included, is run whole by
            ``onnx.reference``.
        dtypes: element types it takes.
        refuse: operators it refuses all the same, and why.
        claim_probability: the share of what it can take that it claims, by *seed*.
        fuse: sequences of operators, each feeding the next, claimed as atomic groups.
        groups: sets of node indices claimed as atomic groups, convex or not.
        random_groups: how many atomic groups of two or three claimed nodes to make, by
            *seed*; they are rarely convex.
        keeps_constants: what its claims say.
        silent_nodes: indices it neither claims nor refuses, against the contract.
        doubled_nodes: indices it claims and refuses, against the contract.

        kernels: functions that take the place of its own for some operators, such as
            wrong or slow ones.
        probes: what is checked on each device.

        decline_ops: ``compile`` gives back its nodes of these operators.
        decline_partitions: which calls of ``compile`` give back all, counted from 0.
        specialises: for how many sets of shapes it has its partitions kept; 0: one is
            for all.
        refuse_session: why ``compile`` refuses the session; empty: it does not.

        serialises: its partitions can be serialised, as models; those that compute by
            *kernels* decline.
        engine: the versions that it states of what it computes with.
        compatibility: what it says of any compiled partition; ``None``: what is so.

        memory_limit: bytes each device has; ``None`` for no limit.
        on_host: element types that partitions take and leave on the host, as other EPs
            do with shapes.
        own_dtypes: element types that its arrays spell in a way of their own.
        shares: the memory space of another EP to work in; empty: it has its own.
        spare: it makes contexts of that space itself where no other EP owns it.
        keeps_contexts: its contexts stay open when nothing uses them.
        pinned: it has memory of the host for its copies.
        stacks: it stacks arrays and takes parts of them, for loops of the host's.
        streams: work is deferred; otherwise it is done when a call returns.
        schedule: ``late``: work is done when somebody waits, in an order that breaks
            every order not asked for; ``threaded``: in a thread per stream.
        foreign_events: its streams wait for events of other simulated devices.
        captures: its streams can capture, and its EP does where the option
            ``enable_graph_capture`` asks for it.
        wait_while_capturing: its partitions synchronise the stream that captures,
            against the contract.
        max_concurrent_runs: what its partitions say: 1, which they check, or ``None``.
        seed: of all random choices.  For late work on streams ``None`` means newest
            first, which breaks the order of any two that do not wait for each other.

        fail_at: the stage at which it raises ``SimulatedFailure``.
    """

    name: str = "SimulatedExecutionProvider"

    device_type: ep.DeviceType = ep.DeviceType.NPU
    device_count: int = 1
    virtual: bool = True
    refused: Mapping[ep.DeviceType, tuple[str, str]] = field(default_factory=dict)
    costs: ep.Costs | None = FREE_COPIES
    seconds: Mapping[str, float] | None = None
    findings: tuple[ep.Finding, ...] = ()

    ops: frozenset[str] = frozenset(KERNELS)
    dtypes: frozenset[ep.DataType] = frozenset(
        {
            ep.DataType.FLOAT32,
            ep.DataType.FLOAT64,
            ep.DataType.INT32,
            ep.DataType.INT64,
            ep.DataType.BOOL,
        }
    )
    refuse: Mapping[str, ep.Reason] = field(default_factory=dict)
    claim_probability: float = 1.0
    fuse: tuple[tuple[str, ...], ...] = ()
    groups: tuple[frozenset[int], ...] = ()
    random_groups: int = 0
    keeps_constants: bool = False
    silent_nodes: frozenset[int] = frozenset()
    doubled_nodes: frozenset[int] = frozenset()

    kernels: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    probes: tuple[ep.Probe, ...] = ()

    decline_ops: frozenset[str] = frozenset()
    decline_partitions: frozenset[int] = frozenset()
    specialises: int = 0
    refuse_session: str = ""

    serialises: bool = True
    engine: Mapping[str, str] = field(default_factory=lambda: {"simulator": "1.0"})
    compatibility: tuple[ep.Compatibility, str] | None = None

    memory_limit: int | None = None
    on_host: frozenset[ep.DataType] = frozenset()
    own_dtypes: frozenset[ep.DataType] = frozenset()
    shares: str = ""
    keeps_contexts: bool = False
    spare: bool = False
    pinned: bool = True
    stacks: bool = True
    streams: bool = True
    schedule: Literal["late", "threaded"] = "late"
    foreign_events: bool = True
    captures: bool = False
    wait_while_capturing: bool = False
    max_concurrent_runs: Literal[1] | None = 1
    seed: int | None = None

    fail_at: Stage | None = None

    @property
    def space(self) -> str:
        """The name of the devices' memory."""
        return self.shares or self.name.removesuffix("ExecutionProvider").lower()

    def check(self, stage: Stage) -> None:
        """Fail if it is to fail at *stage*.

        Raises:
            SimulatedFailure: it is.
        """
        if self.fail_at is stage:
            raise SimulatedFailure(f"{self.name} was told to fail at {stage}")
