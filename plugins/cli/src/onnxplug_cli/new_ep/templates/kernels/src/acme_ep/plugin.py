"""What onnxplug asks for the EP: the module that the entry point names.

It is imported whenever the EP may be used, so it imports what computes only in
``create`` and later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnxplug import ep

from . import __version__


class AcmeFactory(ep.EpFactory):
    """Offers the EP on every CPU."""

    spi_version = (1, 0)
    name = "AcmeExecutionProvider"
    version = __version__

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        """A pair for each CPU; nothing is loaded to find out."""
        for device in devices:
            if device.type is ep.DeviceType.CPU:
                yield ep.EpDevice(
                    ep_name=self.name,
                    device=device,
                    metadata={"version": self.version},
                )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session."""
        from .provider import AcmeExecutionProvider

        return AcmeExecutionProvider()

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
