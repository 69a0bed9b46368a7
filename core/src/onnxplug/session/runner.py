"""Runs a built model: checks what is fed, executes, and makes results the caller's."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onnxplug.ep import HOST
from onnxplug.errors import RunCancelled
from onnxplug.run.context import Context
from onnxplug.run.execute import execute
from onnxplug.run.plan import only_partition
from onnxplug.run.run import Run
from onnxplug.session.inputs import InputChecker
from onnxplug.session.model_info import NodeArg, node_arg
from onnxplug.session.named_outputs import NamedOutputs
from onnxplug.session.outputs import DeclaredShapes, own
from onnxplug.session.prepared_call import PreparedCall, not_prepared, prepare_fed
from onnxplug.session.profiling import recorded_execution, recorded_run
from onnxplug.shapes.stated import merged

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.ep import ValueType
    from onnxplug.options import RunOptions
    from onnxplug.run.plan import RunPartition
    from onnxplug.run.profiling import Profile
    from onnxplug.session.bound_runner import BoundRunner
    from onnxplug.session.io_binding import IOBinding


class ModelRunner(NamedOutputs):
    """The runs of one built model, from any number of threads.

    Whoever calls :meth:`run`, or that of :attr:`bound`, has acquired the model.

    Attributes:
        built: the model.
        profile: what runs are recorded in, if they are.
        input_names: the model's inputs, in order, those with defaults after the others.
        output_names: the model's outputs, in order.
        call: the prepared one, of a feed.
    """

    def __init__(
        self,
        built: BuiltModel,
        profile: Profile | None,
        declared: Mapping[str, ValueType | None] = MappingProxyType({}),
    ) -> None:
        """*declared* are types of outputs where the model states others than follow."""
        graph = built.graph
        super().__init__(graph.outputs)
        self.built = built
        self.profile = profile
        self.input_names = [*graph.inputs, *graph.defaults]
        self._described: dict[str, NodeArg] = {}
        self._stated = declared
        self._checker = InputChecker(
            graph.input_types(),
            {name: weight.array for name, weight in graph.defaults.items()},
        )
        self._declared = DeclaredShapes(
            {
                name: declared.get(name) or graph.value(name).type
                for name in self.output_names
            }
        )
        self._only = only_partition(built.plan, HOST)
        # nothing of it is recorded
        self.call = self._prepared() if profile is None else not_prepared

    def stop_recording(self) -> None:
        """Record no more runs; they are no slower then than without a profile."""
        self.profile = None
        self.call = self._prepared()

    def check(self, feed: Mapping[str, Any]) -> None:
        """Check what is fed.

        Raises:
            InputError: an input is missing, unknown or does not fit.
        """
        self._checker.check(feed)

    def run(self, feed: Mapping[str, Any], run_options: RunOptions | None) -> list[Any]:
        """Run on *feed*; the outputs, in the model's order, belong to the caller.

        Raises:
            InputError: an input is missing, unknown or does not fit.
            OptionError: a config entry of the run is nobody's, or of no such value.
            RunError: an EP failed while running.
        """
        profile = self.profile
        if profile is None and self._only is not None:
            inputs = self._checker.pass_on(feed)
            if inputs is None:
                inputs = self._checker.check(feed)
            results = own(self._execute_only(self._only, inputs, run_options), inputs)
            self._declared.check(results)
            return results
        with recorded_run(profile):
            inputs = self._checker.check(feed)
            results = own(self._execute(inputs, run_options, profile), inputs)
            self._declared.check(results)
            return results

    @functools.cached_property
    def bound(self) -> BoundRunner:
        """Runs it on what is bound."""
        # what few programs bind takes longer to import than to run
        from onnxplug.session.bound_runner import BoundRunner

        return BoundRunner(self.built, self._checker, self.output_names)

    @functools.cached_property
    def binding_class(self) -> type[IOBinding]:
        """What values are bound by."""
        from onnxplug.session.io_binding import IOBinding  # as above

        return IOBinding

    @property
    def required(self) -> Collection[str]:
        """Names of the inputs that must be fed."""
        return self.built.graph.inputs

    @property
    def optional(self) -> Collection[str]:
        """Names of the inputs that have a default."""
        return self.built.graph.defaults

    @property
    def providers(self) -> list[str]:
        """The names of the EPs in use, best first."""
        return [ep.name for ep in self.built.chosen]

    def describe(self, names: Iterable[str]) -> list[NodeArg]:
        """The inputs or outputs of these *names*, with all the names of sizes that the
        model states."""
        known = self._described
        if not known:
            graph = self.built.graph
            for name in (*graph.input_types(), *graph.outputs):
                stated = merged(self._stated.get(name), graph.value(name).type)
                known[name] = node_arg(name, stated)
        return [known[name].copy() for name in names]

    def _prepared(self) -> PreparedCall:
        return prepare_fed(self.built, self._checker, self._declared)

    def _execute(
        self,
        inputs: Sequence[Any],
        run_options: RunOptions | None,
        profile: Profile | None,
    ) -> Sequence[Any]:
        built = self.built
        options = built.run_entries.read(run_options)
        with (
            recorded_execution(profile),
            Run(built.memory, built.streams, options, run_options, profile) as run,
        ):
            return execute(built.plan, inputs, run)

    def _execute_only(
        self,
        step: RunPartition,
        inputs: Sequence[Any],
        run_options: RunOptions | None,
    ) -> Sequence[Any]:
        """As :meth:`_execute`, of a plan that is one partition on the host."""
        built = self.built
        assert built.direct_call is not None
        if run_options is None:
            return built.direct_call(inputs)
        options = built.run_entries.read(run_options)
        run = Run(built.memory, built.streams, options, run_options)
        run.check()
        try:
            unbound = [None] * len(self.output_names)
            return built.direct_call(inputs, unbound, Context(run, None, step.ep))
        except RunCancelled:
            run.check()  # which knows why it was cancelled
            raise
