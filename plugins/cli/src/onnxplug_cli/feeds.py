"""What to feed a session: arrays from files, from pictures, or at random."""

from __future__ import annotations

import argparse
import functools
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxplug.escape import escape
from onnxplug_cli.failure import CommandFailed, UsageError
from onnxplug_cli.image import SUFFIXES, Layout, Scaling, read_picture
from onnxplug_cli.text import (
    say,
    shape_text,
)
from onnxplug_cli.values import assignment, count, size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onnxplug import InferenceSession, NodeArg
    from onnxplug_cli.ranges import Range

RANDOM: Final = "random"

_DAMAGED: Final = (
    ValueError,
    EOFError,
    # of the header, which numpy reads as Python
    TypeError,
    SyntaxError,
    tokenize.TokenError,
    # of sizes and lengths that are not so
    OverflowError,
    MemoryError,
    # of what is packed in a way that is not known, or not well
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy and zipfile raise of damaged files."""


def add_feed_arguments(
    parser: argparse.ArgumentParser, default: str | None = None
) -> None:
    """Declare what to feed; *default* is for inputs of which nothing is said."""
    said = f" (default: {default})" if default else ""
    parser.add_argument(
        "feed",
        metavar="FEED",
        nargs="?",
        default=default,
        help=f"a picture, .npy, .npz, or '{RANDOM}', for inputs not named by "
        f"--input{said}",
    )
    parser.add_argument(
        "-i",
        "--input",
        metavar="NAME=FEED",
        type=assignment,
        action="append",
        default=[],
        help="what to feed one input; may be repeated",
    )
    random = parser.add_argument_group("numbers at random")
    random.add_argument(
        "--dim",
        metavar="NAME=SIZE",
        type=size,
        action="append",
        default=[],
        help="the size of a symbolic dimension (default: 1)",
    )
    random.add_argument(
        "--seed", metavar="N", type=count, default=0, help="the seed (default: 0)"
    )


def read_feeds(
    session: InferenceSession, scaling: Scaling, arguments: argparse.Namespace
) -> dict[str, Feed]:
    """A value for every input of *session*, as the command line says.

    Raises:
        UsageError: an input has no value, or what is named fits no input, or is no
            free dimension.
        CommandFailed: a file cannot be read.
    """
    _check_sizes(session.get_inputs(), arguments.dim)

    def ranges() -> Mapping[str, Range]:
        return _ranges(arguments.model, dict(arguments.dim))

    reader = FeedReader(session.get_inputs(), scaling, arguments, ranges)
    return reader.read(arguments.input, arguments.feed)


def feed_data(feeds: Mapping[str, Feed]) -> list[dict[str, Any]]:
    """What was fed, for JSON."""
    return [
        {
            "name": name,
            "type": feed.array.dtype.name,
            "shape": list(feed.array.shape),
            "source": feed.source,
        }
        for name, feed in feeds.items()
    ]


def print_feeds(feeds: Mapping[str, Feed]) -> None:
    """What was fed, for people."""
    for name, feed in feeds.items():
        array = feed.array
        shape = shape_text(array.shape)
        say(f"{escape(feed.source)} → {escape(name)}: {array.dtype}{shape}")


@dataclass(frozen=True, slots=True)
class Feed:
    """The value of one input.

    Attributes:
        array: the value.
        source: where it is from, for people.
        is_picture: it was read from a picture.
    """

    array: NDArray[Any]
    source: str
    is_picture: bool = False


class FeedReader:
    """Reads what the command line names, as each input wants it.

    Args:
        ranges: tells which integers inputs can take; asked at most once, and only if
            there are integers to draw.
    """

    def __init__(
        self,
        inputs: Sequence[NodeArg],
        scaling: Scaling,
        arguments: argparse.Namespace,
        ranges: Callable[[], Mapping[str, Range]] = dict,
    ) -> None:
        self._inputs = {item.name: item for item in inputs}
        self._ranges = functools.cache(ranges)
        self._scaling = scaling
        self._sizes: dict[str, int] = dict(arguments.dim)
        self._seed: int = arguments.seed

    def read(
        self, named: Sequence[tuple[str, str]], rest: str | None
    ) -> dict[str, Feed]:
        """A value for every input: *named* (input, what) first, *rest* for the others.

        Raises:
            UsageError: an input has no value, or what is named fits no input.
            CommandFailed: a file cannot be read.
        """
        feeds: dict[str, Feed] = {}
        for name, what in named:
            if name not in self._inputs:
                raise UsageError(
                    f"the model has no input {name!r}; it has {self._list_inputs()}"
                )
            feeds[name] = self._read_one(self._inputs[name], what)
        if rest is not None:
            feeds |= self._read_rest(rest, feeds)
        for name, item in self._inputs.items():
            if name not in feeds:
                raise UsageError(
                    f"there is no value for input {name!r}, {_describe(item)}; "
                    f"give a file or numbers at random: --input {escape(name)}=FILE, "
                    f"--input {escape(name)}={RANDOM}"
                )
        # in the model's order, whatever that of the command line was
        return {name: feeds[name] for name in self._inputs}

    def _read_rest(self, what: str, feeds: Mapping[str, Feed]) -> dict[str, Feed]:
        open_inputs = [item for name, item in self._inputs.items() if name not in feeds]
        if what == RANDOM:
            return {item.name: self._read_one(item, what) for item in open_inputs}
        path = Path(what)
        if path.suffix.lower() == ".npz":
            arrays = _read_npz(path)
            return {
                item.name: Feed(_as_type(arrays[item.name], item), path.name)
                for item in open_inputs
                if item.name in arrays
            }
        if _is_picture(path):
            open_inputs = [item for item in open_inputs if len(item.shape) == 4]
        if len(open_inputs) != 1:
            raise UsageError(
                f"{escape(what)} could be for any of several inputs, or none; "
                f"say which: --input NAME={escape(what)}; "
                f"the model has {self._list_inputs()}"
            )
        return {open_inputs[0].name: self._read_one(open_inputs[0], what)}

    def _read_one(self, item: NodeArg, what: str) -> Feed:
        if what == RANDOM:
            return self._random(item)
        path = Path(what)
        if _is_picture(path):
            layout = Layout.of(item.name, self._shape(item))
            dtype = _numpy_dtype(item)
            if dtype.kind not in "fV" and dtype.name != "uint8":
                raise UsageError(
                    f"input {item.name!r} is {_describe(item)}, which does not take "
                    "a picture: that needs floating-point numbers or uint8"
                )
            array, words = read_picture(path, layout, self._scaling, dtype)
            return Feed(array, f"{path.name} ({words})", is_picture=True)
        if path.suffix.lower() == ".npz":
            arrays = _read_npz(path)
            if item.name not in arrays and len(arrays) != 1:
                raise UsageError(
                    f"{escape(what)} has no array {item.name!r}; it has {list(arrays)}"
                )
            array = arrays.get(item.name, next(iter(arrays.values())))
        elif path.suffix.lower() == ".npy":
            array = _read_npy(path)
        else:
            raise UsageError(
                f"{what!r} is of no kind that can be fed: .npy, .npz, "
                f"a picture ({', '.join(sorted(SUFFIXES))}) or the word {RANDOM!r}"
            )
        return Feed(_as_type(array, item), path.name)

    def _shape(self, item: NodeArg) -> list[int | str | None] | None:
        """The shape, with the sizes that the command line says; ``None`` if unknown."""
        if not item.rank_is_known:
            return None
        return [
            self._sizes.get(dim, dim) if isinstance(dim, str) else dim
            for dim in item.shape
        ]

    def _random(self, item: NodeArg) -> Feed:
        """Normally distributed numbers, and integers that the model can take.

        Those of which nothing is found are 0 or 1: valid where integers most often are
        inputs: indices, tokens, masks.
        """
        import numpy as np

        shape = self._shape(item)
        if shape is None:
            raise UsageError(
                f"input {item.name!r} is {_describe(item)}, so there is no shape for "
                f"a value at random; give a file: --input {escape(item.name)}=FILE"
            )
        sizes = [dim if isinstance(dim, int) else 1 for dim in shape]
        dtype = _numpy_dtype(item)
        # each input has numbers of its own, whichever others are random too
        position = list(self._inputs).index(item.name)
        rng = np.random.default_rng([self._seed, position])
        if dtype.kind in "iu":
            found = self._ranges().get(item.name)
            if found is not None:
                array = rng.integers(found.low, found.high, sizes, dtype, endpoint=True)
                said = f"{RANDOM}, {found.low} to {found.high}: {found.what}"
                return Feed(array, said)
        if dtype.kind in "biu":
            return Feed(rng.integers(0, 2, sizes).astype(dtype), RANDOM)
        if dtype.kind in "fcV":
            return Feed(rng.standard_normal(sizes).astype(dtype), RANDOM)
        raise UsageError(
            f"input {item.name!r} is {_describe(item)}, of which there are no values "
            f"at random; give a file: --input {escape(item.name)}=FILE"
        )

    def _list_inputs(self) -> str:
        return ", ".join(
            f"{name!r} ({_describe(item)})" for name, item in self._inputs.items()
        )


def _ranges(model: str, sizes: Mapping[str, int]) -> Mapping[str, Range]:
    """Which integers inputs of *model* can take; none that only a session reads."""
    from onnxplug.errors import ModelError
    from onnxplug_cli.comparison.reproduction import read_model
    from onnxplug_cli.ranges import integer_ranges

    try:
        proto, _ = read_model(model)
    except ModelError:
        return {}
    return integer_ranges(proto, sizes)


def _check_sizes(inputs: Sequence[NodeArg], sizes: Sequence[tuple[str, int]]) -> None:
    """Refuse sizes of dimensions that no input has: they would say nothing."""
    free: dict[str, list[str]] = {}
    for item in inputs:
        for dim in item.shape:
            if isinstance(dim, str) and item.name not in free.setdefault(dim, []):
                free[dim].append(item.name)
    for name, said in sizes:
        if name not in free:
            listed = ", ".join(
                f"{dim!r} (of {', '.join(map(repr, names))})"
                for dim, names in free.items()
            )
            raise UsageError(
                f"--dim {name}={said}: the inputs have no free dimension {name!r}; "
                f"those they have: {listed or 'none, all sizes are fixed'}"
            )


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _describe(item: NodeArg) -> str:
    return f"{item.type} {shape_text(item.shape if item.rank_is_known else None)}"


def _numpy_dtype(item: NodeArg) -> np.dtype[Any]:
    from onnxplug.ep import DataType, TensorType
    from onnxplug.session.model_info import type_name

    for dtype in DataType:
        if item.type == type_name(TensorType(dtype)):
            return dtype.numpy
    raise UsageError(
        f"input {item.name!r} is a {item.type}, which cannot be fed from the "
        "command line; use onnxplug.InferenceSession"
    )


def _as_type(array: NDArray[Any], item: NodeArg) -> NDArray[Any]:
    """*array*, unless it is of a type that numpy's files do not know, such as bfloat16.

    Those are read as raw bytes.  Nothing is converted: a wrong type stays wrong.
    """
    if array.dtype.kind != "V":
        return array
    dtype = _numpy_dtype(item)
    return array.view(dtype) if dtype.itemsize == array.dtype.itemsize else array


def _read_npy(path: Path) -> NDArray[Any]:
    import numpy as np

    from onnxplug.authoring.files import opened

    try:
        with opened(path) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except _DAMAGED as error:
        raise CommandFailed(f"cannot read {escape(path)}: {error}") from error


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    import numpy as np

    from onnxplug.authoring.files import opened

    try:
        with opened(path) as file, np.load(file, allow_pickle=False) as archive:
            return dict(archive)
    except _DAMAGED as error:
        raise CommandFailed(f"cannot read {escape(path)}: {error}") from error
