"""What goes wrong on a cluster, in words that name the node.

Ray passes errors from process to process as pickles, so each can be made without what
it is told by name.
"""

from __future__ import annotations

from onnxplug.errors import Fail, InvalidArgument, RunError


class EpNotOnNode(Fail, LookupError):
    """A node has not the EP that was asked for.

    Attributes:
        ep: as it was asked for.
        node: the node, in words.
    """

    def __init__(self, message: str, *, ep: str = "", node: str = "") -> None:
        super().__init__(message)
        self.ep = ep
        self.node = node


class EpNotInCluster(Fail, LookupError):
    """No node offers what an actor would ask for: Ray would wait for one without end.

    Attributes:
        ep: as it was asked for.
    """

    def __init__(self, message: str, *, ep: str = "") -> None:
        super().__init__(message)
        self.ep = ep


class ModelNotShared(Fail, OSError):
    """A node cannot get a shared model: its store is gone, or the node cannot keep
    it."""


class CannotDeploy(Fail):
    """A replica cannot load a model."""


class ColumnError(InvalidArgument, LookupError):
    """Columns of a dataset are not what the model takes, or what it gives has no
    place among them."""


class RowError(RunError, ValueError):
    """The model cannot be run on a row.

    Attributes:
        row: its position in the batch, from 0.
        batch: which batch of this actor it is in, from 0.
        ids: what the row says of itself, in words.
        eps: what it was run on.
        node: the node, in words.
        reason: why, without where.
    """

    def __init__(
        self,
        message: str,
        *,
        row: int = 0,
        batch: int = 0,
        ids: str = "",
        eps: str = "",
        node: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.row = row
        self.batch = batch
        self.ids = ids
        self.eps = eps
        self.node = node
        self.reason = reason
