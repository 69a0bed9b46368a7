"""What the entries of the interface do, by what they are about."""


def load() -> None:
    """Let the interface know all of them."""
    from onnxplug_native.functions import (  # noqa: F401
        allocator,
        capability,
        devices,
        editor,
        environment,
        graph,
        kernel_context,
        kernel_info,
        kernel_registry,
        node,
        schema,
        stream,
        tensor,
        types,
    )
