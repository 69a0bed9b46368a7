"""onnxplug-serve's metrics among Ray's, which each node exports for all replicas.

Ray has no metrics of others' making, so each sample of Prometheus' text is a gauge of
the same name and labels (which Ray begins with ``ray_``); rates and quantiles are asked
of these as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ray.util.metrics import Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class MetricsMirror:
    """Copies what a registry has to Ray.

    Args:
        registry: of Prometheus' client.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._gauges: dict[str, Gauge] = {}

    def update(self) -> None:
        """Copy the values of now."""
        for metric in self._registry.collect():
            for sample in metric.samples:
                gauge = self._gauges.get(sample.name)
                if gauge is None:
                    gauge = Gauge(
                        sample.name, metric.documentation, tuple(sample.labels)
                    )
                    self._gauges[sample.name] = gauge
                gauge.set(sample.value, dict(sample.labels))
