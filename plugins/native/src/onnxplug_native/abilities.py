"""What EPs of libraries are able to do besides computing."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnxplug import ep
from onnxplug_native.compiled import CompiledGroup

if TYPE_CHECKING:
    from onnxplug_native.provider import NativeProvider


class NativeDynamicOptions(ep.DynamicOptions):
    """Tells a library of options that change while its EP lives."""

    def __init__(self, provider: NativeProvider) -> None:
        self._provider = provider

    def set(self, options: Mapping[str, str]) -> None:
        """Tell it.

        Raises:
            OnnxplugError: it does not take them, and says why.
        """
        count = len(options)
        texts = [
            (ctypes.c_char_p * count)(*(text.encode() for text in side))
            for side in (options.keys(), options.values())
        ]
        with self._provider.turn:
            self._provider.structure.call(
                "SetDynamicOptions", *map(ctypes.addressof, texts), count
            )


class NativeSerialiser(ep.Serialiser):
    """Keeps the nodes that libraries make of what they compile."""

    def __init__(self, provider: NativeProvider) -> None:
        self._provider = provider

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        """The node that the library makes of it.

        Raises:
            Declined: it makes none; says why.
            OnnxplugError: the library fails, and says why.
        """
        if not isinstance(compiled, CompiledGroup):
            detail = "they are kernels, which the library does not compile"
            raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, detail))
        return self._provider.serialised(compiled.partition)

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        """What the library makes of the node that it made.

        Raises:
            Declined: the data is not of use; says why.
        """
        return self._provider.restored(partition, data)
