"""The builder, its configuration, profiles and timing caches."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import onnx
from google.protobuf.message import DecodeError

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
        self._shapes: dict[str, Shapes] = {}
        self._values: dict[str, Shapes] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self._shapes[input] = tuple(min), tuple(opt), tuple(max)

    def set_shape_input(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self._values[input] = tuple(min), tuple(opt), tuple(max)


class ITimingCache:
    def __init__(self, content: set[str]) -> None:
        self._content = content

    def serialize(self) -> IHostMemory:
        return IHostMemory(json.dumps(sorted(self._content)).encode())


class IBuilderConfig:
    world: Any

    PROPERTIES: ClassVar[dict[str, Any]] = {
        "builder_optimization_level": 3,
        "max_aux_streams": 0,
        "hardware_compatibility_level": enums.HardwareCompatibilityLevel.NONE,
        "progress_monitor": None,
        "default_device_type": enums.DeviceType.GPU,
        "DLA_core": -1,
    }
    """What the real one has as properties, and what they are at first."""

    def __init__(self) -> None:
        for name, value in self.PROPERTIES.items():
            setattr(self, name, value)
        self._flags: set[enums.BuilderFlag] = set()
        self._limits: dict[enums.MemoryPoolType, int] = {}
        self._previews: dict[enums.PreviewFeature, bool] = {}
        self._tactics = 3
        self._profiles: list[IOptimizationProfile] = []
        self._times = ITimingCache(set())
        self.world.configs.append(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.PROPERTIES and not name.startswith("_"):
            raise AttributeError(name)
        super().__setattr__(name, value)

    def set_flag(self, flag: enums.BuilderFlag) -> None:
        assert type(flag) is self.world.BuilderFlag
        self._flags.add(flag)

    def set_memory_pool_limit(self, pool: enums.MemoryPoolType, pool_size: int) -> None:
        self._limits[enums.MemoryPoolType(pool)] = pool_size

    def set_preview_feature(self, feature: enums.PreviewFeature, enable: bool) -> None:
        self._previews[enums.PreviewFeature(feature)] = enable

    def get_tactic_sources(self) -> int:
        return self._tactics

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        self._tactics = tactic_sources
        return True

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        for shapes in (*profile._shapes.values(), *profile._values.values()):
            low, best, high = shapes
            for a, b, c in zip(low, best, high, strict=True):
                if not a <= b <= c:
                    return -1
        self._profiles.append(profile)
        return len(self._profiles) - 1

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
        self._times = cache
        return True

    def get_timing_cache(self) -> ITimingCache:
        return self._times


class Builder:
    world: Any
    num_DLA_cores = 0

    def __init__(self, logger: Any) -> None:
        assert getattr(logger, "_is_begun", True)
        self.world.check_context("Builder")
        self._logger = logger

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        network: INetworkDefinition = self.world.INetworkDefinition()
        network._flags = flags
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
        with world.lock:
            world.builds += 1
            world.most_builds = max(world.builds, world.most_builds)
        try:
            if network._ranges:
                assert world.BuilderFlag.INT8 in config._flags
            if world.fails:
                return self._fail(world.fails)
            if not self._time(network, config):
                return None
            return self._plan(network, config)
        finally:
            world.building.clear()
            with world.lock:
                world.builds -= 1

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
            if node.op_type not in config._times._content:
                config._times._content.add(node.op_type)
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
        profile = config._profiles[0] if config._profiles else IOptimizationProfile()
        shapes: dict[str, Shapes] = {}
        for index, value in enumerate(model.graph.input):
            name, shape = value.name, shape_of(value)
            if network.get_input(index).is_shape_tensor:
                if name not in profile._values:
                    return self._fail(f"{name} is a shape, and has no values")
            elif -1 in shape:
                if name not in profile._shapes:
                    return self._fail(f"{name} has open sizes, and no profile")
                shapes[name] = profile._shapes[name]
                if not fits(shapes[name][0], shape):
                    return self._fail(f"{name} has a profile of another rank")
            elif profile._shapes.get(name, (shape,))[0] != shape:
                return self._fail(f"{name} is static, and its profile is not")
        stripped = self.world.BuilderFlag.STRIP_PLAN in config._flags
        if stripped:
            for tensor in model.graph.initializer:
                tensor.ClearField("raw_data")
        facts = {
            "version": self.world.__version__,
            "device": [self.world.cuda.name, *self.world.cuda.capability],
            "portable": bool(config.hardware_compatibility_level),
            "profile": shapes,
            "values": profile._values,
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
    try:
        return json.loads(data[8:end]), onnx.load_from_string(data[end:])
    except DecodeError as error:
        raise ValueError(f"it is cut off: {error}") from error


CLASSES = (IBuilderConfig, Builder)
