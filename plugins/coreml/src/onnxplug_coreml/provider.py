"""The CoreML EP in one session: it claims nodes, and builds models of partitions."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_coreml import engine
from onnxplug_coreml.artefact import Artefact, Manifest, describe_program
from onnxplug_coreml.capability import Judge
from onnxplug_coreml.formats import COREAI
from onnxplug_coreml.kept_models import KeptModels
from onnxplug_coreml.lowering.lower import examine, lower
from onnxplug_coreml.lowering.narrowing import narrowed
from onnxplug_coreml.lowering.target import Engine, Target
from onnxplug_coreml.machine import Machine
from onnxplug_coreml.options import Settings
from onnxplug_coreml.partition import CoreMLPartition, EmptyPartition


class CoreMLProvider(ep.ExecutionProvider):
    """Builds one model of each partition, for each set of input shapes."""

    def __init__(
        self, settings: Settings, machine: Machine, logger: logging.Logger
    ) -> None:
        self._settings = settings
        self._logger = logger
        self._engine = _find_engine(settings.model_format)
        self.target = Target(
            Engine(settings.model_format),
            ep.DataType.FLOAT16 if settings.narrow else ep.DataType.FLOAT32,
        )
        self._kept = (
            KeptModels(Path(settings.cache_folder), settings, machine)
            if settings.cache_folder
            else None
        )

    @property
    def specialiser(self) -> ep.Specialiser:  # type: ignore[override]
        """Has a model built for each set of input shapes."""
        return CoreMLSpecialiser(self)

    @property
    def serialiser(self) -> ep.Serialiser:  # type: ignore[override]
        """Keeps the files of models."""
        return CoreMLSerialiser(self, caches=self._settings.caches)

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take what can be lowered for the engine."""
        judge = Judge(graph, self.target)
        return ep.CapabilityReport.per_node(
            graph,
            lambda node: self._excluded(graph, node) or judge(node),
            keeps_constants=True,
        )

    def _excluded(self, graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
        """What the options exclude."""
        if graph.parent is not None and not self._settings.in_bodies:
            return ep.Reason(
                ep.RefusalCode.OTHER,
                "bodies of control flow are taken with the option EnableOnSubgraphs",
            )
        if self._settings.static:
            for name in filter(None, node.inputs):
                shape = graph.value(name).shape
                if shape is None or not all(isinstance(size, int) for size in shape):
                    return ep.Reason(
                        ep.RefusalCode.DYNAMIC_SHAPE,
                        f"{name!r} is of a shape that is known in runs only, which the "
                        "option RequireStaticInputShapes excludes",
                    )
        return None

    def decline_small(self, partition: ep.Partition) -> None:
        least = self._settings.minimum_nodes
        if len(partition.nodes) < least:
            raise ep.Declined(
                ep.Reason(
                    ep.RefusalCode.COST,
                    f"a partition of {len(partition.nodes)} nodes; the option "
                    f"MinimumNodes is {least}",
                )
            )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """One model.

        Raises:
            Declined: it is too small, or the engine does not take it.
        """
        self.decline_small(partition)
        empty = EmptyPartition.of(partition)
        if empty is not None:
            return empty
        if self._kept is not None:
            return self._load_kept(partition, self._kept)
        artefact = Artefact()
        try:
            self._build(partition, artefact)
        except BaseException:
            artefact.close()
            raise
        return self.load(partition, artefact)

    def _load_kept(self, partition: ep.Partition, kept: KeptModels) -> CoreMLPartition:
        artefact = kept.find(partition)
        if artefact is not None:
            try:
                return self.load(partition, artefact)
            except ep.Declined as error:
                self._logger.warning("%s: %s; built anew", artefact.folder, error)
                kept.discard(artefact)
        return self.load(partition, kept.keep(partition, self._build))

    def _build(self, partition: ep.Partition, artefact: Artefact) -> None:
        program = lower(partition, self.target)
        if self._settings.narrow and self.target.engine is Engine.CORE_AI:
            program = narrowed(program)  # coremltools has a pass for that
        model = self._engine.build(program, self._settings, artefact.folder)
        self._logger.debug(
            "%d nodes are %d operations of %s",
            len(partition.nodes), len(program.operations), self._settings.model_format,
        )  # fmt: skip
        artefact.write(
            describe_program(program, model.relative_to(artefact.folder).as_posix())
        )

    def load(self, partition: ep.Partition, artefact: Artefact) -> CoreMLPartition:
        try:
            manifest = artefact.read()
            if len(manifest.inputs) != len(partition.inputs) or len(
                manifest.outputs
            ) != len(partition.outputs):
                raise ValueError("it has other inputs or outputs than the partition")
            path = artefact.folder / manifest.model
            runner = self._engine.load(path, self._settings)
            units = self._units(partition, manifest, path)
        except (ValueError, OSError) as error:
            artefact.close()
            raise _damaged(error) from error
        except BaseException:
            artefact.close()
            raise
        return CoreMLPartition(partition, manifest, runner, artefact, units)

    def _units(
        self, partition: ep.Partition, manifest: Manifest, path: Path
    ) -> dict[int, str]:
        """By the position of a node the units of its operations, most first."""
        if not self._settings.profiles_plan:
            return {}
        found: dict[int, Counter[str]] = {}
        try:
            planned = self._engine.units(path, self._settings)
        except ep.Declined as error:
            self._logger.warning("ProfileComputePlan: %s", error)
            planned = {}
        for value, unit in planned.items():
            node = manifest.nodes.get(value)
            if node is not None and node < len(partition.nodes):
                found.setdefault(node, Counter())[unit] += 1
                self._logger.info(
                    "%s: %s on %s", describe(partition.nodes[node]), value, unit
                )
        return {
            node: "+".join(unit for unit, _ in units.most_common())
            for node, units in found.items()
        }


class CoreMLSpecialiser(ep.Specialiser):
    """Has a model built for each set of input shapes."""

    def __init__(self, provider: CoreMLProvider) -> None:
        self._provider = provider

    def examine(self, partition: ep.Partition) -> None:
        """Decline what is too small, or cannot be lowered, whatever the shapes."""
        self._provider.decline_small(partition)
        examine(partition, self._provider.target)


class CoreMLSerialiser(ep.Serialiser):
    """Keeps the files of models."""

    def __init__(self, provider: CoreMLProvider, *, caches: bool) -> None:
        self.caches = caches
        self._provider = provider

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        """The files of the model.

        Raises:
            Declined: it has none, as it gives no elements.
        """
        if not isinstance(compiled, CoreMLPartition):
            raise ep.Declined(
                ep.Reason(ep.RefusalCode.OTHER, "it gives no elements, without a model")
            )
        return compiled.pack()

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        """A model from its files.

        Raises:
            Declined: they are damaged, or of another partition.
        """
        artefact = Artefact()
        try:
            artefact.unpack(data)
        except (ValueError, OSError) as error:
            artefact.close()
            raise _damaged(error) from error
        return self._provider.load(partition, artefact)


def _damaged(error: Exception) -> ep.Declined:
    return ep.Declined(
        ep.Reason(ep.RefusalCode.OTHER, f"the compiled model is of no use: {error}")
    )


def _find_engine(model_format: str) -> engine.Engine:
    """The engine of a format."""
    if model_format == COREAI:
        from onnxplug_coreml import coreai

        return coreai
    from onnxplug_coreml import mlprogram

    return mlprogram
