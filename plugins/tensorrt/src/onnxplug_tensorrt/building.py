"""Has TensorRT build engines of partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug_tensorrt.caches import TimingCache
from onnxplug_tensorrt.callbacks import new_progress, wait_for
from onnxplug_tensorrt.library import Library
from onnxplug_tensorrt.parsing import Network, load_weights, named, parse
from onnxplug_tensorrt.plans import Plan
from onnxplug_tensorrt.profiles import Range
from onnxplug_tensorrt.ranges import set_ranges
from onnxplug_tensorrt.settings import STRONG, BuildSettings, Settings

_one_at_a_time: Final = new_lock()
"""Held while an engine is built, where an option asks for it."""

_FLAGS: Final = {ep.DataType.FLOAT16: "FP16", ep.DataType.BFLOAT16: "BF16"}
"""By which TensorRT before 11 is told that it may compute in a type."""

_PATIENCE: Final = 0.1
"""Seconds after which it is looked whether a build is wanted, or done."""


class Builder:
    """Builds engines, with the options of one session.

    Args:
        library: TensorRT, on the GPU that engines are for.
        settings: those of the session.
    """

    def __init__(self, library: Library, settings: Settings) -> None:
        self._library = library
        self._settings = settings
        self._times = TimingCache(library, settings)

    def shape_inputs(self, partition: ep.Partition) -> tuple[str, ...]:
        """Inputs of *partition* that are shapes.

        Raises:
            Declined: the parser does not take it.
        """
        with self._library.current:
            network = parse(self._library, partition.to_model("external"))
            return network.shape_inputs

    def build(
        self,
        partition: ep.Partition,
        profile: Mapping[str, Range],
        is_unwanted: Callable[[], bool],
    ) -> Plan:
        """The engine of *partition*.

        Args:
            profile: ranges of the inputs whose sizes are open, or that are shapes.
            is_unwanted: whether the build is to be given up.

        Raises:
            Declined: TensorRT does not build it; says why.
            LoadCancelled: nobody wants it any more.
        """
        library, build = self._library, self._settings.build
        library.log.taken()
        with library.current:
            network = parse(
                library, self._exported(partition), chooses_types=self._chooses_types
            )
            config = self._configured(network.builder)
            if profile:
                _add_profile(network, config, profile)
            ranges = self._settings.precision.ranges
            if ranges:
                set_ranges(library, network.network, ranges, named(partition.nodes))
            self._times.begin(config)
            content = self._built(network, config, partition, is_unwanted)
            self._times.end(config)
            del network, config  # which TensorRT releases in the context, too
        return Plan(
            content,
            profile,
            str(library.tensorrt.__version__),
            library.facts,
            build.hardware_compatible,
            build.stripped,
            self._settings.precision.of_ranges,
        )

    def refit(self, native: Any, partition: ep.Partition) -> None:
        """Put the weights of *partition* into an engine that has none.

        Raises:
            ValueError: TensorRT does not take them.
        """
        library = self._library
        tensorrt = library.tensorrt
        with library.current:
            refitter = tensorrt.Refitter(native, library.messages)
            parser = tensorrt.OnnxParserRefitter(refitter, library.messages)
            exported = self._exported(partition)
            done = (
                load_weights(parser, exported)
                and parser.refit_model_proto()
                and refitter.refit_cuda_engine()
            )
        if not done:
            raise ValueError(
                f"TensorRT does not refit the engine: {library.log.taken()}"
            )

    @property
    def _chooses_types(self) -> bool:
        """Whether TensorRT chooses among types."""
        precision = self._settings.precision
        return self._library.version < STRONG and bool(
            precision.types or precision.ranges
        )

    def _exported(self, partition: ep.Partition) -> ep.ExportedModel:
        """The model of *partition*, in the types that it is to be computed in."""
        exported = partition.to_model("external")
        precision = self._settings.precision
        if not precision.types or self._chooses_types:
            return exported
        from onnxplug_tensorrt.precision import Exclusions, narrow_model

        (dtype,) = precision.types
        exclusions = Exclusions(
            precision.operators_in_float32,
            precision.nodes_in_float32,
            precision.norms_in_float32,
        )
        narrowed = narrow_model(exported, dtype, exclusions)
        self._library.logger.info(
            "%s: %d compute in %s, %d stay float32, and there are %d casts",
            named(partition.nodes), narrowed.narrowed, dtype, len(narrowed.kept),
            narrowed.casts,
        )  # fmt: skip
        return narrowed.exported

    def dump(self, partition: ep.Partition) -> None:
        """Write *partition* to the working folder, if an option asks for it."""
        if self._settings.dumps:
            path = Path(f"tensorrt_{partition.fingerprint[:16]}.onnx")
            path.write_bytes(partition.to_model("inline").model.SerializeToString())
            self._library.logger.info("%s: %s", path, named(partition.nodes))

    def _configured(self, builder: Any) -> Any:
        """A configuration, as the options say."""
        tensorrt, build = self._library.tensorrt, self._settings.build
        flags = tensorrt.BuilderFlag
        config = builder.create_builder_config()
        if build.workspace:
            config.set_memory_pool_limit(
                tensorrt.MemoryPoolType.WORKSPACE, build.workspace
            )
        config.builder_optimization_level = build.level
        if build.auxiliary_streams >= 0:
            config.max_aux_streams = build.auxiliary_streams
        if build.sparse:
            config.set_flag(flags.SPARSE_WEIGHTS)
        if self._chooses_types:
            for dtype in self._settings.precision.types:
                config.set_flag(getattr(flags, _FLAGS[dtype]))
            if self._settings.precision.codes:
                config.set_flag(flags.INT8)
        if build.stripped:
            config.set_flag(flags.STRIP_PLAN)
            config.set_flag(flags.REFIT_IDENTICAL)
        if build.hardware_compatible:
            levels = tensorrt.HardwareCompatibilityLevel
            config.hardware_compatibility_level = levels.AMPERE_PLUS
        for name in build.preview_features:
            config.set_preview_feature(getattr(tensorrt.PreviewFeature, name), True)
        if build.tactics:
            config.set_tactic_sources(_tactics(tensorrt, config, build))
        if build.dla_core >= 0:
            if build.dla_core >= builder.num_DLA_cores:
                raise ep.SessionRefused(
                    f"option 'trt_dla_core' is {build.dla_core}, and the device has "
                    f"{builder.num_DLA_cores} such cores; turn 'trt_dla_enable' off"
                )
            config.default_device_type = tensorrt.DeviceType.DLA
            config.DLA_core = build.dla_core
            config.set_flag(flags.GPU_FALLBACK)
        return config

    @contextmanager
    def _turn(self, what: str, is_unwanted: Callable[[], bool]) -> Iterator[None]:
        """Wait until it is the session's turn, if the process builds one at a time.

        Raises:
            LoadCancelled: nobody wants to wait any more.
        """
        if not self._settings.build.sequential:
            yield
            return
        while not _one_at_a_time.acquire(timeout=_PATIENCE):
            if is_unwanted():
                raise ep.LoadCancelled(f"the build of {what} was not wanted")
        try:
            yield
        finally:
            _one_at_a_time.release()

    def _built(
        self,
        network: Network,
        config: Any,
        partition: ep.Partition,
        is_unwanted: Callable[[], bool],
    ) -> Any:
        """TensorRT's plan."""
        library, what = self._library, named(partition.nodes)
        log = library.logger.getChild("progress")
        progress = new_progress(library.tensorrt, log, what, is_unwanted)
        config.progress_monitor = progress
        found: list[Any] = []

        def build() -> None:
            with library.current:
                found.append(
                    network.builder.build_serialized_network(network.network, config)
                )

        with self._turn(what, is_unwanted):
            log.info("TensorRT builds %s", what)
            begun = time.monotonic()
            try:
                wait_for(build, progress)
            finally:
                seconds = time.monotonic() - begun
                done = {"is_done": True}
                log.info("TensorRT took %.1f s for %s", seconds, what, extra=done)
        if progress.is_stopped:
            raise ep.LoadCancelled(f"the build of {what} was given up")
        if not found or found[0] is None:
            raise ep.Declined(
                ep.Reason(
                    ep.RefusalCode.OTHER,
                    f"TensorRT does not build {what}: {library.log.taken()}",
                )
            )
        return found[0]


def _add_profile(network: Network, config: Any, profile: Mapping[str, Range]) -> None:
    made = network.builder.create_optimization_profile()
    shapes = set(network.shape_inputs)
    inputs = network.network
    known = {inputs.get_input(index).name for index in range(inputs.num_inputs)}
    for name, each in profile.items():
        if name not in known:
            continue
        if name in shapes:
            made.set_shape_input(name, each.least, each.best, each.most)
        else:
            made.set_shape(name, each.least, each.best, each.most)
    if config.add_optimization_profile(made) < 0:
        said = ", ".join(f"{name} {each}" for name, each in profile.items())
        raise ep.Declined(
            ep.Reason(
                ep.RefusalCode.DYNAMIC_SHAPE,
                f"TensorRT does not take the ranges of shapes {said}",
            )
        )


def _tactics(tensorrt: Any, config: Any, build: BuildSettings) -> int:
    """The sources that may be used, as bits."""
    bits = int(config.get_tactic_sources())
    for name, is_wanted in build.tactics:
        bit = 1 << int(getattr(tensorrt.TacticSource, name))
        bits = bits | bit if is_wanted else bits & ~bit
    return bits
