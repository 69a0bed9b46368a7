"""What the entries of the interface do, by what they are about."""

import functools


@functools.cache
def load() -> None:
    """Let the interface have all of them, compiled where they are."""
    from onnxplug_native.functions import (  # noqa: F401
        allocator,
        capability,
        control_flow,
        devices,
        editor,
        environment,
        graph,
        kernel_context,
        kernel_info,
        kernel_registry,
        node,
        prepacked,
        profiling,
        schema,
        stream,
        tensor,
        types,
    )
    from onnxplug_native.interface.compiled import compile_entries
    from onnxplug_native.interface.host import table

    compile_entries(table("OrtApi"))
