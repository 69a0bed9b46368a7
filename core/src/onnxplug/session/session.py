"""What users run: a model on the EPs chosen for it."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxplug.ep import HOST, MemoryLocation
from onnxplug.ep.locks import new_lock
from onnxplug.errors import InvalidArgument, RunError
from onnxplug.graph.load import in_memory
from onnxplug.guard import close_after
from onnxplug.hardware import discover
from onnxplug.options import RunOptions, SessionOptions
from onnxplug.plugins import registry
from onnxplug.run.build import (
    BuiltModel,
    attach,
    call_each,
    close_model,
    detach,
    load,
    log_placement,
    write_model,
)
from onnxplug.run.execute import Run, execute
from onnxplug.run.partition.assigned import OrtEpAssignedSubgraph, assigned_subgraphs
from onnxplug.run.profiling import Profile, stage
from onnxplug.selection import SessionContext, choose, defaults, resolve
from onnxplug.session.fast_path import never_straight, straight_run
from onnxplug.session.inputs import InputChecker
from onnxplug.session.model_info import ModelMetadata, NodeArg, node_arg
from onnxplug.session.outputs import DeclaredShapes, own

if TYPE_CHECKING:
    from onnxplug.ep.files import Identity
    from onnxplug.graph import Model
    from onnxplug.run.partition.report import Explanation
    from onnxplug.selection import ModelInfo
    from onnxplug.selection.request import ProviderEntry, ProviderRequest
    from onnxplug.session.io_binding import IOBinding
    from onnxplug.session.ort_value import OrtValue

_EXECUTE = "SequentialExecutor::Execute"
"""What ONNX Runtime's traces call a run without the checks around it."""

_MAX_TAPPED = 4
"""How many variants with more outputs a session keeps."""


class _Request(NamedTuple):
    """What a session was asked for, enough to make it anew.

    Attributes:
        files: those of the model as they were; ``None`` before it was loaded.
    """

    source: Path | memoryview
    options: SessionOptions
    providers: Any
    provider_options: Any
    policy: Any
    disabled: tuple[str, ...]
    files: Mapping[Path, Identity] | None = None


class InferenceSession:
    """A model ready to run.

    Args:
        path_or_bytes: a path, the bytes of a model, a binary file, or an
            ``onnx.ModelProto``.
        sess_options: see :class:`SessionOptions`.
        providers: the EPs to use, best first: names, ``(name, options)`` pairs, or
            ``onnxplug.provider(…)``.  Nodes that none of them takes go to the CPU EP.
            Nothing means the CPU EP.
        provider_options: options for *providers*, when those are plain names.
        policy: chooses the EPs when *providers* does not: ``"prefer_npu"``, another
            name, or a function ``(ep_devices, model_info) -> ep_devices``.
        disabled_optimizers: names of passes over the graph to leave out.

    Raises:
        ModelError: the model cannot be loaded.
        LoadCancelled, OutOfMemory: making it was cancelled, or takes too much memory.
        OnnxplugError: the EPs asked for cannot be used, or leave a node over.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: str | Sequence[ProviderEntry] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        policy: Any = None,
        disabled_optimizers: Collection[str] | None = None,
    ) -> None:
        if not isinstance(sess_options, SessionOptions | None):
            raise InvalidArgument(
                f"sess_options is a {type(sess_options).__qualname__} of "
                f"{type(sess_options).__module__}; expected onnxplug.SessionOptions"
            )
        if isinstance(path_or_bytes, str | os.PathLike):
            source: Path | memoryview = Path(path_or_bytes)
        else:
            source, _ = in_memory(path_or_bytes)
        self._request = _Request(
            source,
            (sess_options or SessionOptions()).snapshot(),
            providers,
            provider_options,
            policy,
            tuple(disabled_optimizers or ()),
        )
        self._open()

    def _open(
        self,
        taps: Sequence[str] = (),
        requests: Sequence[ProviderRequest] | None = None,
        profile: Profile | None = None,
    ) -> None:
        """Make the session.

        Args:
            taps: names of values to be outputs too, of a session for another one.
            requests: the EPs if they are resolved already.
            profile: the other session's.
        """
        options = self._request.options
        self._profile = profile
        if options.enable_profiling and not taps:
            self._profile = Profile(options.profile_file_prefix)
        try:
            source = self._request.source
            kind = "array" if isinstance(source, memoryview) else "uri"
            with stage(self._profile, f"model_loading_{kind}"):
                model = load(source, options, taps, self._request.files)
            self._request = self._request._replace(files=model.files)
            with stage(self._profile, "session_initialization"):
                self._initialize(model, taps, requests)
        except BaseException:
            if self._profile is not None and not taps:
                self._profile.discard()
            raise

    def _initialize(
        self,
        model: Model,
        taps: Sequence[str],
        requests: Sequence[ProviderRequest] | None,
    ) -> None:
        request, profile = self._request, self._profile
        options = request.options
        self._metadata = ModelMetadata(model)
        cpu_fallback = options.config["session.disable_cpu_ep_fallback"] != "1"
        if requests is None:
            requests = resolve(
                request.providers,
                request.provider_options,
                options.requests,
                options.policy if request.policy is None else request.policy,
                defaults.take(),
                registry=registry,
                model_info=functools.partial(_model_info, model),
                cpu_fallback=cpu_fallback,
            )
        self._resolved = requests
        context = SessionContext(model.path, options.threads, options.config)
        with stage(profile, "create EPs"):
            chosen, failed = choose(
                requests, registry, discover(), context, cpu_fallback=cpu_fallback
            )
        disabled = {*options.disabled_passes, *request.disabled}
        built = BuiltModel(model, chosen, failed, options, disabled, profile)
        graph = built.graph
        self._built = built
        # closes what is dropped: a session, one that could not be made included, and
        # one that is alive when the interpreter ends
        self._own_profile = None if taps else profile
        self._closer = weakref.finalize(self, close_model, built, self._own_profile)
        self._profiling_start = 0 if profile is None else profile.start_time_ns
        self._output_names = list(graph.outputs)
        self._checker = InputChecker(
            {name: graph.value(name).type for name in [*graph.inputs, *graph.defaults]},
            {name: weight.array for name, weight in graph.defaults.items()},
        )
        self._declared = DeclaredShapes(
            {name: graph.value(name).type for name in self._output_names}
        )
        # a straight run goes by what takes things down
        self._run_straight = (
            straight_run(built, self._checker, self._declared)
            if profile is None
            else never_straight
        )
        self._tapped: dict[tuple[str, ...], InferenceSession] = {}
        self._lock = new_lock()
        attach(built, self)
        if options.optimized_model_filepath and not taps:
            write_model(graph, Path(options.optimized_model_filepath))
        log_placement(options, built.explanation)

    def close(self) -> None:
        """Release what the EPs hold; called again, it does nothing.

        What runs in other threads use is released when they end.  A session that is
        dropped is closed too, and so is one used by ``with``.

        Raises:
            EpError: an EP failed to close; all else is closed nonetheless.
        """
        with self._lock:
            try:
                call_each([*(t.close for t in self._tapped.values()), self._closer])
            finally:
                detach(self._built, self)

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        if error is None:
            self.close()
        else:
            close_after(error, self.close)

    def __reduce__(self) -> tuple[Callable[..., InferenceSession], tuple[Any, ...]]:
        request = self._request
        source = request.source
        plain = source.tobytes() if isinstance(source, memoryview) else source
        # elsewhere the same files are others
        request = request._replace(source=plain, files=None)  # type: ignore[arg-type]
        return _reopen, (request,)

    # running

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names: the outputs to return, in this order; ``None``: all.  Any
                other value of the model's graph may be named too; the first run that
                does so compiles the model anew with that value as an output.
            input_feed: a value for each input.
            run_options: see :class:`RunOptions`.

        Returns:
            numpy arrays that belong to the caller; lists for sequences, dicts for
            maps, ``None`` for an empty optional.

        Raises:
            InputError: an input is missing, unknown or does not fit.
            UnknownOutput: there is no such value.
            RunError: an EP failed while running, or the session was closed.
        """
        if output_names is not None:
            if isinstance(output_names, str):
                output_names = [output_names]
            unknown = [n for n in output_names if n not in self._output_names]
            if unknown:
                tapped = self._with_taps(unknown)
                return tapped.run(output_names, input_feed, run_options)
        results = self._run_straight(input_feed) if run_options is None else None
        if results is None:
            results = self._run_at_length(input_feed, run_options)
        return self._select(output_names, results) if output_names else results

    def _run_at_length(
        self, feed: Mapping[str, Any], run_options: RunOptions | None
    ) -> list[Any]:
        profile = self._profile
        with nullcontext() if profile is None else profile.run():
            inputs = self._checker.check(feed)
            results = own(self._compute(inputs, run_options, profile), inputs)
            self._declared.check(results)
            return results

    def _select(self, names: Sequence[str], results: list[Any]) -> list[Any]:
        """Those of *results* that have these names."""
        if names == self._output_names:
            return results
        by_name = dict(zip(self._output_names, results, strict=True))
        selected = [by_name[name] for name in names]
        return selected if len(set(names)) == len(names) else own(selected, [])

    def _compute(
        self,
        inputs: Sequence[Any],
        run_options: RunOptions | None,
        profile: Profile | None,
    ) -> Sequence[Any]:
        built = self._in_use()
        try:
            if run_options is None and built.straight is not None and profile is None:
                return built.straight(inputs)
            with (
                stage(profile, _EXECUTE),
                Run(built.memory, run_options, profile) as run,
            ):
                return execute(built.plan, inputs, run)
        finally:
            built.release()

    def _in_use(self) -> BuiltModel:
        """What runs the model; it stays open until it is released."""
        built = self._built
        while not built.acquire():
            if built is self._built:
                raise RunError(
                    "the session is closed; create another one to run the model"
                )
            built = self._built  # of set_providers in another thread
        return built

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run on values from where they are; the outputs are values of the host.

        Raises:
            InvalidArgument: an input is no ``OrtValue``.
        """
        if isinstance(output_names, str):
            output_names = [output_names]
        binding = self.io_binding()
        for name, value in input_dict_ort_values.items():
            binding.bind_ortvalue_input(name, value)
        for name in output_names or self._output_names:
            binding.bind_output(name)
        self.run_with_iobinding(binding, run_options)
        return binding.get_outputs()

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs for runs of this session."""
        from onnxplug.session.io_binding import IOBinding

        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on what is bound; the outputs are then at the binding.

        Raises:
            InvalidArgument: the binding is another session's, or binds no output.
            InputError: a bound input is missing or does not fit.
            OutputMismatch: a bound output has not the shape or element type produced.
            RunError: an EP failed while running, or the session was closed.
        """
        if not iobinding.belongs_to(self):
            raise InvalidArgument("the binding was made by another session")
        if not iobinding.outputs:
            raise InvalidArgument(
                "At least one output should be requested: bind one with bind_output()"
            )
        profile = self._profile
        with nullcontext() if profile is None else profile.run():
            self._run_bound(iobinding, run_options, profile)

    def _run_bound(
        self,
        iobinding: IOBinding,
        run_options: RunOptions | None,
        profile: Profile | None,
    ) -> None:
        places = {name: value.location for name, value in iobinding.inputs.items()}
        values = self._checker.check(
            {name: value.raw for name, value in iobinding.inputs.items()},
            placed={name for name, place in places.items() if place != HOST},
        )
        wanted: dict[str, MemoryLocation] = {
            name: output.location for name, output in iobinding.outputs.items()
        }
        bound = [
            output.value.raw
            if output is not None and output.value is not None
            else None
            for output in map(iobinding.outputs.get, self._output_names)
        ]
        built = self._in_use()
        try:
            plan = built.plan_for(places, wanted)
            with (
                stage(profile, _EXECUTE),
                Run(built.memory, run_options, profile) as run,
            ):
                results = execute(plan, values, run, bound)
            by_name = dict(zip(self._output_names, results, strict=True))
            iobinding.receive(by_name, values)
        finally:
            built.release()

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in a background thread, which calls ``callback(results, user_data, "")``.

        When the run fails, the results are empty and the last argument is the error's
        text.  Inputs are checked before this returns.
        """
        from onnxplug.session.background import submit_for

        self._checker.check(input_feed)
        run = functools.partial(self.run, output_names, input_feed, run_options)
        submit_for(run, callback, user_data)

    async def arun(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """As :meth:`run`, awaited; cancelling the task ends the run."""
        import asyncio

        from onnxplug.session.background import submit

        # the caller's options may serve other runs, which go on
        options = (run_options or RunOptions()).linked()
        future = submit(self.run, output_names, input_feed, options)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            options.terminate = True
            raise

    # asking

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that must be fed."""
        return self._describe(self._built.graph.inputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a default and may be fed."""
        return self._describe(self._built.graph.defaults)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return self._describe(self._output_names)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return self._metadata

    def get_session_options(self) -> SessionOptions:
        """The options that the session was created with."""
        return self._request.options

    def get_providers(self) -> list[str]:
        """The names of the EPs in use, best first."""
        return [ep.name for ep in self._built.chosen]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each EP in use, as text."""
        return {
            ep.name: {name: str(value) for name, value in ep.options.items()}
            for ep in self._built.chosen
        }

    def set_providers(
        self,
        providers: str | Sequence[ProviderEntry] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Create the session anew with other EPs; on failure it stays as it was."""
        other = _reopen(
            self._request._replace(
                providers=providers, provider_options=provider_options, policy=None
            )
        )
        # the closer is bound to the session it was made for, so another is made
        other._closer.detach()
        other._closer = weakref.finalize(
            self, close_model, other._built, other._own_profile
        )
        before = self.__dict__
        self.__dict__ = other.__dict__
        try:
            with before["_lock"]:
                tapped = before["_tapped"].values()
                call_each([*(t.close for t in tapped), before["_closer"]])
        finally:
            detach(before["_built"], self)
            attach(self._built, self)
            detach(self._built, other)

    def explain(self) -> Explanation:
        """Which node runs where, and why not elsewhere."""
        self._built.explanation.refresh()
        return self._built.explanation

    # profiling

    def end_profiling(self) -> str:
        """Write the trace of a session with ``SessionOptions.enable_profiling``.

        Runs are not taken down any more, and no slower than without profiling.
        Closing the session writes the trace too.

        Returns:
            The path of the file, which Chrome (``chrome://tracing``) and Perfetto
            show; empty when there is no trace, or it was written before.

        Raises:
            OSError: the file could not be written.
        """
        with self._lock:
            profile = self._profile
            if profile is None:
                return ""
            for session in (*self._tapped.values(), self):
                session._go_without_profile()
        return profile.end()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in ns since 1970; 0 if it never did."""
        return self._profiling_start

    def _go_without_profile(self) -> None:
        self._profile = None
        self._run_straight = straight_run(self._built, self._checker, self._declared)

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """The partitions and their nodes, in ONNX Runtime's words."""
        return assigned_subgraphs(self._built.explanation)

    def _describe(self, names: Collection[str]) -> list[NodeArg]:
        graph = self._built.graph
        return [node_arg(name, graph.value(name).type) for name in names]

    def _with_taps(self, names: Sequence[str]) -> InferenceSession:
        """This session with more outputs."""
        key = tuple(sorted(set(names)))
        with self._lock:
            self._in_use().release()  # a closed session makes no other
            known = self._tapped  # which set_providers replaces
            if key not in known:
                tapped = InferenceSession.__new__(InferenceSession)
                tapped._request = self._request
                tapped._open(key, self._resolved, self._profile)
                while len(known) >= _MAX_TAPPED:
                    known.pop(next(iter(known)))  # closed when no run uses it
                known[key] = tapped
            return known[key]


def _reopen(request: _Request) -> InferenceSession:
    """A session like another one."""
    session = InferenceSession.__new__(InferenceSession)
    source = request.source
    if isinstance(source, bytes):  # as it was pickled
        request = request._replace(source=memoryview(source))
    session._request = request
    session._open()
    return session


def _model_info(model: Model) -> ModelInfo:
    from onnxplug.selection import ModelInfo

    return ModelInfo.of(model)
