"""Buffers of Direct3D's, each a resource of its own on a heap of a kind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from onnxplug_directml.abi.d3d12 import (
    D3D12_HEAP_FLAGS,
    D3D12_HEAP_PROPERTIES,
    D3D12_HEAP_TYPE,
    D3D12_RANGE,
    D3D12_RESOURCE_DESC,
    D3D12_RESOURCE_DIMENSION,
    D3D12_RESOURCE_FLAGS,
    D3D12_RESOURCE_STATES,
    D3D12_TEXTURE_LAYOUT,
)
from onnxplug_directml.abi.dxgi import DXGI_FORMAT, DXGI_SAMPLE_DESC
from onnxplug_directml.com.d3d12 import ID3D12Device, ID3D12Resource
from onnxplug_directml.com.errors import InvalidCall

_STATES: Final = {
    D3D12_HEAP_TYPE.DEFAULT: D3D12_RESOURCE_STATES.COMMON,
    D3D12_HEAP_TYPE.UPLOAD: D3D12_RESOURCE_STATES.GENERIC_READ,
    D3D12_HEAP_TYPE.READBACK: D3D12_RESOURCE_STATES.COPY_DEST,
}
"""In which state a buffer on a heap is between executions: on a default heap the first
use promotes it, and it decays when the lists are done; on the others it stays."""


def create_buffer(
    device: ID3D12Device, nbytes: int, kind: D3D12_HEAP_TYPE
) -> ID3D12Resource:
    """A buffer of unspecified content.

    Raises:
        OutOfMemory: there is no memory.
        DeviceRemoved: the device is lost.
    """
    asked = f"{nbytes} bytes"
    if kind is not D3D12_HEAP_TYPE.DEFAULT:
        desc = _described(nbytes, D3D12_RESOURCE_FLAGS.NONE)
        return _committed(device, kind, D3D12_HEAP_FLAGS.NONE, desc, asked)
    desc = _described(nbytes, D3D12_RESOURCE_FLAGS.ALLOW_UNORDERED_ACCESS)
    with contextlib.suppress(InvalidCall):  # before Windows 10 version 2004
        # what is not written is not read, and zeroing takes its time
        flags = D3D12_HEAP_FLAGS.CREATE_NOT_ZEROED
        return _committed(device, kind, flags, desc, asked)
    return _committed(device, kind, D3D12_HEAP_FLAGS.NONE, desc, asked)


def _described(nbytes: int, flags: D3D12_RESOURCE_FLAGS) -> D3D12_RESOURCE_DESC:
    return D3D12_RESOURCE_DESC(
        Dimension=D3D12_RESOURCE_DIMENSION.BUFFER,
        Width=nbytes,
        Height=1,
        DepthOrArraySize=1,
        MipLevels=1,
        Format=DXGI_FORMAT.UNKNOWN,
        SampleDesc=DXGI_SAMPLE_DESC(1, 0),
        Layout=D3D12_TEXTURE_LAYOUT.ROW_MAJOR,
        Flags=flags,
    )


def _committed(
    device: ID3D12Device,
    kind: D3D12_HEAP_TYPE,
    flags: D3D12_HEAP_FLAGS,
    desc: D3D12_RESOURCE_DESC,
    asked: str,
) -> ID3D12Resource:
    heap = D3D12_HEAP_PROPERTIES(Type=kind)
    buffer: ID3D12Resource = device.CreateCommittedResource(
        heap, flags, desc, _STATES[kind], None, asked=asked
    )
    return buffer


@contextlib.contextmanager
def mapped(resource: ID3D12Resource, *, reads: int, writes: int) -> Iterator[int]:
    """Where the host finds the bytes of a buffer, on a heap that it can reach.

    Args:
        reads, writes: how many bytes from the beginning it reads, and writes.

    Raises:
        DeviceRemoved: the device is lost.
    """
    address = resource.Map(0, D3D12_RANGE(0, reads))
    try:
        yield address
    finally:
        resource.Unmap(0, D3D12_RANGE(0, writes))
