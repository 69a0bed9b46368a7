"""What ONNX Runtime has only in its native module, and programs use all the same.

Its sessions and bindings there take arguments in another order, and devices as objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnxplug
from onnxplug_onnxruntime.memory import OrtDevice
from onnxplug_onnxruntime.values import IOBinding, OrtValue, OrtValueVector


class NativeSession:
    """A session by the methods that ``InferenceSession._sess`` has there.

    Attributes:
        session: the session.
    """

    def __init__(self, session: onnxplug.InferenceSession) -> None:
        self.session = session

    def run_with_ort_values(
        self,
        feeds: Mapping[str, onnxplug.OrtValue],
        output_names: Sequence[str],
        run_options: onnxplug.RunOptions | None = None,
    ) -> OrtValueVector:
        """Run on values; the outputs are a vector."""
        results = self.session.run_with_ort_values(output_names, feeds, run_options)
        return OrtValueVector(map(OrtValue.of, results))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


class SessionIOBinding(IOBinding):
    """A binding that is given devices as objects."""

    def __init__(self, session: NativeSession | onnxplug.InferenceSession) -> None:
        own = session.session if isinstance(session, NativeSession) else session
        super().__init__(own)

    def bind_input(self, name: str, device: Any, *described: Any) -> None:
        """Feed an array, or the tensor of a type and a shape at an address."""
        if not isinstance(device, OrtDevice):
            self.bind_cpu_input(name, device)
            return
        super().bind_input(name, device.name, device.device_id(), *described)

    def bind_output(  # type: ignore[override]
        self, name: str, device: OrtDevice, *described: Any
    ) -> None:
        """Leave an output at a device, in a new array or at an address."""
        super().bind_output(name, device.name, device.device_id(), *described)

    def get_outputs(self) -> OrtValueVector:  # type: ignore[override]
        """The outputs of the last run, in the order they were bound."""
        return self.get_outputs_as_ortvaluevector()
