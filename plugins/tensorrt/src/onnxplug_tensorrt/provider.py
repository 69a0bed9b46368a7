"""The TensorRT EP in one session: it claims nodes and compiles partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxplug import ep
from onnxplug_tensorrt.capability import Screening, claims
from onnxplug_tensorrt.capturing import TensorrtCapture
from onnxplug_tensorrt.compiled import TensorrtPartition
from onnxplug_tensorrt.engine import EngineSource
from onnxplug_tensorrt.growing import Family, Member, open_inputs
from onnxplug_tensorrt.library import Library
from onnxplug_tensorrt.parsing import supported_operators
from onnxplug_tensorrt.plans import unpacked
from onnxplug_tensorrt.profiles import Range, profile_for, readers
from onnxplug_tensorrt.settings import Settings
from onnxplug_tensorrt.workshop import Workshop


class TensorrtProvider(ep.ExecutionProvider):
    """Has TensorRT build engines of partitions, and run them.

    Args:
        library: TensorRT, on the GPU of *context*.
        context: the memory and streams, which another EP owns.
        settings: what the options come to.
    """

    # quantised types are those that QuantizeLinear and DequantizeLinear say
    preferences = ep.Preferences(keeps_qdq=True)

    def __init__(
        self, library: Library, context: ep.DeviceContext, settings: Settings
    ) -> None:
        self.location = context.location
        self._library = library
        self._context = context
        self._settings = settings
        self._workshop = Workshop(library, settings)
        self._screening = Screening(library, settings)
        self._families: list[Family] = []
        self._supports = supported_operators(library)
        self._is_closed = False
        self.capture: TensorrtCapture | None = None
        if settings.captures:
            if context.capture is None:
                raise ep.OptionError(
                    "option 'trt_cuda_graph_enable' is set, and the EP that owns the "
                    f"memory {context.location} captures nothing; turn it off"
                )
            self.capture = TensorrtCapture(context.capture, library)
        self.serialiser = TensorrtSerialiser(self)
        grows = settings.profile is None
        self.specialiser = TensorrtSpecialiser(self) if grows else None

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Claim what TensorRT's parser may take; see :mod:`.capability`."""
        return claims(graph, self._settings.excluded, self._supports)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """The partition as an engine, which may take minutes to build.

        Raises:
            Declined: TensorRT does not take it; names the nodes where it can.
            LoadCancelled: it is not wanted any more.
        """
        family = next((each for each in self._families if each.has(partition)), None)
        if family is not None:
            family.prepare(family.shapes(partition), lambda: partition.cancelled)
            return self._compiled(Member(family), partition)
        _refuse_open_ranks(partition)
        self._screening.check(partition)
        profile = self._profile(partition)
        self._workshop.builder.dump(partition)
        engine = self._workshop.engine(partition, profile, lambda: partition.cancelled)
        return self._compiled(engine.open(), partition)

    def _compiled(
        self, source: EngineSource, partition: ep.Partition
    ) -> ep.CompiledPartition:
        try:
            return TensorrtPartition(
                source, partition, self._context, capture=self.capture
            )
        except BaseException:
            source.close()
            raise

    def screen(self, partition: ep.Partition) -> None:
        """See whether TensorRT takes a partition whose shapes runs bring.

        Raises:
            Declined: it does not.
        """
        _refuse_open_ranks(partition)
        self._screening.check(partition)
        self._refuse_shapes(partition, {})
        self._workshop.builder.dump(partition)
        self._families.append(Family(partition, self._workshop))

    def _profile(self, partition: ep.Partition) -> Mapping[str, Range]:
        """The ranges of inputs, where users say any."""
        stated = self._settings.profile or {}
        shapes = self._refuse_shapes(partition, stated)
        names = [name for name in open_inputs(partition) if name not in shapes]
        profile = profile_for(partition, stated, covers=names) if names else {}
        return profile | {name: stated[name] for name in shapes}

    def _refuse_shapes(
        self, partition: ep.Partition, stated: Mapping[str, Range]
    ) -> Sequence[str]:
        """The inputs that are shapes, of whose values users say the range.

        Raises:
            Declined: there are others.
        """
        shapes = self._workshop.builder.shape_inputs(partition)
        unknown = [name for name in shapes if name not in stated]
        if unknown:
            reason = ep.Reason(
                ep.RefusalCode.NOT_CONSTANT,
                f"a shape is read from {', '.join(map(repr, unknown))}, of whose "
                "values TensorRT has to know the range; set it by options "
                "'trt_profile_min_shapes', 'trt_profile_opt_shapes' and "
                "'trt_profile_max_shapes'",
            )
            raise ep.Declined(reason, nodes=readers(partition, unknown))
        return shapes

    def restored(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        """What was serialised, ready to run.

        Raises:
            Declined: it is not of use here.
        """
        try:
            plan = unpacked(data)
            if plan.stripped:
                raise ValueError("it has no weights")
            engine = self._workshop.restored(plan).open()
        except ValueError as error:
            raise ep.Declined(
                ep.Reason(ep.RefusalCode.OTHER, f"the engine is of no use: {error}")
            ) from error
        return self._compiled(engine, partition)

    def close(self) -> None:
        """Release TensorRT's runtime."""
        if not self._is_closed:
            self._is_closed = True
            for family in self._families:
                family.close()
            self._library.close()


def _refuse_open_ranks(partition: ep.Partition) -> None:
    """See that all inputs have ranks, of which TensorRT's networks have one each.

    Raises:
        Declined: some have none; names the nodes that read them.
    """
    unknown = [name for name in partition.inputs if partition.value(name).shape is None]
    if unknown:
        reason = ep.Reason(
            ep.RefusalCode.DYNAMIC_SHAPE,
            f"the rank of {', '.join(map(repr, unknown))} is not known",
        )
        raise ep.Declined(reason, nodes=readers(partition, unknown))


class TensorrtSpecialiser(ep.Specialiser):
    """Has engines take the shapes that runs bring; see :mod:`.growing`."""

    limit = 256
    pads = True

    def __init__(self, provider: TensorrtProvider) -> None:
        self._provider = provider

    def examine(self, partition: ep.Partition) -> None:
        """Decline what TensorRT's parser does not take with sizes that are open."""
        self._provider.screen(partition)


class TensorrtSerialiser(ep.Serialiser):
    """Gives engines for models that are compiled ahead.

    The host keeps none on disk: one engine is for all shapes that runs brought, and so
    the EP keeps them itself.
    """

    caches = False

    def __init__(self, provider: TensorrtProvider) -> None:
        self._provider = provider

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        """The engine, and what it was built for.

        Raises:
            Declined: it has no weights.
        """
        assert isinstance(compiled, TensorrtPartition)
        with compiled.engine() as engine:
            if not engine.plan.stripped:
                return b"".join(engine.serialised().packed())
        raise ep.Declined(
            ep.Reason(
                ep.RefusalCode.OTHER,
                "an engine without weights is of no use without the model; turn "
                "'trt_weight_stripped_engine_enable' off",
            )
        )

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        """The engine that *data* is.

        Raises:
            Declined: TensorRT does not take it, or it is for another GPU.
        """
        return self._provider.restored(partition, data)
