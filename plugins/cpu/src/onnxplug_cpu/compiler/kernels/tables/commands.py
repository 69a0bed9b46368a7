"""The family as a module: a :class:`onnxplug_compiler.ir.tables.Tables`."""

from onnxplug_cpu.compiler.kernels.tables.distance import record_distances
from onnxplug_cpu.compiler.kernels.tables.grams import record_grams
from onnxplug_cpu.compiler.kernels.tables.lookup import record_lookup
from onnxplug_cpu.compiler.kernels.tables.mapped import maps_quickly, record_mapped
from onnxplug_cpu.compiler.kernels.tables.pairs import record_coupling, record_votes

__all__ = [
    "maps_quickly",
    "record_coupling",
    "record_distances",
    "record_grams",
    "record_lookup",
    "record_mapped",
    "record_votes",
]
