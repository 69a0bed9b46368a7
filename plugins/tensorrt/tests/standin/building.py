"""The builder, its configuration, profiles and timing caches."""

from __future__ import annotations

import json
from typing import Any

import onnx

from . import enums
from .parsing import INetworkDefinition, shape_of, with_weights

Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

MAGIC = b"TRTP"


class IHostMemory(bytes):
    @property
    def nbytes(self) -> int:
        return len(self)


class IOptimizationProfile:
    def __init__(self) -> None:
        self.shapes: dict[str, Shapes] = {}
        self.values: dict[str, Shapes] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self.shapes[input] = tuple(min), tuple(opt), tuple(max)

    def set_shape_input(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self.values[input] = tuple(min), tuple(opt), tuple(max)


class ITimingCache:
    def __init__(self, content: set[str]) -> None:
        self.content = content

    def serialize(self) -> IHostMemory:
        return IHostMemory(json.dumps(sorted(self.content)).encode())


class IBuilderConfig:
    world: Any

    def __init__(self) -> None:
        self.builder_optimization_level = 3
        self.max_aux_streams = 0
        self.hardware_compatibility_level = enums.HardwareCompatibilityLevel.NONE
        self.progress_monitor: Any = None
        self.default_device_type = enums.DeviceType.GPU
        self.DLA_core = -1
        self.set_flags: set[enums.BuilderFlag] = set()
        self.limits: dict[enums.MemoryPoolType, int] = {}
        self.previews: dict[enums.PreviewFeature, bool] = {}
        self.tactics = 3
        self.profiles: list[IOptimizationProfile] = []
        self.times = ITimingCache(set())
        self.world.last_config = self

    def set_flag(self, flag: enums.BuilderFlag) -> None:
        self.set_flags.add(enums.BuilderFlag(flag))

    def set_memory_pool_limit(self, pool: enums.MemoryPoolType, pool_size: int) -> None:
        self.limits[enums.MemoryPoolType(pool)] = pool_size

    def set_preview_feature(self, feature: enums.PreviewFeature, enable: bool) -> None:
        self.previews[enums.PreviewFeature(feature)] = enable

    def get_tactic_sources(self) -> int:
        return self.tactics

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        self.tactics = tactic_sources
        return True

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        for shapes in (*profile.shapes.values(), *profile.values.values()):
            low, best, high = shapes
            for a, b, c in zip(low, best, high, strict=True):
                if not a <= b <= c:
                    return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(
        self, serialized_timing_cache: bytes
    ) -> ITimingCache | None:
        content = bytes(serialized_timing_cache)
        if not content:
            return ITimingCache(set())
        try:
            return ITimingCache(set(json.loads(content)))
        except ValueError:
            return None

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        self.times = cache
        return True

    def get_timing_cache(self) -> ITimingCache:
        return self.times


class Builder:
    world: Any
    num_DLA_cores = 0

    def __init__(self, logger: Any) -> None:
        assert logger._is_begun
        self.world.check_context("Builder")
        self._logger = logger

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        network: INetworkDefinition = self.world.INetworkDefinition()
        return network

    def create_builder_config(self) -> IBuilderConfig:
        config: IBuilderConfig = self.world.IBuilderConfig()
        return config

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> IHostMemory | None:
        world = self.world
        world.check_context("build_serialized_network")
        world.counts["builds"] += 1
        world.building.set()
        try:
            if not self._time(network, config):
                return None
            return self._plan(network, config)
        finally:
            world.building.clear()

    def _time(self, network: INetworkDefinition, config: IBuilderConfig) -> bool:
        """Measure every kind of node that was not measured; whether it goes on."""
        monitor = config.progress_monitor
        assert monitor is None or monitor._is_begun
        assert network.model is not None
        nodes = network.model.graph.node
        if monitor is not None:
            monitor.phase_start("Building", None, max(len(nodes), 1))
        goes_on = True
        for step, node in enumerate(nodes):
            if node.op_type not in config.times.content:
                config.times.content.add(node.op_type)
                self.world.counts["measured"] += 1
            while goes_on and not self.world.gate.wait(0.01):
                goes_on = monitor is None or monitor.step_complete("Building", step)
            if goes_on and monitor is not None:
                goes_on = monitor.step_complete("Building", step)
            if not goes_on:
                break
        if monitor is not None:
            monitor.phase_finish("Building")
        return goes_on

    def _plan(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> IHostMemory | None:
        model = with_weights(network)
        profile = config.profiles[0] if config.profiles else IOptimizationProfile()
        shapes: dict[str, Shapes] = {}
        for index, value in enumerate(model.graph.input):
            name, shape = value.name, shape_of(value)
            if network.get_input(index).is_shape_tensor:
                if name not in profile.values:
                    return self._fail(f"{name} is a shape, and has no values")
            elif -1 in shape:
                if name not in profile.shapes:
                    return self._fail(f"{name} has open sizes, and no profile")
                shapes[name] = profile.shapes[name]
                if not fits(shapes[name][0], shape):
                    return self._fail(f"{name} has a profile of another rank")
            elif profile.shapes.get(name, (shape,))[0] != shape:
                return self._fail(f"{name} is static, and its profile is not")
        flags = enums.BuilderFlag
        stripped = flags.STRIP_PLAN in config.set_flags
        if stripped:
            for tensor in model.graph.initializer:
                tensor.ClearField("raw_data")
        facts = {
            "version": self.world.__version__,
            "device": [self.world.cuda.name, *self.world.cuda.capability],
            "portable": bool(config.hardware_compatibility_level),
            "profile": shapes,
            "values": profile.values,
            "stripped": stripped,
        }
        head = json.dumps(facts).encode()
        return IHostMemory(
            MAGIC + len(head).to_bytes(4, "little") + head + model.SerializeToString()
        )

    def _fail(self, what: str) -> None:
        self._logger.log(enums.Severity.ERROR, what)


def fits(shape: tuple[int, ...], stated: tuple[int, ...]) -> bool:
    """Whether a value of the *stated* shape may have *shape*."""
    return len(shape) == len(stated) and all(
        size in (-1, found) for found, size in zip(shape, stated, strict=True)
    )


def read_plan(content: Any) -> tuple[dict[str, Any], onnx.ModelProto]:
    """What is in a plan.

    Raises:
        ValueError: it is none.
    """
    data = bytes(content)
    if data[:4] != MAGIC:
        raise ValueError("magic tag does not match")
    end = 8 + int.from_bytes(data[4:8], "little")
    return json.loads(data[8:end]), onnx.load_from_string(data[end:])


CLASSES = (IBuilderConfig, Builder)
