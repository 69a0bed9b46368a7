"""In what form an EP wants the nodes that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What an EP says once of all nodes.

    Attributes:
        layout: ``NHWC``: the channels of images come last.  The host then offers
            convolutions, pools and their kin that the EP claimed a second time, as
            operators of the domain ``com.ms.internal.nhwc``, and puts ``Transpose``
            around those that it claims; the others stay as they are.
        keeps_qdq: ``DequantizeLinear`` of constants stays beside the nodes that read
            it, where the EP claims both, as an EP needs that runs integers and their
            scale.  Otherwise the host makes the result a constant, which it computes
            when somebody asks for it.

    Raises:
        ValueError: there is no such layout.
    """

    layout: Literal["NCHW", "NHWC"] = "NCHW"
    keeps_qdq: bool = False

    def __post_init__(self) -> None:
        if self.layout not in ("NCHW", "NHWC"):
            raise ValueError(f"layout is {self.layout!r}; expected 'NCHW' or 'NHWC'")
