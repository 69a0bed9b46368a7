"""What users run: a model on the EPs chosen for it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.errors import EPFail, InvalidArgument
from onnxplug.guard import close_after
from onnxplug.options import RunOptions, SessionOptions
from onnxplug.session.closing import call_each
from onnxplug.session.inputs import require_mapping
from onnxplug.session.lifecycle import SessionLifecycle, reopened
from onnxplug.session.model_info import ModelMetadata, NodeArg
from onnxplug.session.outputs import as_output_names
from onnxplug.session.request import SessionRequest, read_options, read_source
from onnxplug.shapes.symbols import BeliedSymbols
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from onnxplug.partition.assigned import OrtEpAssignedSubgraph
    from onnxplug.partition.report import Explanation
    from onnxplug.plugins import PluginRegistry
    from onnxplug.selection.request import ProviderEntry
    from onnxplug.session.io_binding import IOBinding
    from onnxplug.session.ort_value import OrtValue
    from onnxplug.specialise.prewarm import Prepared


class InferenceSession(SessionLifecycle):
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
        registry: where EPs, and domains of operators, are looked up by name; by default
            the process's.  A session that was given one cannot be pickled.
        enable_fallback: see :meth:`enable_fallback`.
        read_config_from_model: options that the model has in its metadata, as
            ``ort_config``, count more than *sess_options*.

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
        registry: PluginRegistry | None = None,
        enable_fallback: int = False,
        read_config_from_model: int = False,
    ) -> None:
        source, options = read_source(path_or_bytes), read_options(sess_options)
        if read_config_from_model:
            from onnxplug.session.model_config import set_from_model  # seldom wanted

            set_from_model(options, source)
        self._request = SessionRequest(
            source,
            options,
            providers,
            provider_options,
            policy,
            tuple(
                (disabled_optimizers,)
                if isinstance(disabled_optimizers, str)
                else disabled_optimizers or ()
            ),
            registry,
            falls_back=bool(enable_fallback),
        )
        self._open()

    @property
    def _model_path(self) -> str | None:
        """The model's path, which programs read that were written for ONNX Runtime."""
        source = self._request.source
        return source if isinstance(source, str) else None

    def close(self) -> None:
        """Release what the EPs hold; called again, it does nothing.

        What runs in other threads use is released when they end.  A session that is
        dropped is closed too, and so is one used by ``with``.

        Raises:
            EpError: an EP failed to close; all else is closed nonetheless.
        """
        with self._locked(), self._opening:
            try:
                call_each([*(each.close for each in self._variants), self._closer])
            finally:
                used: Any = self._model or self._runner  # the one that is attached
                used.detach(self)

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
        return reopened, (type(self), self._request.pickled())

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
            ArgumentTypeError: *output_names* is no list of names.
            OptionError: a config entry of *run_options* is neither the host's nor a run
                option of an EP of the session, or has a value that is not accepted.
            RunError: an EP failed while running, or the session was closed.
        """
        if output_names is not None:
            if type(output_names) is not list:
                output_names = as_output_names(output_names)
            unknown = self._runner.unknown(output_names)
            if unknown:
                as_output_names(unknown)
                variant = self._variant(unknown)
                return variant.run(output_names, input_feed, run_options)
        runner = self._runner
        try:
            results = runner.call(input_feed) if run_options is None else None
            if results is None:
                used = runner = self._in_use()
                try:
                    results = used.run(input_feed, run_options)
                finally:
                    used.built.release()
        except EPFail as error:
            if not self._fall_back(error):
                raise
            return self.run(output_names, input_feed, run_options)
        except BeliedSymbols as error:
            self._forget(error.symbols, runner, run_options)
            return self.run(output_names, input_feed, run_options)
        return runner.select(output_names, results) if output_names else results

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run on values from where they are; the outputs are values of the host.

        Raises:
            InvalidArgument: an input is no ``OrtValue``; ``ArgumentTypeError`` if
                *output_names* is no list of names.
            InputTypeError: the inputs are no mapping.
        """
        if output_names is not None:
            output_names = as_output_names(output_names)
        require_mapping(input_dict_ort_values)
        binding = self.io_binding()
        for name, value in input_dict_ort_values.items():
            binding.bind_ortvalue_input(name, value)
        for name in output_names or self._runner.output_names:
            binding.bind_output(name)
        try:
            self.run_with_iobinding(binding, run_options)
        except EPFail as error:
            if not self._fall_back(error):
                raise
            return self.run_with_ort_values(
                output_names, input_dict_ort_values, run_options
            )
        return binding.get_outputs()

    def _names_to_bind(self) -> tuple[Sequence[str], Sequence[str]]:
        """The names of inputs and of outputs that a binding may have."""
        return self._runner.input_names, self._runner.output_names

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs for runs of this session."""
        return self._full.binding_class(self, self._opened.registry)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on what is bound; the outputs are then at the binding.

        Raises:
            InvalidArgument: the binding is another session's, binds no output, or binds
                two outputs to the same memory.
            InputError: a bound input is missing or does not fit.
            OutputMismatch: a bound output has not the shape or element type produced.
            OptionError: see :meth:`run`.
            RunError: an EP failed while running, or the session was closed.
        """
        if not iobinding.belongs_to(self):
            raise InvalidArgument("the binding was made by another session")
        if not iobinding.outputs:
            raise InvalidArgument(
                "At least one output should be requested: bind one with bind_output()"
            )
        runner = self._in_use()
        try:
            runner.bound.run(iobinding, run_options, runner.profile)
        except BeliedSymbols as error:
            belied = error.symbols
        else:
            return
        finally:
            runner.built.release()
        self._forget(belied, runner, run_options)
        self.run_with_iobinding(iobinding, run_options)

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

        Raises:
            InputError: an input is missing, unknown or does not fit.
            ArgumentTypeError: *output_names* is no list of names.
        """
        from onnxplug.session.background import submit_for

        if output_names is not None:
            output_names = as_output_names(output_names)
        with contextlib.suppress(BeliedSymbols):  # the run sees to it
            self._full.check(input_feed)
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

    def prepare(
        self,
        shapes: Mapping[str, Sequence[int]] | Iterable[Mapping[str, Sequence[int]]],
    ) -> list[Prepared]:
        """Let EPs make ready, before a run, what they make by input shapes.

        Runs of other threads go on meanwhile.  An EP that keeps what it compiles by
        shapes compiles, unless it has; others do what they do in a first run, as far as
        they can.

        Args:
            shapes: the shapes of inputs by name, or several such mappings.  Inputs that
                are left out have the sizes that are fixed, or that names of dimensions
                tell.

        Returns:
            For each mapping and each partition what was made ready, and why not.

        Raises:
            InputError: there is no such input, or it cannot have such a shape.
            InvalidModel: a node cannot run with these shapes; the error names it.
            EpError, OutOfMemory: an EP failed.
            RunError: the session was closed.
        """
        from onnxplug.specialise.prewarm import prepare_for

        several = [shapes] if isinstance(shapes, Mapping) else list(shapes)
        runner = self._in_use()
        try:
            prepared = [
                prepare_for(
                    runner.built.compiled,
                    {name: tuple(sizes) for name, sizes in each.items()},
                )
                for each in several
            ]
            return list(itertools.chain.from_iterable(prepared))
        except BeliedSymbols as error:
            belied = error.symbols
        finally:
            runner.built.release()
        self._forget(belied, runner)
        return self.prepare(several)

    # asking

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that must be fed."""
        return self._describe(self._runner.required)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a default and may be fed."""
        return self._describe(self._runner.optional)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return self._describe(self._runner.output_names)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return self._opened.metadata

    def get_session_options(self) -> SessionOptions:
        """The options that the session was created with."""
        return self._request.options

    def get_providers(self) -> list[str]:
        """The names of the EPs in use, best first."""
        return self._runner.providers

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each EP in use, as text."""
        return {
            ep.name: {name: str(value) for name, value in ep.options.items()}
            for ep in self._built.chosen
        }

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Change options of EPs that may change while the session lives, for runs that
        begin from now on.

        Each EP of the session that has any is given all of them.  A session that is
        made anew, by :meth:`set_providers` or after a failure, has them no more.

        Raises:
            OptionError: there is none, or no EP of the session has such options, or one
                does not take them.
        """
        from onnxplug.session.dynamic import set_dynamic_options  # few programs do

        with self._locked():
            built = [session._built for session in (*self._variants, self)]
        set_dynamic_options(built, options)

    def set_providers(
        self,
        providers: str | Sequence[ProviderEntry] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Create the session anew with other EPs; on failure it stays as it was."""
        other = reopened(
            type(self),
            self._request._replace(
                providers=providers, provider_options=provider_options, policy=None
            ),
        )
        model = other._opened
        # the closer is bound to the session it was made for, so another is made
        detached = other._closer.detach()
        assert detached is not None
        _, close, arguments, _ = detached
        other._closer = weakref.finalize(self, close, *arguments)
        # so that nobody changes what is closed here, or opens the model as it was
        with self._locked(), self._opening:
            before = self.__dict__
            self.__dict__ = other.__dict__
            try:
                variants = before["_variants"]
                call_each([*(each.close for each in variants), before["_closer"]])
            finally:
                (before["_model"] or before["_runner"]).detach(self)
                model.attach(self)
                model.detach(other)

    def enable_fallback(self) -> None:
        """Let :meth:`run` do without an EP that fails.

        The session is then made anew with the CPU EP, with a warning, and the run is
        done again.  That happens once.
        """
        self._request = self._request._replace(falls_back=True)

    def disable_fallback(self) -> None:
        """Let runs in which an EP fails raise, as they do by default."""
        self._request = self._request._replace(falls_back=False)

    def _fall_back(self, error: EPFail) -> bool:
        """Make the session anew with the CPU EP, if it may, since a run failed."""
        from onnxplug.selection.order import CPU  # few EPs fail

        if not self._request.falls_back or self.get_providers() == [CPU]:
            return False
        warn_user(f"the session is made anew with {CPU}: {error}", cause=error)
        self.disable_fallback()
        self.set_providers([CPU])
        return True

    def explain(self) -> Explanation:
        """Which node runs where, and why not elsewhere."""
        self._built.explanation.refresh()
        return self._built.explanation

    # profiling

    def end_profiling(self) -> str:
        """Write the trace of a session with ``SessionOptions.enable_profiling``.

        Later runs are not recorded, and no slower than without profiling.
        Closing the session writes the trace too.

        Returns:
            The path of the file, which Chrome (``chrome://tracing``) and Perfetto
            show; empty when there is no trace, or it was written before.

        Raises:
            OSError: the file could not be written.
        """
        with self._locked():
            profile = self._runner.profile
            if profile is None:
                return ""
            for session in (*self._variants, self):
                session._full.stop_recording()
        return profile.end()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in ns since 1970; 0 if it never did."""
        return self._profiling_start

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """The partitions and their nodes, in ONNX Runtime's words."""
        from onnxplug.partition.assigned import assigned_subgraphs

        return assigned_subgraphs(self._built.explanation)

    def _describe(self, names: Collection[str]) -> list[NodeArg]:
        return self._runner.describe(names)
