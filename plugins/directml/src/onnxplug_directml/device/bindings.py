"""Buffers as binding tables take them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from onnxplug_directml.abi.directml import (
    DML_BINDING_DESC,
    DML_BINDING_TYPE,
    DML_BUFFER_ARRAY_BINDING,
    DML_BUFFER_BINDING,
)
from onnxplug_directml.com.d3d12 import ID3D12Resource


class Buffer(NamedTuple):
    """The first *nbytes* bytes of a resource."""

    resource: ID3D12Resource
    nbytes: int

    def described(self) -> DML_BUFFER_BINDING:
        return DML_BUFFER_BINDING(self.resource.address, 0, self.nbytes)


def bind_each(
    method: Callable[[Sequence[DML_BINDING_DESC]], Any],
    buffers: Sequence[Buffer | None],
) -> None:
    """Bind *buffers* one by one, and nothing where there is none."""
    kept = [each and each.described() for each in buffers]
    method([_binding(DML_BINDING_TYPE.BUFFER, each) for each in kept])


def bind_one(method: Callable[[DML_BINDING_DESC], Any], buffer: Buffer | None) -> None:
    """Bind *buffer*, if there is one."""
    if buffer is not None:
        kept = buffer.described()
        method(_binding(DML_BINDING_TYPE.BUFFER, kept))


def bind_array(
    method: Callable[[Sequence[DML_BINDING_DESC]], Any],
    buffers: Sequence[Buffer | None],
) -> None:
    """Bind *buffers* as one array, with gaps where there is none; or nothing, if there
    are none at all."""
    if not any(buffers):
        method([_binding(DML_BINDING_TYPE.BUFFER_ARRAY, None)])
        return
    described = [DML_BUFFER_BINDING() if b is None else b.described() for b in buffers]
    array = (DML_BUFFER_BINDING * len(described))(*described)
    kept = DML_BUFFER_ARRAY_BINDING(len(described), array)
    method([_binding(DML_BINDING_TYPE.BUFFER_ARRAY, kept)])


def _binding(kind: DML_BINDING_TYPE, kept: ctypes.Structure | None) -> DML_BINDING_DESC:
    if kept is None:
        return DML_BINDING_DESC(DML_BINDING_TYPE.NONE, None)
    return DML_BINDING_DESC(kind, ctypes.addressof(kept))
