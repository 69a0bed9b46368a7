"""EP devices as Ray's resources: what a node offers, and what an actor asks for.

A node offers ``onnxplug/NAME`` for each EP that it has: so many as it has devices of
it, and of an EP on the processor so many as the process may use cores.  GPUs are Ray's
``GPU`` besides, which is what keeps actors apart there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import ray

import onnxplug
from onnxplug.ep import DeviceType
from onnxplug.errors import InvalidArgument
from onnxplug.plugins.names import short_name
from onnxplug_ray.errors import EpNotInCluster
from onnxplug_ray.node import node_in_words

PREFIX: Final = "onnxplug/"


def resource_of(ep: str) -> str:
    """What Ray calls an EP: ``onnxplug/cuda`` for ``CUDAExecutionProvider``."""
    return PREFIX + short_name(ep)


def node_resources() -> dict[str, float]:
    """The EP devices of this machine, for ``ray start --resources``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    found: Counter[str] = Counter()
    for each in onnxplug.get_ep_devices():
        if each.by_name_only:
            continue
        on_cpu = each.device.type is DeviceType.CPU
        found[resource_of(each.ep_name)] += (
            cores or os.cpu_count() or 1 if on_cpu else 1
        )
    return {name: float(count) for name, count in sorted(found.items())}


def actor_options(
    ep: str = "cpu",
    *,
    num_cpus: float = 1,
    num_gpus: float = 0,
    devices: float | None = None,
) -> dict[str, Any]:
    """What ``map_batches``, or an actor, is to ask Ray for, so that it comes to a node
    that has an EP.

    Args:
        ep: the EP's name, in any form.
        num_cpus: cores, and so threads of a session.
        num_gpus: of Ray's GPUs; less than 1 for sessions that share one.
        devices: of the EP's devices; as many as GPUs, or else cores, by default.

    Raises:
        EpNotInCluster: Ray is initialised, and no node offers so much: it would wait
            for one without end.
        InvalidArgument: a number is less than 0, or *devices* is 0.
    """
    wanted = devices if devices is not None else num_gpus or num_cpus
    if num_cpus < 0 or num_gpus < 0 or not wanted > 0:
        raise InvalidArgument(
            f"num_cpus is {num_cpus}, num_gpus {num_gpus} and devices {wanted}; "
            "expected no less than 0, and devices more than that"
        )
    name = resource_of(ep)
    asked: dict[str, Any] = {
        "num_cpus": num_cpus,
        "resources": {name: float(wanted)},
    }
    if num_gpus:
        asked["num_gpus"] = num_gpus
    if ray.is_initialized():
        _require(ep, {"CPU": num_cpus, "GPU": num_gpus, name: wanted})
    return asked


def _require(ep: str, wanted: Mapping[str, float]) -> None:
    """Check that some node of the cluster offers what is wanted, though it may be busy.

    Raises:
        EpNotInCluster: none does.
    """
    offers = []
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        has = node["Resources"]
        if all(has.get(name, 0) >= count for name, count in wanted.items()):
            return
        told = ", ".join(
            f"{name}: {count:g}"
            for name, count in sorted(has.items())
            if name in ("CPU", "GPU") or name.startswith(PREFIX)
        )
        offers.append(
            f"  node {node_in_words(node['NodeManagerAddress'], node['NodeID'])} "
            f"offers {told or 'nothing'}"
        )
    asked = ", ".join(f"{name}: {count:g}" for name, count in wanted.items() if count)
    raise EpNotInCluster(
        f"no node offers {asked}, for the EP {ep}; start Ray on nodes that have the EP "
        'with --resources "$(python -m onnxplug_ray)", or ask for less:\n'
        + "\n".join(offers),
        ep=ep,
    )
