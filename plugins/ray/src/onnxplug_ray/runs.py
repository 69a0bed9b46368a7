"""Which rows are run together, and which of them is at fault if a run fails.

Rows are joined along the model's first dimension where it is proven that each position
is computed by itself (:mod:`onnxplug_serve.batching`), and else run one by one.  Rows
of several shapes are padded where the same is proven of the dimensions in which they
differ, and else run by shape.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from onnxplug.errors import (
    EpError,
    InputError,
    NodeError,
    OnnxplugError,
    OutOfMemory,
)
from onnxplug.specialise.proof import IndependentPositions, Mixed
from onnxplug_ray.columns import ColumnInput, FedColumn
from onnxplug_serve.batching import BatchPlan, find_plan

if TYPE_CHECKING:
    from onnxplug import InferenceSession

_TRIED: Final = 8
"""Rows on which an EP may fail before another one could be run; then it is the EP's
fault."""

_WASTE: Final = 2
"""Padded rows have at most so many times the positions that they had."""


@dataclass(frozen=True, slots=True)
class Part:
    """Results of some rows.

    Attributes:
        rows: which, as an array of their numbers.
        results: by output: an array of all these rows, or an array for each.
    """

    rows: Any
    results: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a batch.

    Attributes:
        faults: rows that the model cannot be run on, and why.
        together: why rows failed together that can be run apart.
        of_eps: what EPs failed with, which need not be a row's fault.
    """

    parts: list[Part] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    together: list[str] = field(default_factory=list)
    of_eps: list[EpError] = field(default_factory=list)

    @property
    def may_be_of_no_row(self) -> bool:
        """Whether an EP failed, and no row could be run."""
        return bool(self.of_eps) and not self.parts

    def blame(self, row: int, error: OnnxplugError) -> None:
        """Note that *row* cannot be run.

        Raises:
            OutOfMemory, EpError: that is no fault of a row.
        """
        if isinstance(error, OutOfMemory):
            raise error
        self.faults[row] = str(error)
        if isinstance(error, EpError):
            self.of_eps.append(error)
            if self.may_be_of_no_row and len(self.of_eps) > _TRIED:
                raise error


class _Rows(Protocol):
    """Rows of a batch as a run takes and gives them."""

    def feeds(self, rows: Any) -> Mapping[str, Any]:
        """What is fed for *rows*."""

    def results(self, rows: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        """The results of *rows*, by output, as of :class:`Part`."""


class RowRuns:
    """Runs rows of batches.

    Args:
        session: of the model.
        inputs: those that are fed from columns.
        constants: what is fed to the others.
        outputs: the names of those that are wanted.
        positions: tells what is proven of the model.

    Attributes:
        why_alone: why rows are run one by one; empty if they are joined.
    """

    def __init__(
        self,
        session: InferenceSession,
        inputs: Sequence[ColumnInput],
        constants: Mapping[str, Any],
        outputs: Sequence[str],
        positions: IndependentPositions,
    ) -> None:
        self._session = session
        self._inputs = {each.name: each for each in inputs}
        self._constants = dict(constants)
        self._outputs = list(outputs)
        self._positions = positions
        self._plan, self.why_alone = self._find_plan()
        self._axes = self._find_axes()
        self._padded: dict[str, dict[str, int]] | None = None
        self._of_rows = self._outputs_of_rows()

    def _find_plan(self) -> tuple[BatchPlan | None, str]:
        plan, why = find_plan(self._positions, self._session.get_inputs())
        if plan is not None and (missing := plan.inputs & self._constants.keys()):
            name = sorted(missing)[0]
            return None, f"{name!r} is constant, and has {plan.dimension!r}"
        return plan, why

    def _find_axes(self) -> dict[str, dict[str, int]]:
        """By dimension with a name, but for the one that rows are joined along: the
        axis in each input from columns."""
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for each in self._session.get_inputs():
            for axis, size in enumerate(each.shape):
                if isinstance(size, str) and each.name in self._inputs and axis:
                    found[size][each.name] = axis
        return dict(found)

    def _outputs_of_rows(self) -> frozenset[str]:
        """The outputs whose first dimension is that of rows."""
        if self._plan is not None:
            return self._plan.outputs
        first = {
            each.shape[0]
            for each in self._session.get_inputs()
            if each.shape and each.name in self._inputs
        }
        return frozenset(
            each.name
            for each in self._session.get_outputs()
            if each.shape and each.shape[0] in first and each.shape[0] is not None
        )

    def run(
        self,
        fed: Mapping[str, FedColumn],
        count: int,
        faults: Mapping[int, str],
        *,
        all_faults: bool,
    ) -> Found:
        """Run *count* rows.

        Args:
            fed: the column of each input.
            faults: rows that cannot be fed.
            all_faults: find all rows at fault, and not only the first.

        Raises:
            OnnxplugError: what failed is no row's fault.
        """
        found = Found(faults=dict(faults))
        if found.faults and not all_faults:
            return found
        if self._is_even(fed) and not found.faults:
            everything = np.arange(count)
            groups = [everything] if self._plan else np.split(everything, count)
            rows: _Rows = _EvenRows(fed, self._of_rows)
        else:
            feeds = {
                n: self._feed(fed, n) for n in range(count) if n not in found.faults
            }
            are_whole = self._are_whole(fed)
            rows = _UnevenRows(
                feeds,
                frozenset() if are_whole else self._of_rows,
                self._plan,
                self._paddable(),
            )
            together = self._groups(feeds) if self._plan and not are_whole else ()
            groups = [np.array(g) for g in together or ([row] for row in feeds)]
        for group in groups:
            at_fault = self._attempt(group, rows, found, all_faults)
            if at_fault and not all_faults and not found.may_be_of_no_row:
                break
        if found.may_be_of_no_row:
            raise found.of_eps[0]
        return found

    def _is_even(self, fed: Mapping[str, FedColumn]) -> bool:
        """Whether columns are as the model takes them: one array each, of positions."""
        names = fed.keys() if self._plan is None else self._plan.inputs & fed.keys()
        return names == fed.keys() and all(
            each.is_even and not each.whole for each in fed.values()
        )

    def _are_whole(self, fed: Mapping[str, FedColumn]) -> bool:
        """Whether rows are whole inputs, and results whole outputs."""
        if self._plan is None:
            return all(each.whole for each in fed.values())
        return any(
            each.whole for name, each in fed.items() if name in self._plan.inputs
        )

    def _feed(self, fed: Mapping[str, FedColumn], row: int) -> dict[str, Any]:
        """What the model is fed for one row alone."""
        plan = self._plan
        return {
            name: each.rows[row]
            if each.whole or (plan is not None and name not in plan.inputs)
            else each.rows[row][np.newaxis]
            for name, each in fed.items()
        }

    # which rows go together

    def _groups(self, feeds: Mapping[int, Mapping[str, Any]]) -> Iterator[list[int]]:
        """Rows that can be joined."""
        assert self._plan is not None
        alike: defaultdict[Hashable, list[int]] = defaultdict(list)
        sizes = {}
        for row, feed in feeds.items():
            key = self._plan.key(feed)
            if key is None:  # large inputs that rows may or may not share
                yield [row]
                continue
            sizes[row] = self._sizes(feed)
            alike[self._without_padded(feed, key, sizes[row])].append(row)
        for rows in alike.values():
            yield from _of_similar_sizes(rows, sizes)

    def _paddable(self) -> Mapping[str, Mapping[str, int]]:
        """The axis of each dimension that may be padded, by input and output."""
        if self._padded is None:
            self._padded = {}
            for dimension in self._axes:
                try:
                    axes = self._positions.axes(dimension)
                except Mixed:
                    continue  # rows of other sizes are not run together
                if not axes.keys() & self._constants.keys():
                    self._padded[dimension] = axes
        return self._padded

    def _sizes(self, feed: Mapping[str, Any]) -> dict[str, int]:
        """The sizes of *feed* in dimensions that may be padded, and are no more than
        one size, and not none."""
        found = {}
        for dimension, axes in self._paddable().items():
            sizes = {
                feed[name].shape[axis] for name, axis in axes.items() if name in feed
            }
            if len(sizes) == 1 and 0 not in sizes:
                found[dimension] = sizes.pop()
        return found

    def _without_padded(
        self, feed: Mapping[str, Any], key: Hashable, sizes: Mapping[str, int]
    ) -> Hashable:
        """*key* of rows that are alike once they are padded."""
        if not sizes or self._plan is None:
            return key
        parts: list[Hashable] = [tuple(sorted(sizes))]
        for name in sorted(feed):
            shape = list(feed[name].shape)
            for dimension in sizes:
                axis = self._paddable()[dimension].get(name)
                if axis is not None:
                    shape[axis] = -1
            same = b"" if name in self._plan.inputs else feed[name].tobytes()
            parts.append((name, feed[name].dtype.str, tuple(shape), same))
        return tuple(parts)

    # how they are run

    def _attempt(self, group: Any, rows: _Rows, found: Found, all_faults: bool) -> bool:
        """Run the rows of *group* together, or, if that fails, those that can be.

        Returns:
            Whether a row was at fault.
        """
        try:
            values = self._run(rows.feeds(group))
            found.parts.append(Part(group, rows.results(group, values)))
        except (InputError, NodeError, OutOfMemory, EpError) as error:
            if len(group) == 1:
                found.blame(int(group[0]), error)
                return True
            middle = len(group) // 2
            at_fault = self._attempt(group[:middle], rows, found, all_faults)
            if at_fault and not all_faults and not found.may_be_of_no_row:
                return True
            at_fault |= self._attempt(group[middle:], rows, found, all_faults)
            if not at_fault:
                found.together.append(str(error))
            return at_fault
        return False

    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        values = self._session.run(self._outputs, {**feeds, **self._constants})
        return dict(zip(self._outputs, values, strict=True))


class _EvenRows:
    """Rows that are positions of one array for each input."""

    def __init__(self, fed: Mapping[str, FedColumn], of_rows: frozenset[str]) -> None:
        self._fed = fed
        self._of_rows = of_rows

    def feeds(self, rows: Any) -> Mapping[str, Any]:
        first, end = int(rows[0]), int(rows[-1]) + 1
        return {name: each.rows[first:end] for name, each in self._fed.items()}

    def results(self, rows: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _checked(name, value, len(rows))
            if name in self._of_rows
            else np.repeat(np.asarray(value)[np.newaxis], len(rows), axis=0)
            for name, value in values.items()
        }


class _UnevenRows:
    """Rows of which each has arrays of its own.

    Args:
        each: what is fed for each row alone.
        plan: how they are joined; ``None``: there is one in a run.
        paddable: dimension to the axis that it is in each input and output.
    """

    def __init__(
        self,
        each: Mapping[int, Mapping[str, Any]],
        of_rows: frozenset[str],
        plan: BatchPlan | None,
        paddable: Mapping[str, Mapping[str, int]],
    ) -> None:
        self.each = each
        self._of_rows = of_rows
        self._plan = plan
        self._paddable = paddable

    def feeds(self, rows: Any) -> Mapping[str, Any]:
        feeds = [self.each[int(row)] for row in rows]
        if len(feeds) == 1 or self._plan is None:
            return feeds[0]
        largest = {
            name: np.max([feed[name].shape for feed in feeds], axis=0)
            for name in self._plan.inputs & feeds[0].keys()
        }
        return self._plan.joined(
            [
                {
                    name: _padded(array, largest[name]) if name in largest else array
                    for name, array in feed.items()
                }
                for feed in feeds
            ]
        )

    def results(self, rows: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        feeds = [self.each[int(row)] for row in rows]
        found: dict[str, list[Any]] = {}
        for name, value in values.items():
            value = np.asarray(value)
            if name not in self._of_rows:
                found[name] = [value] * len(rows)
                continue
            _checked(name, value, len(rows))
            found[name] = [
                self._cut(name, value[at], feed) for at, feed in enumerate(feeds)
            ]
        return dict(found)

    def _cut(self, name: str, value: Any, feed: Mapping[str, Any]) -> Any:
        """The positions of a row's result that its feed has."""
        for axes in self._paddable.values():
            if name not in axes:
                continue
            sizes = {feed[i].shape[axis] for i, axis in axes.items() if i in feed}
            if len(sizes) == 1:
                before = (slice(None),) * (axes[name] - 1)
                value = value[(*before, slice(sizes.pop()))]
        return value


def _checked(name: str, value: Any, count: int) -> Any:
    value = np.asarray(value)
    if not value.ndim or len(value) != count:
        raise InputError(
            f"output {name!r} has the shape {list(value.shape)} for {count} rows"
        )
    return value


def _padded(array: Any, shape: Any) -> Any:
    """*array* with its last positions repeated, as values that may be there."""
    if array.shape == tuple(shape):
        return array
    more = [(0, int(to) - size) for to, size in zip(shape, array.shape, strict=True)]
    return np.pad(array, more, mode="edge")


def _of_similar_sizes(
    rows: Sequence[int], sizes: Mapping[int, Mapping[str, int]]
) -> Iterator[list[int]]:
    """*rows* in groups that padding does not make much larger."""
    volume = {row: math.prod(sizes[row].values()) for row in rows}
    group: list[int] = []
    most: dict[str, int] = {}
    had = 0
    for row in sorted(rows, key=lambda row: (tuple(sizes[row].values()), row)):
        now = {
            dimension: max(most.get(dimension, 0), size)
            for dimension, size in sizes[row].items()
        }
        padded = (len(group) + 1) * math.prod(now.values())
        if group and padded > _WASTE * (had + volume[row]):
            yield sorted(group)
            group, had, now = [], 0, dict(sizes[row])
        group.append(row)
        had += volume[row]
        most = now
    if group:
        yield sorted(group)
