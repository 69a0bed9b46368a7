"""Where this process runs, in words."""

from __future__ import annotations

import math
import platform

import ray

_SHOWN = 8
"""Digits of a node's id that are shown; Ray's own tools take them, too."""


def this_node() -> str:
    """The node of this process as errors name it: address, and the start of its id."""
    if not ray.is_initialized():
        return platform.node() or "this machine"
    return node_in_words(
        ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
    )


def node_in_words(address: str, node_id: str) -> str:
    """A node as errors and tables name it."""
    return f"{address} ({node_id[:_SHOWN]})"


def assigned_threads() -> int:
    """How many threads this process may use by what Ray has assigned to it; 0 if that
    is nobody's to say: outside of actors and tasks."""
    if not ray.is_initialized():
        return 0
    context = ray.get_runtime_context()
    if context.get_actor_id() is None and context.get_task_id() is None:
        return 0
    cores: float = context.get_assigned_resources().get("CPU", 0)
    return max(1, math.floor(cores))
