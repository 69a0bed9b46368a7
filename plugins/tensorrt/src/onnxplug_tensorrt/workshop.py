"""Makes engines of partitions: those that are kept on disk, or else new ones."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug import ep
from onnxplug_tensorrt.building import Builder
from onnxplug_tensorrt.caches import EngineCache
from onnxplug_tensorrt.engine import Engine
from onnxplug_tensorrt.library import Library
from onnxplug_tensorrt.plans import Plan
from onnxplug_tensorrt.profiles import Profile, as_facts
from onnxplug_tensorrt.settings import Settings

_GROWN = "grown"
"""What stands in the name of an engine whose profile follows what runs brought."""


class Workshop:
    """Makes engines, with the options of one session.

    Args:
        library: TensorRT, on the GPU that they are for.
        settings: those of the session.
    """

    def __init__(self, library: Library, settings: Settings) -> None:
        self.library = library
        self.builder = Builder(library, settings)
        self._cache = EngineCache(library, settings)
        self._shares_memory = settings.shares_memory
        self._ranges = settings.precision.of_ranges

    def engine(
        self,
        partition: ep.Partition,
        profile: Profile,
        is_unwanted: Callable[[], bool],
    ) -> Engine:
        """The engine of *partition* for *profile*, kept or new.

        Raises:
            Declined: TensorRT does not build it.
            LoadCancelled: nobody wants it any more.
        """
        name = self._cache.name_of(partition.fingerprint, as_facts(profile))
        found = self._kept(name, partition)
        return found or self._new(name, partition, profile, is_unwanted)

    def kept_for_runs(self, partition: ep.Partition) -> Engine | None:
        """The engine that was kept of *partition*, for the shapes that runs of other
        processes brought; ``None``: there is none."""
        return self._kept(self._name_for_runs(partition), partition)

    def new_for_runs(
        self,
        partition: ep.Partition,
        profile: Profile,
        is_unwanted: Callable[[], bool],
    ) -> Engine:
        """A new engine of *partition*, which is kept in place of the one before.

        Raises:
            Declined, LoadCancelled: as of :meth:`engine`.
        """
        name = self._name_for_runs(partition)
        return self._new(name, partition, profile, is_unwanted)

    def restored(self, plan: Plan) -> Engine:
        """The engine that *plan* is.

        Raises:
            ValueError: TensorRT does not take it, or it is for another GPU, or of other
                ranges of tensors.
        """
        library = self.library
        obstacle = plan.obstacle(str(library.tensorrt.__version__), library.facts)
        if obstacle:
            raise ValueError(obstacle)
        if plan.ranges != self._ranges:
            raise ValueError(
                "its tensors have other ranges than this session's calibration table "
                "says, or one of both has none"
            )
        return Engine(library, plan, shares_memory=self._shares_memory)

    def _name_for_runs(self, partition: ep.Partition) -> str:
        return self._cache.name_of(partition.fingerprint, _GROWN)

    def _kept(self, name: str, partition: ep.Partition) -> Engine | None:
        plan = self._cache.load(name)
        if plan is None:
            return None
        try:
            return self._loaded(plan, partition)
        except ValueError as error:
            self.library.logger.info("an engine on disk is of no use: %s", error)
            self._cache.discard(name)
            return None

    def _new(
        self,
        name: str,
        partition: ep.Partition,
        profile: Profile,
        is_unwanted: Callable[[], bool],
    ) -> Engine:
        plan = self.builder.build(partition, profile, is_unwanted)
        try:
            engine = self._loaded(plan, partition)
        except ValueError as error:
            raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, str(error))) from error
        self._cache.store(name, plan)
        return engine

    def _loaded(self, plan: Plan, partition: ep.Partition) -> Engine:
        engine = self.restored(plan)
        if plan.stripped:
            self.builder.refit(engine.native, partition)
        return engine
