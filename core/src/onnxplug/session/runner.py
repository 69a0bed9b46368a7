"""Runs a built model: checks what is fed, executes, and makes results the caller's."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onnxplug.ep import HOST
from onnxplug.run.execute import execute
from onnxplug.run.run import Run
from onnxplug.session.bound_execution import (
    captured_run,
    leave_queued,
    may_return_early,
    wait_for_work,
)
from onnxplug.session.bound_runs import PreparedCall, not_prepared
from onnxplug.session.inputs import InputChecker
from onnxplug.session.outputs import DeclaredShapes, own
from onnxplug.session.prepared_call import prepare_bound, prepare_fed
from onnxplug.session.profiling import recorded_execution, recorded_run

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.ep import ValueType
    from onnxplug.options import RunOptions
    from onnxplug.run.events import OwnedEvent
    from onnxplug.run.plan import Plan
    from onnxplug.run.profiling import Profile
    from onnxplug.session.io_binding import IOBinding


class ModelRunner:
    """The runs of one built model, from any number of threads.

    Whoever calls :meth:`run` or :meth:`run_bound` has acquired the model.

    Attributes:
        built: the model.
        profile: what runs are recorded in, if they are.
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
        self.built = built
        self.profile = profile
        self.output_names = list(graph.outputs)
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
        with recorded_run(profile):
            inputs = self._checker.check(feed)
            results = own(self._execute(inputs, run_options, profile), inputs)
            self._declared.check(results)
            return results

    def run_bound(self, binding: IOBinding, run_options: RunOptions | None) -> None:
        """Run on what is bound; the outputs are then at the binding.

        Raises:
            InvalidArgument: two outputs are bound to the same memory.
            InputError: a bound input is missing or does not fit.
            OutputMismatch: a bound output has not the shape or element type produced.
            OptionError: a config entry of the run is nobody's, or of no such value.
            RunError: an EP failed while running.
        """
        profile, built, runs = self.profile, self.built, binding.runs
        is_plain = run_options is None and profile is None
        call = runs.prepared(built, binding.version) if is_plain else not_prepared
        if call is not None and call(binding) is not None:
            return
        binding.check_parted()
        with recorded_run(profile):
            values = self._checker.check(
                {name: value.raw for name, value in binding.inputs.items()},
                placed={
                    name: value.dtype
                    for name, value in binding.inputs.items()
                    if value.location != HOST and value.is_tensor()
                },
            )
            bound = [
                output.value.raw
                if output is not None and output.value is not None
                else None
                for output in map(binding.outputs.get, self.output_names)
            ]
            places = {name: value.location for name, value in binding.inputs.items()}
            wanted = {name: output.location for name, output in binding.outputs.items()}
            plan = built.plan_for(places, wanted)
            with recorded_execution(profile):
                self._execute_bound(binding, plan, values, bound, run_options, profile)
            if call is None:
                call = prepare_bound(binding, built, plan, self._checker)
                runs.prepare(built, binding.version, call)

    def _execute_bound(
        self,
        binding: IOBinding,
        plan: Plan,
        values: Sequence[Any],
        bound: Sequence[Any | None],
        run_options: RunOptions | None,
        profile: Profile | None,
    ) -> None:
        built = self.built
        # what was captured has the addresses of arrays
        replace = built.captures is None
        captured = None
        if built.captures is not None:
            captured = captured_run(binding, built, plan, values, bound, run_options)
        with Run(
            built.memory,
            built.streams,
            built.run_entries.read(run_options),
            run_options,
            profile,
            streams=functools.partial(binding.runs.streams, built),
            capture=None if captured is None else captured.phase,
        ) as run:
            wait_for_work(binding, run)
            results: Sequence[Any | None]
            if captured is None:
                results = execute(plan, values, run, bound)
            else:
                compute = functools.partial(execute, plan, values, run, bound)
                results = captured.run(plan, run, bound, compute)
            by_name = dict(zip(self.output_names, results, strict=True))
            events: list[OwnedEvent] = []
            if may_return_early(binding, by_name, values, run_options, replace=replace):
                events = leave_queued(binding, run, values)
        binding.receive(by_name, values, events, replace=replace)

    def select(self, names: Sequence[str], results: list[Any]) -> list[Any]:
        """Those of *results* that have these names."""
        if names == self.output_names:
            return results
        by_name = dict(zip(self.output_names, results, strict=True))
        selected = [by_name[name] for name in names]
        return selected if len(set(names)) == len(names) else own(selected, [])

    def _prepared(self) -> PreparedCall:
        return prepare_fed(self.built, self._checker, self._declared)

    def _execute(
        self,
        inputs: Sequence[Any],
        run_options: RunOptions | None,
        profile: Profile | None,
    ) -> Sequence[Any]:
        built = self.built
        if run_options is None and built.direct_call is not None and profile is None:
            return built.direct_call(inputs)
        options = built.run_entries.read(run_options)
        with (
            recorded_execution(profile),
            Run(built.memory, built.streams, options, run_options, profile) as run,
        ):
            return execute(built.plan, inputs, run)
