"""A model for Ray Data: an actor's session, and batches of columns that it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug import SessionOptions
from onnxplug.errors import (
    InvalidArgument,
    OnnxplugError,
    OnnxplugWarning,
    OptionError,
)
from onnxplug.specialise.proof import IndependentPositions
from onnxplug.warn import warn_user
from onnxplug_ray.columns import (
    FedColumn,
    column_inputs,
    dtype_of,
    fed_column,
    require_columns,
)
from onnxplug_ray.errors import ColumnError, RowError
from onnxplug_ray.node import this_node
from onnxplug_ray.opening import eps_in_use, open_model
from onnxplug_ray.runs import Found, RowRuns

if TYPE_CHECKING:
    from onnxplug import NodeArg
    from onnxplug_ray.sharing import SharedModel

ON_ERROR: Final = ("raise", "record")

_SHOWN: Final = 40
"""Characters of a value that tells a row from others."""


class Predictor:
    """Runs a model on batches of columns, for ``Dataset.map_batches``.

    Each actor has one session.  It gets a batch as a dict of numpy arrays, and returns
    one: the columns that it was given, but for those that the model was fed, and the
    model's outputs.  A row of a column is a position of the first dimension of an
    input.  Rows are run together where it is proven that each keeps its result, and
    else one by one, with a warning; rows of several shapes are padded where that is
    proven, and else run by shape.

    Args:
        model: a path that is there on all nodes, bytes, or what :func:`share` gave.
        providers, policy: as of ``onnxplug.InferenceSession``, found on each node.
        options: makes the options of the session.  Where they do not say how many
            threads it uses, it has as many as Ray gives the actor CPUs.
        inputs: input to column, where these are not called alike.
        outputs: which outputs there will be columns of; as a mapping, output to
            column.  All by default.
        constants: what is fed to inputs that no column is for.
        keep: the columns that are in the results, too; by default all that the model
            is not fed.
        on_error: ``"raise"`` raises :class:`RowError` for the first row at fault of a
            batch; ``"record"`` says in the column *error_column* what is wrong with a
            row (empty if nothing is), whose outputs are then NaN for floats, 0 for
            other numbers, and empty strings.
        row_id: the columns that an error tells a row by; by default all that are kept
            and of single values.
        eps_column: the column that tells what computed a row, such as
            ``openvino, cpu``; ``None``: no column does.

    Raises:
        EpNotOnNode: this node has not the EPs that were asked for.
        ColumnError: columns cannot feed some input, or hold some output.
        OnnxplugError: a session cannot be made.
    """

    def __init__(
        self,
        model: SharedModel | str | os.PathLike[str] | bytes,
        *,
        providers: Any = None,
        policy: Any = None,
        options: Callable[[], SessionOptions] = SessionOptions,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | Sequence[str] | None = None,
        constants: Mapping[str, Any] | None = None,
        keep: Sequence[str] | None = None,
        on_error: str = "raise",
        row_id: Sequence[str] | None = None,
        eps_column: str | None = "eps",
        error_column: str = "error",
    ) -> None:
        if on_error not in ON_ERROR:
            raise OptionError(
                f"on_error is {on_error!r}; expected one of "
                + ", ".join(map(repr, ON_ERROR))
            )
        self.node = this_node()
        self._keep = None if keep is None else list(keep)
        self._row_id = row_id
        self._records = on_error == "record"
        self._eps_column = eps_column
        self._error_column = error_column
        self._batches = 0
        self._opened = open_model(model, providers, policy, options)
        self.session, source = self._opened.session, self._opened.source
        try:
            self.eps = eps_in_use(self.session)
            given = dict(constants or {})
            self._inputs = column_inputs(
                self.session.get_inputs(), dict(inputs or {}), given
            )
            self._outputs = _output_columns(self.session.get_outputs(), outputs)
            self._runs = RowRuns(
                self.session,
                self._inputs,
                given,
                list(self._outputs),
                IndependentPositions(source),
            )
        except BaseException:
            self._opened.close()
            raise
        if self._runs.why_alone:
            warn_user(
                f"rows are run one by one, as it is not proven that a row keeps its "
                f"result among others: {self._runs.why_alone}",
                OnnxplugWarning,
            )

    @property
    def why_alone(self) -> str:
        """Why rows are run one by one; empty if they are run together."""
        return self._runs.why_alone

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model on *batch*.

        Raises:
            ColumnError: a column is missing, or outputs would take the place of some.
            RowError: a row is at fault, unless that is to be recorded.
            OnnxplugError: the run failed, by no row's fault.
        """
        if not isinstance(batch, Mapping):
            raise ColumnError(
                f"the batch is a {type(batch).__name__}; expected a dict of numpy "
                'arrays: leave out batch_format, or say batch_format="numpy"'
            )
        require_columns(self._inputs, batch)
        kept = self._kept(batch)
        count = len(batch[self._inputs[0].column]) if self._inputs else _length(batch)
        faults: dict[int, str] = {}
        fed = self._fed(batch, faults)
        try:
            found = self._run(fed, count, faults) if count else Found()
        except OnnxplugError as error:
            error.add_note(f"on node {self.node}, with {self.eps}")
            raise
        if found.together:
            warn_user(
                f"rows of a batch failed together on node {self.node} with {self.eps}, "
                f"and were run apart: {found.together[0]}",
                OnnxplugWarning,
            )
        if found.faults and not self._records:
            raise self._row_error(batch, kept, found)
        self._batches += 1
        return self._results(batch, kept, found, count)

    def _fed(
        self, batch: Mapping[str, Any], faults: dict[int, str]
    ) -> dict[str, FedColumn]:
        return {
            each.name: fed_column(each, batch[each.column], faults)
            for each in self._inputs
        }

    def _run(
        self, fed: Mapping[str, FedColumn], count: int, faults: Mapping[int, str]
    ) -> Found:
        # the first batch has plans made, as the session had code
        with nullcontext() if self._batches else self._opened.once("batch"):
            return self._runs.run(fed, count, faults, all_faults=self._records)

    def _kept(self, batch: Mapping[str, Any]) -> list[str]:
        """The columns that go on.

        Raises:
            ColumnError: one is not there, or called as what is added.
        """
        fed = {each.column for each in self._inputs}
        if self._keep is None:
            kept = [name for name in batch if name not in fed]
        else:
            kept = self._keep
            for name in kept:
                if name not in batch:
                    raise ColumnError(
                        f"there is no column {name!r} to keep; the dataset has "
                        + ", ".join(map(repr, batch))
                    )
        for name in self._row_id or ():
            if name not in batch:
                raise ColumnError(
                    f"there is no column {name!r} to tell rows by (row_id); the "
                    f"dataset has {', '.join(map(repr, batch))}"
                )
        added = {*self._outputs.values()}
        if self._eps_column is not None:
            added.add(self._eps_column)
        if self._records:
            added.add(self._error_column)
        for name in kept:
            if name in added:
                raise ColumnError(
                    f"column {name!r} would be replaced by what the model gives; call "
                    "that otherwise (outputs={OUTPUT: COLUMN}, eps_column, "
                    "error_column), or leave the column out of keep"
                )
        return kept

    def _row_error(
        self, batch: Mapping[str, Any], kept: Sequence[str], found: Found
    ) -> RowError:
        row, reason = min(found.faults.items())
        names = list(self._row_id if self._row_id is not None else kept)
        ids = ", ".join(
            f"{name}={_shown(batch[name][row])}"
            for name in names
            if np.ndim(batch[name][row]) == 0
        )
        where = f"row {row} of batch {self._batches} of this actor"
        return RowError(
            f"{where}{f' ({ids})' if ids else ''}, on node {self.node} with "
            f'{self.eps}: {reason}; on_error="record" notes such rows and goes on',
            row=row,
            batch=self._batches,
            ids=ids,
            eps=self.eps,
            node=self.node,
            reason=reason,
        )

    def _results(
        self,
        batch: Mapping[str, Any],
        kept: Sequence[str],
        found: Found,
        count: int,
    ) -> dict[str, Any]:
        results: dict[str, Any] = {name: batch[name] for name in kept}
        types = {each.name: each for each in self.session.get_outputs()}
        for name, column in self._outputs.items():
            results[column] = _as_column(types[name], found, count)
        if self._eps_column is not None:
            results[self._eps_column] = np.full(count, self.eps)
        if self._records:
            errors = np.full(count, "", object)
            for row, why in found.faults.items():
                errors[row] = why
            results[self._error_column] = errors.astype(str)
        return results

    def close(self) -> None:
        """Release what the session holds."""
        self._opened.close()


def _output_columns(
    outputs: Sequence[NodeArg], wanted: Mapping[str, str] | Sequence[str] | None
) -> dict[str, str]:
    """Output to column.

    Raises:
        ColumnError: there is no such output, or it is no tensor.
    """
    known = {each.name: each for each in outputs}
    if wanted is None:
        wanted = list(known)
    elif isinstance(wanted, str):
        wanted = [wanted]
    columns = (
        dict(wanted) if isinstance(wanted, Mapping) else {name: name for name in wanted}
    )
    for name in columns:
        if name not in known:
            raise ColumnError(
                f"the model has no output {name!r}; it has "
                + ", ".join(map(repr, known))
            )
        if dtype_of(known[name]) is None:
            raise ColumnError(
                f"output {name!r} is {known[name].type}, which no column can hold; "
                "name others: outputs=[…]"
            )
    if len({*columns.values()}) < len(columns):
        raise ColumnError(f"two outputs would be one column: {columns}")
    return columns


def _as_column(output: NodeArg, found: Found, count: int) -> Any:
    """An output's results in the order of rows, with fillings for rows at fault."""
    name = output.name
    if len(found.parts) == 1 and not found.faults:
        results = found.parts[0].results[name]
        if isinstance(results, np.ndarray):
            return _plain(results)
    rows: list[Any] = [None] * count
    for part in found.parts:
        for row, result in zip(part.rows.tolist(), part.results[name], strict=True):
            rows[row] = result
    filling = _filling(output, rows)
    rows = [filling if row is None else _plain(np.asarray(row)) for row in rows]
    shapes = {row.shape for row in rows}
    if len(shapes) == 1:
        return np.stack(rows)
    if not rows:
        return np.empty((0, *filling.shape), filling.dtype)
    column = np.empty(count, object)
    column[:] = rows
    return column


def _filling(output: NodeArg, rows: Sequence[Any]) -> Any:
    """What stands for a row at fault: of the shape of others, or as the model says."""
    dtype = dtype_of(output)
    assert dtype is not None
    some = next((np.asarray(row) for row in rows if row is not None), None)
    shape = (
        some.shape
        if some is not None
        else tuple(s if isinstance(s, int) else 0 for s in output.shape[1:])
    )
    if dtype.kind == "O":
        return np.full(shape, "", object)
    plain = _plain(np.zeros(shape, dtype))
    return np.full(shape, np.nan, plain.dtype) if plain.dtype.kind == "f" else plain


def _plain(array: Any) -> Any:
    """*array* of a type that Arrow has: float32 in place of other floats, which it
    holds exactly."""
    if array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8")):
        return array.astype(np.float32)
    if array.dtype == object:
        return array.astype(str)
    return array


def _length(batch: Mapping[str, Any]) -> int:
    for column in batch.values():
        return len(column)
    raise InvalidArgument("the batch has no column, and the model takes none")


def _shown(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
