"""Weights that sessions share: what tells one from another, and where they are kept.

An EP that brings a constant into a form of its own, or to a device, asks its partition
where the constant is from, and has the store of the memory location keep the result:

.. code-block:: python

    source = partition.weight(name)
    if source is None:
        mine = self._pack(partition.constant(name))
    else:
        mine = session.weights(location).get(
            source,
            f"my-ep tiles({dtype},{shape},{width})",
            lambda: self._pack(partition.constant(name)),
        )

Two sessions of one model then have it once, and it goes with the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Protocol, TypeVar

from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from pathlib import Path

_Made = TypeVar("_Made")


class WeightSource(Record):
    """Where the bytes of a constant are from, as ONNX's ``raw_data`` has them.

    Attributes:
        key: equal for two constants only if their bytes are.  Element type and shape
            are no part of it.  Of the file as it was when it was opened and the place
            in it; of an immutable object in memory and the place in it; or a digest of
            the bytes.  Of use in this process only.
        path: the file that the bytes are in; ``None`` if they are in none, or not as
            they are.
        offset: in the file, in bytes; 0 without one.
        nbytes: how many.
    """

    key: Hashable
    path: Path | None
    offset: int
    nbytes: int


class WeightStore(Protocol):
    """What was made of weights for one memory location, shared by all sessions.

    It is the host's, and there for as long as the process.  It may be used from any
    thread, and in a child of a fork.  May gain attributes.
    """

    def get(
        self, source: WeightSource, layout: str, make: Callable[[], _Made]
    ) -> _Made:
        """What *make* returned for *source* and *layout*, to whoever asked first.

        It is kept for as long as anybody refers to that very object, of which a view
        is another, and made anew after that.  Nobody writes to it any more.

        While it is made, others that ask for the same wait; who asks for something
        else does not.  If *make* raises, whatever it is, so does this call, nothing is
        kept, and those that waited try it themselves.  *make* may ask for others of
        this store and of others, on the thread that it is called from.

        Args:
            source: of ``Partition.weight``, or with a key that an EP made of several.
            layout: the EP's name, and whatever besides the source's bytes determines
                the result: element type, shape, and each parameter of the form.  The
                EPs of a location share a store.
            make: makes it; what it returns has to be one that weak references can be
                made to, such as an array or an object of a class, and refers to no
                session.

        Raises:
            TypeError: weak references cannot be made to what *make* returned.
            RuntimeError: *make*, or that of another which waits for this one, asks for
                what it is making.
        """
