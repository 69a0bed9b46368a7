"""From a model and what was asked for to something that can be executed.

The stages in order: load, choose EPs, prepare, partition and compile, plan.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxplug.ep import HOST, DataType, MemoryLocation
from onnxplug.ep.arrays import as_texts
from onnxplug.ep.locks import new_lock
from onnxplug.errors import (
    EpError,
    InvalidModel,
    LoadCancelled,
    OptionError,
    OutOfMemory,
    UnknownOutput,
)
from onnxplug.graph import Graph, Model, Node, Weight
from onnxplug.graph.load import load_model
from onnxplug.graph.scopes import outermost
from onnxplug.guard import FAILURES, close_after, close_all
from onnxplug.options import SessionOptions
from onnxplug.prepare import Budget, Report, expand_nodes, infer_types, prepare
from onnxplug.run import compile as compiling
from onnxplug.run.execute import direct_call
from onnxplug.run.memory import Memory
from onnxplug.run.partition import Candidate, GraphPartition
from onnxplug.run.partition.report import EpOutcome, Expanded, Explanation
from onnxplug.run.plan import Plan, make_plan
from onnxplug.run.profiling import Profile, stage
from onnxplug.run.results import checks_always
from onnxplug.selection import (
    CPU,
    ChosenEp,
    FailedEp,
    Origin,
    ProviderRequest,
    do_without,
)
from onnxplug.selection.choose import WHY, close
from onnxplug.selection.warn import warn_user

if TYPE_CHECKING:
    import numpy as np

    from onnxplug.ep.files import Identity


def load(
    source: Path | memoryview,
    options: SessionOptions,
    taps: Sequence[str],
    files: Mapping[Path, Identity] | None = None,
) -> Model:
    """The model of a session, with replaced initializers and more outputs.

    Args:
        taps: names of values that become outputs after the model's own.
        files: those of the model when it was loaded before.

    Raises:
        ModelError: it cannot be loaded, or is not in these files any more.
        OptionError: an initializer that was to be replaced does not exist or differs,
            or the prepared model would be written over the model.
        UnknownOutput: there is no value of a name in *taps*.
        LoadCancelled: *options* say so.
        OutOfMemory: there is not enough memory for it.
    """
    options.check_load()
    folder = options.config["session.model_external_initializers_file_folder_path"]
    try:
        model = load_model(
            source,
            external_data_folder=Path(folder) if folder else None,
            external_files=options.external_files,
            external_arrays=options.initializers,
            mapped=options.config["session.use_memory_mapped_model"] == "1",
        )
    except MemoryError as error:
        raise OutOfMemory.of(error, "loading the model") from error
    options.check_load()
    if files is not None:
        _require_same(model, files)
    _keep_apart(model, options.optimized_model_filepath)
    for name, array in options.initializers.items():
        _replace_initializer(model.graph, name, array)
    _add_outputs(model.graph, taps)
    return model


def _require_same(model: Model, before: Mapping[Path, Identity]) -> None:
    changed = [path for path in model.files if before.get(path) != model.files[path]]
    if changed or len(before) != len(model.files):
        names = ", ".join(repr(str(path)) for path in changed) or "the model"
        raise InvalidModel(
            f"{names} is not as it was when the session was created, and one session "
            "cannot be of two models; create another session"
        )


def _keep_apart(model: Model, written: str) -> None:
    """Refuse to write over a file of the model, which may be mapped."""
    with contextlib.suppress(OSError):  # it is not there yet
        status = os.stat(written)
        for path, identity in model.files.items():
            if identity[:2] == (status.st_dev, status.st_ino):
                raise OptionError(
                    f"optimized_model_filepath is {written!r}, and the model is in "
                    f"{str(path)!r}, the same file; choose another"
                )


def _replace_initializer(graph: Graph, name: str, array: np.ndarray[Any, Any]) -> None:
    table = graph.constants if name in graph.constants else graph.defaults
    known = table.get(name)
    if known is None:
        raise OptionError(
            f"the model has no initializer {name!r} to replace; it has "
            f"{[*graph.constants, *graph.defaults][:10] or 'none'}"
        )
    try:
        is_text = DataType.from_numpy(array.dtype) is DataType.STRING
        weight = Weight.from_array(as_texts(array) if is_text else array.view())
    except TypeError as error:
        raise OptionError(
            f"initializer {name!r} is given as an array that is no tensor: {error}"
        ) from error
    if (weight.dtype, weight.shape) != (known.dtype, known.shape):
        raise OptionError(
            f"initializer {name!r} is given as {weight}; the model's is {known}.  "
            "Replacement tensor's dimensions do not match."
        )
    table[name] = weight


def _add_outputs(graph: Graph, names: Sequence[str]) -> None:
    if not names:
        return
    made = {name for node in graph.nodes for name in node.outputs if name}
    made |= {*graph.inputs, *graph.defaults, *graph.constants}
    for name in names:
        if name not in made:
            raise UnknownOutput(
                f"Invalid output name: {name!r}; the model's outputs are "
                f"{graph.outputs}, and no other value of its graph has that name"
            )
    graph.outputs += [name for name in names if name not in graph.outputs]


class BuiltModel:
    """A model compiled for its EPs, and the plans to execute it.

    Attributes:
        graph: the prepared graph.
        chosen: the EPs in use, best first.
        memory: where values can be, and how they get there.
        plan: takes inputs from the host and leaves outputs there.
        direct_call: executes that plan, when it is one partition on the host.
        explanation: every decision on the way.
    """

    def __init__(
        self,
        model: Model,
        chosen: list[ChosenEp],
        failed: list[FailedEp],
        options: SessionOptions,
        disabled: Collection[str],
        profile: Profile | None = None,
    ) -> None:
        self.graph = model.graph
        self.chosen = chosen
        self._model = model
        self._disabled = disabled
        self._reports: list[Report] = []
        self._options = options
        self._budget = Budget(check=options.check_load)
        self._failed = failed
        self._compiled: compiling.CompiledGraph | None = None
        self._plans: dict[object, Plan] = {}
        self._lock = new_lock()
        self._runs: list[None] = []
        self._closing = self._closed = False
        try:
            with stage(profile, "prepare"):
                self._prepare(options.free_dimensions)
            with stage(profile, "compile"):
                self._compile(profile)
            self.memory = Memory(
                (ep.factory, ep.provider.location) for ep in self.chosen
            )
            with stage(profile, "plan"):
                self._checks_always = checks_always(options.config)
                self.plan = make_plan(
                    self.compiled,
                    self.memory,
                    self.explanation,
                    checks_always=self._checks_always,
                )
            self.direct_call = direct_call(self.plan)
            self.explanation.refresh()
            self._tell_outcomes()
        except MemoryError as error:
            close_after(error, self.close)
            raise OutOfMemory.of(error, "making the session") from error
        except BaseException as error:
            close_after(error, self.close)
            raise
        self.explanation.passes = {
            name: [what for report in self._reports for what in report.changed(name)]
            for name in self._reports[0].counts
        }
        self.explanation.not_folded = list(self._reports[-1].left("fold"))

    @property
    def compiled(self) -> compiling.CompiledGraph:
        """The compiled graph."""
        assert self._compiled is not None
        return self._compiled

    def plan_for(
        self,
        inputs_at: Mapping[str, MemoryLocation],
        outputs_at: Mapping[str, MemoryLocation],
    ) -> Plan:
        """A plan that takes inputs, and leaves outputs, where they are wanted."""
        inputs_at = {name: at for name, at in inputs_at.items() if at != HOST}
        outputs_at = {name: at for name, at in outputs_at.items() if at != HOST}
        if not inputs_at and not outputs_at:
            return self.plan
        key = (frozenset(inputs_at.items()), frozenset(outputs_at.items()))
        with self._lock:
            if key not in self._plans:
                self._plans[key] = make_plan(
                    self.compiled,
                    self.memory,
                    Explanation(),
                    inputs_at=inputs_at,
                    outputs_at=outputs_at,
                    checks_always=self._checks_always,
                )
            return self._plans[key]

    def acquire(self) -> bool:
        """Keep everything open for a run, until :meth:`release`; false when closed."""
        # appending and popping are atomic, and cheaper than a lock; whoever comes
        # second of a run and of close() sees what the other has done
        self._runs.append(None)
        if not self._closing:
            return True
        self.release()
        return False

    def release(self) -> None:
        """End what :meth:`acquire` began."""
        self._runs.pop()
        if self._closing and not self._runs:
            self._close_late()

    def while_open(
        self, compute: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> Callable[[Sequence[Any]], Sequence[Any] | None]:
        """*compute* between :meth:`acquire` and :meth:`release`; ``None`` when closed.

        They are not called but written out, for the runs that take no longer.
        """
        runs = self._runs
        begin, end = runs.append, runs.pop

        def compute_while_open(inputs: Sequence[Any]) -> Sequence[Any] | None:
            try:
                begin(None)  # in here, as an interrupt may come right after it
                return None if self._closing else compute(inputs)
            finally:
                end()
                if self._closing and not runs:
                    self._close_late()

        return compute_while_open

    def close(self) -> None:
        """Close the partitions, then the EPs, once no run uses them.

        Raises:
            EpError: closing one of them failed; all are closed nonetheless.
        """
        self._closing = True
        if not self._runs:
            self._close_all()

    def _close_late(self) -> None:
        """As :meth:`close`, at the end of a run, which is not to fail for that."""
        try:
            self._close_all()
        except EpError as error:
            import logging

            logging.getLogger("onnxplug.session").warning("%s", error)

    def _close_all(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        partitions = () if self._compiled is None else self._compiled.closers()
        close_all([*partitions, *((ep.name, ep.provider.close) for ep in self.chosen)])

    def _prepare(self, free_dimensions: Mapping[str, int] | None = None) -> None:
        report = prepare(
            self._model,
            evaluate=_evaluator(self.chosen),
            disabled=self._disabled,
            free_dimensions=free_dimensions,
            budget=self._budget,
        )
        self._reports.append(report)

    def _expand(self, graph: Graph, nodes: Sequence[Node]) -> bool:
        """Replace *nodes* by function bodies, and prepare the graph with these."""
        if not expand_nodes(graph, nodes):
            return False
        if graph.parent is None:
            self._prepare()
        else:  # what is around a body is compiled already
            infer_types(outermost(graph))
        return True

    def _compile(self, profile: Profile | None) -> None:
        """Compile, doing without EPs that fail where that is allowed."""
        expanded: list[Expanded] = []
        while self._compiled is None:
            self.explanation = Explanation()
            self.explanation.expanded = expanded  # the graph has been rewritten so
            try:
                self._compiled = compiling.compile_graph(
                    self.graph,
                    [_candidate(ep) for ep in self.chosen],
                    self.explanation,
                    expand=self._expand,
                    profile=profile,
                    options=self._options,
                )
            except LoadCancelled:
                self._options.check_load()  # which says how to go on
                raise
            except EpError as error:
                self._options.check_load()
                self._do_without(error)

    def _do_without(self, error: EpError) -> None:
        """Drop the EP that failed, if the user named another that can do its work."""
        ep = next(ep for ep in self.chosen if ep.name == error.ep)
        if ep.request is None:  # the implied CPU EP, for which nobody stands in
            raise error
        failure = FailedEp(ep.request, error, ep.rank)
        self.chosen.remove(ep)
        close([ep])
        do_without(failure, self.chosen)
        self._failed.append(failure)

    def _tell_outcomes(self) -> None:
        explanation = self.explanation
        for failure in self._failed:
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
                claimed = ep.name in [back.ep for back in explanation.given_back]
                state = "given back" if claimed else "claimed nothing"
                outcome = EpOutcome(ep.name, ep.device, state, reason)
                _complain_of_idle(ep, ep.request, reason)
            explanation.eps.append(outcome)


def write_model(graph: Graph, path: Path) -> None:
    """Write a prepared graph as a model of its own.

    Raises:
        InvalidModel: it is beyond protobuf's limit of 2 GiB.
    """
    from onnxplug.graph.export import export_graph

    try:
        data = export_graph(graph).model.SerializeToString()
    except ValueError as error:
        raise InvalidModel(
            f"the prepared model cannot be written to {str(path)!r}: {error}"
        ) from error
    path.write_bytes(data)


def close_model(built: BuiltModel, profile: Profile | None) -> None:
    """Close what a session has, and write its trace.

    Raises:
        EpError: closing an EP or a partition failed.
    """
    try:
        built.close()
    finally:
        if profile is not None:
            # there is nobody to be told that a file could not be written
            with contextlib.suppress(OSError):
                profile.end()


def call_each(closers: Iterable[Callable[[], object]]) -> None:
    """Close sessions and models, each whatever those before it raise.

    Raises:
        EpError: closing an EP or a partition failed.
    """
    with contextlib.ExitStack() as stack:
        for close in reversed(list(closers)):
            stack.callback(close)


def log_placement(options: SessionOptions, explanation: Explanation) -> None:
    """Log where nodes run, at the level that *options* ask for."""
    severity = options.log_severity_level
    if severity < 0 and "logging" not in sys.modules:
        return  # nobody can be listening
    import logging

    name = "onnxplug.session" + (f".{options.logid}" if options.logid else "")
    if severity >= 0:
        from onnxplug.process import listen

        logger = listen(name, min(severity, 4))
    else:
        logger = logging.getLogger(name)
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", str(explanation).splitlines()[0])
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("placement:\n%s", explanation)


def _commonest_reasons(explanation: Explanation, ep: str) -> str:
    counts = Counter(
        str(passed.reason) for _, passed in explanation.refusals if passed.ep == ep
    )
    return "; ".join(f"{reason} ({count}×)" for reason, count in counts.most_common(3))


def _complain_of_idle(ep: ChosenEp, request: ProviderRequest, reason: str) -> None:
    text = f"{ep.name} {WHY[request.origin]} and runs no node of the model: {reason}"
    if request.error_on_failure:
        raise EpError(text, ep=ep.name, stage="get_capability")
    if request.origin is Origin.LIST:
        warn_user(text)


def _candidate(ep: ChosenEp) -> Candidate:
    return Candidate(ep.name, ep.device, ep.provider, ep.devices[0].metadata)


def _evaluator(
    chosen: Sequence[ChosenEp],
) -> Callable[[Graph, Node], Sequence[Any] | None] | None:
    """Computes one node of constants through the last EP that works on the host."""
    host = [ep.provider for ep in chosen if ep.provider.location == HOST]
    if not host:
        return None
    provider = host[-1]

    def evaluate(graph: Graph, node: Node) -> Sequence[Any] | None:
        from onnxplug.prepare.fold import NotFolded

        alone = _alone(graph, node)
        try:
            if provider.get_capability(alone).refusals:
                return None
            partition = GraphPartition(alone, alone.nodes)
            with contextlib.closing(provider.compile(partition)) as compiled:
                nothing_bound = [None] * len(partition.outputs)
                return list(compiled.run([], nothing_bound, None))
        # folding is an improvement, never a need: what cannot be computed now is left
        # to fail, or not, when the model runs
        except FAILURES as error:
            raise NotFolded(f"{type(error).__name__}: {error}") from error

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
