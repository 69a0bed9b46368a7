"""Tensors stored in a model: ranges of bytes that become arrays when asked for.

A weight is neither parsed nor copied until :attr:`Weight.array` is read, and where
its bytes lie in memory as numpy wants them, not even then.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug.authoring.arrays import usual_form
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType
from onnxplug.ep.weights import WeightSource
from onnxplug.graph.origin import Origin
from onnxplug.graph.packing import is_copied, to_raw
from onnxplug.graph.size import tensor_nbytes
from onnxplug.weights import of_host

if TYPE_CHECKING:
    from onnxplug.ep import Node


LARGE: Final = 1 << 20
"""Bytes from which on an array that can be made again is not kept."""

DIGESTED: Final = 1 << 16
"""Bytes from which on what nothing else tells from others is told by a digest.  Fewer
are hardly worth sharing."""


class Maker(Record):
    """What a weight that is computed follows from.

    Attributes:
        node: the node that makes it, and nothing else.
        constants: what it reads, by name.
    """

    node: Node
    constants: Mapping[str, Weight]


class Weight:
    """A constant tensor.

    Attributes:
        dtype: element type.
        shape: sizes; ``()`` for a scalar.
        maker: of one that is computed by a node, that.
    """

    __slots__ = (
        "_array",
        "_is_copy",
        "_materialise",
        "_origin",
        "_passing",
        "_raw",
        "_recipe",
        "dtype",
        "maker",
        "shape",
    )

    def __init__(
        self,
        dtype: DataType,
        shape: tuple[int, ...],
        materialise: Callable[[], np.ndarray[Any, Any]],
        raw: memoryview | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.dtype: Final = dtype
        self.shape: Final = shape
        self._raw: Final = raw
        self._origin: Final = origin
        self._recipe: tuple[Hashable, Sequence[Weight]] | None = None
        self.maker: Maker | None = None
        self._is_copy = raw is not None
        self._materialise: Callable[[], np.ndarray[Any, Any]] | None = materialise
        self._array: np.ndarray[Any, Any] | None = None
        self._passing: weakref.ref[np.ndarray[Any, Any]] | None = None

    @classmethod
    def from_array(cls, array: np.ndarray[Any, Any]) -> Weight:
        """A weight that holds *array*, which is made read-only.

        It holds another one if *array* is not in the form that EPs take.

        Raises:
            TypeError: ONNX has no such element type.
        """
        dtype = DataType.from_numpy(array.dtype)
        if dtype is not DataType.STRING:
            array = usual_form(array, dtype.numpy)
        weight = cls(dtype, array.shape, lambda: array)
        array.flags.writeable = False
        weight._array = array
        weight._materialise = None
        return weight

    @classmethod
    def computed(
        cls,
        dtype: DataType,
        shape: tuple[int, ...],
        compute: Callable[[], np.ndarray[Any, Any]],
        *,
        method: Hashable,
        of: Sequence[Weight],
        maker: Maker | None = None,
    ) -> Weight:
        """A weight that *compute* makes from others, each time that it is asked for.

        Args:
            method: how it is computed, with all parameters.
            of: the others.
            maker: the node that it is what follows from, if it is.
        """
        weight = cls(dtype, shape, compute)
        weight._is_copy = True
        weight._recipe = method, of
        weight.maker = maker
        return weight

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The content, read-only; a view of the model's bytes where possible.

        A large copy of them, and what is computed, lives as long as somebody uses it:
        an EP that puts weights into a form of its own should not keep two of each in
        memory.
        """
        if self._array is not None:
            return self._array
        if self._passing is not None:
            passing = self._passing()
            if passing is not None:
                return passing
        array = self._shared()
        if self._passes(array):
            self._passing = weakref.ref(array)
            return array
        self._array = array
        self._materialise = None
        return array

    def _passes(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether *array* is not to be kept."""
        if self._recipe is not None:
            return array.nbytes >= DIGESTED
        whole = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        return self._is_copy and whole.base is None and array.nbytes >= LARGE

    def _shared(self) -> np.ndarray[Any, Any]:
        """The content; a large copy is the one that other sessions have, too."""
        raw, origin = self._raw, self._origin
        if (
            raw is None
            or raw.nbytes < LARGE
            or origin is None
            or origin.key is None
            or not is_copied(raw, self.dtype)
        ):
            return self._made()
        layout = f"onnxplug array({self.dtype},{self.shape})"
        return of_host.get(origin.source(raw), layout, self._made)

    def _made(self) -> np.ndarray[Any, Any]:
        assert self._materialise is not None
        array = self._materialise()
        if array.flags.writeable:
            array.flags.writeable = False
        return array

    def source(self) -> WeightSource | None:
        """Where the bytes are from.

        What is computed is told from others by what it is computed from; what is in an
        array, or in memory that others may write to, by a digest.

        Returns:
            ``None`` for strings, and for fewer bytes than :data:`DIGESTED` that only a
            digest would tell from others.
        """
        origin, raw, nbytes = self._origin, self._raw, self.nbytes
        if not nbytes:
            return None
        if self._recipe is not None:
            return self._computed_source(*self._recipe)
        if raw is not None and origin is not None and origin.key is not None:
            return origin.source(raw)
        if nbytes < DIGESTED:
            return None
        import hashlib

        digest = ("sha256", hashlib.sha256(self.raw().data).hexdigest(), nbytes)
        if raw is not None and origin is not None:
            return origin.source(raw, digest)
        return WeightSource(digest, None, 0, nbytes)

    def place(self) -> tuple[str, int] | None:
        """The file that the bytes are in, as it lasts, and where in it they begin."""
        origin, raw = self._origin, self._raw
        if self._recipe is not None or raw is None or origin is None:
            return None
        source = origin.source(raw) if origin.lasts else None
        if source is None or origin.path is None:
            return None
        return origin.path, source.offset

    def lasting_key(self) -> Hashable:
        """Tells the bytes from all others in every process, by its ``repr``.

        Of what lies in a file, which is not read for that, only on this machine.
        """
        if self._recipe is not None:
            method, of = self._recipe
            keys = [(each.lasting_key(), each.dtype, each.shape) for each in of]
            return "computed", method, self.dtype, self.shape, *keys
        origin, raw = self._origin, self._raw
        if raw is not None and origin is not None and origin.lasts:
            return origin.source(raw).key
        import hashlib

        return hashlib.sha256(self.raw().data).hexdigest()

    def _computed_source(
        self, method: Hashable, of: Sequence[Weight]
    ) -> WeightSource | None:
        parts: list[Hashable] = []
        for weight in of:
            source = weight.source()
            if source is not None:
                key: Hashable = source.key
            elif weight.dtype is DataType.STRING:
                return None
            else:  # small: it is told from others by what it is
                key = weight.raw().tobytes()
            parts.append((key, weight.dtype, weight.shape))
        whole = ("computed", method, self.dtype, self.shape, *parts)
        return WeightSource(whole, None, 0, self.nbytes)

    def raw(self) -> np.ndarray[Any, Any]:
        """The bytes of ONNX's ``raw_data``, uint8 in one dimension; not for strings.

        They are a view of the model's bytes where those have this form, and of the
        array where it has; the array is then not even made.
        """
        if self._raw is not None:
            return np.frombuffer(self._raw, np.uint8)
        return to_raw(self.array, self.dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take in a model file; 0 for strings."""
        return tensor_nbytes(self.dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    def __repr__(self) -> str:
        return f"Weight({self})"
