"""Settings of sessions that are one of a few, in ONNX Runtime's words."""

from __future__ import annotations

from enum import IntEnum


class GraphOptimizationLevel(IntEnum):
    """How much a model is rewritten before it is partitioned.

    With ``ORT_DISABLE_ALL`` only what EPs rely on is done: functions are inlined,
    constants lifted, types inferred.  All other levels are the same here.
    """

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether independent nodes may run at the same time; here they never do."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """In which order nodes run; here always that of the plan."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2
