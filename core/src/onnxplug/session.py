"""A model, the EPs chosen for it, and the plan they made: what users run."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxplug import compile as compiling
from onnxplug.ep import HOST
from onnxplug.errors import EpError, EpWarning, RunError, UnknownOutput
from onnxplug.execute import Run, execute
from onnxplug.graph import Graph, Node
from onnxplug.graph.load import load_model
from onnxplug.hardware import discover
from onnxplug.inputs import InputChecker
from onnxplug.memory import Memory
from onnxplug.model_info import ModelMetadata, NodeArg, node_arg
from onnxplug.options import SessionOptions
from onnxplug.outputs import own
from onnxplug.partition import Candidate, GraphPartition
from onnxplug.partition.report import EpOutcome, Explanation
from onnxplug.plan import Plan, RunPartition, make_plan
from onnxplug.plugins import registry
from onnxplug.prepare import expand_nodes, infer_types, prepare
from onnxplug.prepare.scopes import outermost
from onnxplug.selection import (
    CPU,
    ChosenEp,
    FailedEp,
    SessionContext,
    choose,
    normalise,
)
from onnxplug.selection.choose import warn_failed
from onnxplug.selection.request import ProviderEntry


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
        disabled_optimizers: names of passes over the graph to leave out.

    Raises:
        ModelError: the model cannot be loaded.
        OnnxplugError: the EPs asked for cannot be used, or leave a node over.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: str | Sequence[ProviderEntry] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        disabled_optimizers: Collection[str] | None = None,
    ) -> None:
        options = sess_options or SessionOptions()
        config = options.config
        folder = config["session.model_external_initializers_file_folder_path"]
        model = load_model(
            path_or_bytes, external_data_folder=Path(folder) if folder else None
        )
        self._model = model
        context = SessionContext(model.path, options.intra_op_num_threads, config)
        chosen, failed = choose(
            normalise(providers, provider_options),
            registry,
            discover(),
            context,
            cpu_fallback=config["session.disable_cpu_ep_fallback"] != "1",
        )
        skipped = config["optimization.disable_specified_optimizers"]
        disabled = {*(disabled_optimizers or ()), *filter(None, skipped.split(";"))}
        report = prepare(model, evaluate=_evaluator(chosen), disabled=disabled)
        builder = _Builder(model.graph, chosen, failed)
        self._plan, self._memory = builder.build()
        self._explanation = builder.explanation
        self._explanation.passes = {
            name: list(report.changed(name)) for name in report.counts
        }
        self._chosen = builder.chosen
        # also closes a session that is dropped, or alive when the interpreter ends
        self._closer = weakref.finalize(self, builder.close)
        graph = model.graph
        self._output_names = list(graph.outputs)
        self._checker = InputChecker(
            {name: graph.value(name).type for name in [*graph.inputs, *graph.defaults]},
            {name: weight.array for name, weight in graph.defaults.items()},
        )
        self._run_all = self._straight_path() or self._planned

    def close(self) -> None:
        """Release what the EPs hold; called again, it does nothing.

        A session that is dropped is closed too, and so is one used by ``with``.
        """
        self._closer()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names: the outputs to return, in this order; ``None``: all.
            input_feed: a value for each input.

        Returns:
            numpy arrays that belong to the caller; lists for sequences, dicts for
            maps, ``None`` for an empty optional.

        Raises:
            InputError: an input is missing, unknown or does not fit.
            UnknownOutput: there is no such output.
            RunError: an EP failed while running, or the session was closed.
        """
        if not self._closer.alive:
            raise RunError("the session is closed; create another one to run the model")
        inputs = self._checker.check(input_feed)
        results = own(self._run_all(inputs), inputs)
        if not output_names:
            return results
        by_name = dict(zip(self._output_names, results, strict=True))
        try:
            return [by_name[name] for name in output_names]
        except KeyError as error:
            raise UnknownOutput(
                f"the model has no output {error}; its outputs are {self._output_names}"
            ) from None

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that must be fed."""
        return self._describe(self._model.graph.inputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a default and may be fed."""
        return self._describe(self._model.graph.defaults)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return self._describe(self._output_names)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return ModelMetadata(self._model)

    def get_providers(self) -> list[str]:
        """The names of the EPs in use, best first."""
        return [ep.name for ep in self._chosen]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each EP in use, as text."""
        return {
            ep.name: {name: str(value) for name, value in ep.options.items()}
            for ep in self._chosen
        }

    def explain(self) -> Explanation:
        """Which node runs where, and why not elsewhere."""
        return self._explanation

    def _describe(self, names: Collection[str]) -> list[NodeArg]:
        graph = self._model.graph
        return [node_arg(name, graph.value(name).type) for name in names]

    def _planned(self, inputs: Sequence[Any]) -> Sequence[Any]:
        run = Run(self._memory)
        try:
            return execute(self._plan, inputs, run)
        finally:
            run.finish()

    def _straight_path(self) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
        """A function for a session that is one partition on the host, if it is one.

        Nothing is looked up or decided in it: the EP is called on the checked inputs.
        """
        plan = self._plan
        if len(plan.steps) != 1:
            return None
        step = plan.steps[0]
        in_order = tuple(range(1, len(plan.inputs) + 1))
        if (
            not isinstance(step, RunPartition)
            or step.location != HOST
            or step.turnstile is not None
            or step.inputs != in_order
            or step.outputs != plan.outputs
        ):
            return None
        run, nothing_bound = step.run, (None,) * len(step.outputs)

        def run_all(inputs: Sequence[Any]) -> Sequence[Any]:
            return run(inputs, nothing_bound, None)

        return run_all


class _Builder:
    """Compiles and plans a graph, doing without EPs that fail where that is allowed."""

    def __init__(
        self, graph: Graph, chosen: list[ChosenEp], failed: list[FailedEp]
    ) -> None:
        self.graph = graph
        self.chosen = chosen
        self.failed = failed
        self.explanation = Explanation()
        self.compiled: compiling.CompiledGraph | None = None

    def build(self) -> tuple[Plan, Memory]:
        try:
            return self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> tuple[Plan, Memory]:
        while True:
            self.explanation = Explanation()
            try:
                self.compiled = compiling.compile_graph(
                    self.graph,
                    [_candidate(ep) for ep in self.chosen],
                    self.explanation,
                    expand=_expand,
                )
                break
            except EpError as error:
                self._do_without(error)
        memory = Memory((ep.factory, ep.provider.location) for ep in self.chosen)
        plan = make_plan(self.compiled, memory, self.explanation)
        self._tell_outcomes()
        return plan, memory

    def close(self) -> None:
        """Close the partitions, then the EPs."""
        if self.compiled is not None:
            self.compiled.close()
        for ep in self.chosen:
            ep.provider.close()

    def _do_without(self, error: EpError) -> None:
        """Drop the EP that failed, if the user named another that can do its work."""
        position = [ep.name for ep in self.chosen].index(error.ep)
        ep = self.chosen[position]
        named_later = [
            other for other in self.chosen[position + 1 :] if other.request is not None
        ]
        if ep.request is None or ep.request.error_on_failure or not named_later:
            raise error
        failure = FailedEp(ep.request, error)
        warn_failed(failure, named_later[0].name)
        self.failed.append(failure)
        ep.provider.close()
        self.chosen = [other for other in self.chosen if other is not ep]

    def _tell_outcomes(self) -> None:
        explanation = self.explanation
        for failure in self.failed:
            explanation.eps.append(
                EpOutcome(failure.request.name, "", "failed", str(failure.error))
            )
        used = {node.ep for node in explanation.nodes}
        for ep in self.chosen:
            if ep.name in used or not explanation.nodes:
                outcome = EpOutcome(ep.name, ep.device, "used")
            elif ep.request is None or ep.name == CPU:
                outcome = EpOutcome(ep.name, ep.device, "unused")
            else:
                reason = _commonest_reasons(explanation, ep.name)
                outcome = EpOutcome(ep.name, ep.device, "claimed nothing", reason)
                _complain_of_idle(ep, reason)
            explanation.eps.append(outcome)


def _commonest_reasons(explanation: Explanation, ep: str) -> str:
    from collections import Counter

    counts = Counter(
        str(passed.reason) for _, passed in explanation.refusals if passed.ep == ep
    )
    return "; ".join(f"{reason} ({count}×)" for reason, count in counts.most_common(3))


def _complain_of_idle(ep: ChosenEp, reason: str) -> None:
    text = f"{ep.name} was asked for and runs no node of the model: {reason}"
    if ep.request is not None and ep.request.error_on_failure:
        raise EpError(text, ep=ep.name, stage="get_capability")
    import warnings

    warnings.warn(text, EpWarning, stacklevel=5)


def _expand(graph: Graph, nodes: Sequence[Node]) -> bool:
    if not expand_nodes(graph, nodes):
        return False
    infer_types(outermost(graph))
    return True


def _candidate(ep: ChosenEp) -> Candidate:
    return Candidate(ep.name, ep.device, ep.provider, ep.devices[0].metadata)


def _evaluator(
    chosen: Sequence[ChosenEp],
) -> Callable[[Graph, Node], Sequence[Any] | None] | None:
    """Computes one node of constants through the first EP that works on the host."""
    host = [ep.provider for ep in chosen if ep.provider.location == HOST]
    if not host:
        return None
    provider = host[-1]

    def evaluate(graph: Graph, node: Node) -> Sequence[Any] | None:
        alone = _alone(graph, node)
        # folding is an improvement, never a need: what cannot be computed now is
        # left to fail, or not, when the model runs
        with contextlib.suppress(Exception):
            if provider.get_capability(alone).refusals:
                return None
            partition = GraphPartition(alone, alone.nodes)
            compiled = provider.compile(partition)
            results = compiled.run([], [None] * len(partition.outputs), None)
            compiled.close()
            return list(results)
        return None

    return evaluate


def _alone(graph: Graph, node: Node) -> Graph:
    """A graph of *node* alone, whose inputs are constants of *graph*."""
    copy = Node(
        node.op_type,
        node.inputs,
        node.outputs,
        node.typed_attributes,
        domain=node.domain,
        name=node.name,
    )
    weights = {name: graph.weight(name) for name in node.inputs if name}
    return Graph(
        graph.name,
        inputs=(),
        outputs=[name for name in node.outputs if name],
        nodes=[copy],
        constants={name: weight for name, weight in weights.items() if weight},
        opset_imports=graph.opset_imports,
    )
