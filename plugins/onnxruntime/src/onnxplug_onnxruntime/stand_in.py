"""Lets ``import onnxruntime`` give onnxplug, in this process.

Modules that only ONNX Runtime has, those in Python, come from its wheel if it is
installed; its native code is never loaded.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

import onnxplug_onnxruntime
from onnxplug.errors import ImportedBefore

if TYPE_CHECKING:
    import importlib.metadata

NAME: Final = "onnxruntime"

_PACKAGES: Final = {NAME, f"{NAME}.capi", f"{NAME}.backend"}

_MODULES: Final = _PACKAGES | {
    f"{NAME}.capi._pybind_state",
    f"{NAME}.capi.build_and_package_info",
    f"{NAME}.capi.onnxruntime_inference_collection",
    f"{NAME}.capi.onnxruntime_pybind11_state",
    f"{NAME}.capi.onnxruntime_validation",
    f"{NAME}.backend.backend",
    f"{NAME}.backend.backend_rep",
}
"""What onnxplug stands for."""


def install() -> None:
    """Let ``import onnxruntime``, wherever in this process, give onnxplug.

    Whether ONNX Runtime is installed does not matter.  ``importlib.util.find_spec`` and
    ``importlib.metadata`` answer as if it were, in the version
    ``onnxplug_onnxruntime.__version__``.  Called again, it does nothing.

    Raises:
        ImportedBefore: something has imported ONNX Runtime already.
    """
    if any(isinstance(finder, StandIn) for finder in sys.meta_path):
        return
    if NAME in sys.modules:
        origin = getattr(sys.modules[NAME], "__file__", "somewhere")
        raise ImportedBefore(
            f"{NAME} is imported already, from {origin!r}, and programs have its "
            "classes; call onnxplug_onnxruntime.install() before it is imported"
        )
    sys.meta_path.insert(0, StandIn())


class StandIn:
    """Finds and makes the modules that stand for those of ONNX Runtime.

    A finder of ``sys.meta_path`` and a loader without the classes of ``importlib.abc``,
    which take longer to import than all that is here.
    """

    def __init__(self) -> None:
        found = PathFinder.find_spec(NAME)
        folders = None if found is None else found.submodule_search_locations
        self._wheel = [*(folders or ())]

    # modules

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The module's, if onnxplug stands for it."""
        if fullname not in _MODULES:
            return None
        spec = ModuleSpec(
            fullname,
            cast("Any", self),
            origin=onnxplug_onnxruntime.__file__,
            is_package=fullname in _PACKAGES,
        )
        if spec.submodule_search_locations is not None:
            below = fullname.split(".")[1:]
            spec.submodule_search_locations += [
                os.path.join(folder, *below) for folder in self._wheel
            ]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """A usual module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give *module* the names of onnxplug, which are looked up when asked for."""
        source: ModuleType = onnxplug_onnxruntime
        if module.__name__.startswith(f"{NAME}.backend"):
            from onnxplug_onnxruntime import backend

            source = backend
        names = vars(module)
        names.update(
            __doc__=source.__doc__,
            __file__=source.__file__,
            __all__=[*source.__all__],
            __version__=onnxplug_onnxruntime.__version__,
            __dir__=lambda: sorted({*names, *source.__all__}),
        )
        if module.__name__.startswith(f"{NAME}.capi."):
            names["__all__"] += onnxplug_onnxruntime.ERRORS

        def find(name: str) -> Any:
            inner = f"{module.__name__}.{name}"
            if inner in _MODULES:  # which importing the outer one would have imported
                return importlib.import_module(inner)
            value = names[name] = getattr(source, name)
            return value

        names["__getattr__"] = find

    # what is known of the distribution

    def find_distributions(
        self, context: Any = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """The distribution that is stood for, if it is asked for by its name."""
        name = getattr(context, "name", None)
        if name is not None and name.lower() == NAME:
            from onnxplug_onnxruntime.described import Described

            yield Described(NAME)
