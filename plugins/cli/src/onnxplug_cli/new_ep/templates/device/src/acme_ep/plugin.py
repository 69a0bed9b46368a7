"""What onnxplug asks for the EP: the module that the entry point names.

It is imported whenever the EP may be used, so it imports what computes only in
``create`` and later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from onnxplug import ep

from . import __version__


class AcmeFactory(ep.EpFactory):
    """Offers the EP on its one device, which is simulated."""

    spi_version = (1, 0)
    name = "AcmeExecutionProvider"
    version = __version__

    @cached_property
    def memory_spaces(self) -> ep.MemorySpaces:  # type: ignore[override]
        """The device's memory."""
        from .memory import AcmeSpaces

        return AcmeSpaces()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        """The simulated device.

        An EP for hardware gives a pair for each of *devices* that it can drive, such as
        those of its maker's ``vendor_id``, and looks for no more.
        """
        device = ep.HardwareDevice(
            type=ep.DeviceType.NPU,
            metadata={"is_virtual": "1", "Description": "simulated by threads"},
        )
        yield ep.EpDevice(
            ep_name=self.name,
            device=device,
            metadata={"version": self.version},
            # it is host memory in truth; say what copies take that you have measured
            costs=ep.Costs(seconds_per_copy=0, seconds_per_byte=0),
            # programs that ask for any NPU do not mean this one
            by_name_only=True,
        )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session, on the context that all sessions share."""
        from .memory import SPACE, AcmeContext
        from .provider import AcmeExecutionProvider

        context = session.context(ep.MemoryLocation(SPACE, 0))
        if not isinstance(context, AcmeContext):
            raise TypeError(f"{SPACE} is another EP's memory: {context!r}")
        return AcmeExecutionProvider(context, session.weights(context.location))

    def operators(self) -> Iterable[ep.OperatorSupport]:
        """The operators, for ``onnxplug ops``."""
        from .operators import OPERATORS

        for op_type, operator in OPERATORS.items():
            for version in sorted(operator.versions):
                yield ep.OperatorSupport(
                    op_type=op_type,
                    since=version,
                    until=version,
                    types={"T": (ep.DataType.FLOAT32,)},
                )


@ep.hookimpl
def onnxplug_ep_factories(host: ep.Host) -> Iterable[ep.EpFactory]:
    """The distribution's one factory."""
    return [AcmeFactory()]
