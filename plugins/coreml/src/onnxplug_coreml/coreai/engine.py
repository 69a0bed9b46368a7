"""Models of Core AI: written to a folder, loaded, and called."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onnxplug import ep
from onnxplug_coreml.coreai.calls import finish
from onnxplug_coreml.coreai.emitter import ENTRY, emit
from onnxplug_coreml.coreai.process import enter
from onnxplug_coreml.coreai.quiet import without_chatter
from onnxplug_coreml.lowering.program import Program
from onnxplug_coreml.options import Settings

_MODEL: Final = "model.aimodel"


def build(program: Program, settings: Settings, folder: Path) -> Path:
    """The program as a model in *folder*; where it is there.

    Raises:
        Declined: Core AI does not take it.
        RuntimeError: it does not serve this process.
    """
    enter()
    import coreai.authoring

    _require_room(program)
    try:
        written = emit(coreai.authoring, program)
        written.save_asset(folder / _MODEL)
    except Exception as error:  # its compiler has errors of its own
        raise _declined("does not take it", error) from error
    return folder / _MODEL


def _require_room(program: Program) -> None:
    """Decline tensors larger than the memory: Core AI would end the process.

    Raises:
        Declined: there is one.
    """
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for value in program.values():
        if value.is_static:
            nbytes = math.prod(value.numbers) * value.dtype.numpy.itemsize
            if nbytes > room:
                detail = f"a tensor of {nbytes} bytes; the memory has {room}"
                raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, detail))


def load(path: Path, settings: Settings) -> Runner:
    """The model at *path*, ready to run.

    Raises:
        Declined: Core AI does not take it.
        RuntimeError: it does not serve this process.
    """
    enter()
    import coreai.authoring

    try:
        asset = coreai.authoring.AIModelAsset.load(path)
        model = finish(lambda: _opened(asset, settings))
        return Runner(model)
    except (RuntimeError, KeyError) as error:
        raise _declined("cannot load it", error) from error


def units(path: Path, settings: Settings) -> Mapping[str, str]:
    """Nothing: Core AI does not say what it runs where."""
    return {}


async def _opened(asset: Any, settings: Settings) -> Any:
    # what is compiled is read when the model is made, and not needed after
    async with asset.executable(_specialization(settings)) as model:
        return model


def _specialization(settings: Settings) -> Any:
    """Which unit is preferred; ``None`` where Core AI does not ask."""
    import coreai.runtime

    options = coreai.runtime.SpecializationOptions
    if not options.is_supported():
        return None
    kinds = coreai.runtime.ComputeUnitKind
    match settings.units:
        case "CPUOnly":
            return options.cpu_only()
        case "CPUAndGPU":
            return options.from_preferred_compute_unit_kind(kinds.gpu())
        case "CPUAndNeuralEngine":
            return options.from_preferred_compute_unit_kind(kinds.neural_engine())
        case _:
            return options.default()


class Runner:
    """Calls of a loaded model, from any number of threads."""

    def __init__(self, model: Any) -> None:
        import coreai.runtime

        self._model = model
        with without_chatter():
            self._function = model.load_function(ENTRY)
        self._array = coreai.runtime.NDArray
        described = self._function.desc
        self._shapes = {
            name: tuple(
                None if size < 0 else size
                for size in described.input_descriptor(name).shape
            )
            for name in described.input_names
        }

    def __call__(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The outputs for *inputs*, which Core AI copies.

        Raises:
            ValueError: an input is of another shape than the model's: Core AI would end
                the process.
            NodeError: Core AI fails.
            RuntimeError: it does not serve this process.
        """
        enter()
        for name, shape in self._shapes.items():
            _check_shape(name, inputs[name], shape)
        given = {name: self._array(inputs[name]) for name in self._shapes}
        try:
            found = finish(lambda: self._function(given))
        except RuntimeError as error:
            raise ep.NodeError(f"Core AI cannot run the partition: {error}") from error
        return {name: array.numpy() for name, array in found.items()}


def _check_shape(name: str, array: Any, shape: tuple[int | None, ...]) -> None:
    if len(shape) != array.ndim or any(
        size not in (None, there)
        for size, there in zip(shape, array.shape, strict=True)
    ):
        raise ValueError(
            f"{name!r} is of shape {list(array.shape)}; the model was made for "
            f"{['any' if size is None else size for size in shape]}"
        )


def _declined(what: str, error: Exception) -> ep.Declined:
    said = str(error.__cause__ or error).strip().splitlines()
    return ep.Declined(
        ep.Reason(ep.RefusalCode.OTHER, f"Core AI {what}: {' '.join(said)[:300]}")
    )
