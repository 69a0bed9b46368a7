"""A program by ``torch.compile``, and what that needs."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from typing import Any

from onnxplug import ep
from onnxplug_torch.devices import Place
from onnxplug_torch.execution import execute
from onnxplug_torch.program import Program


def missing_compiler(place: Place) -> str:
    """What ``torch.compile`` lacks for *place*, and the remedy; empty: nothing."""
    if place.space == "cpu":
        try:
            from torch._inductor.cpp_builder import get_cpp_compiler
            from torch._inductor.exc import InvalidCxxCompiler
        except ImportError:  # they are not torch's interface; the first run will tell
            return ""
        try:
            get_cpp_compiler()
        except (InvalidCxxCompiler, RuntimeError) as error:
            return (
                f"torch.compile needs a C++ compiler, and there is none ({error}); "
                "install g++ or clang++, or name one by the environment variable CXX"
            )
    elif place.space != "mps" and importlib.util.find_spec("triton") is None:
        return (
            "torch.compile needs triton, and there is none; install the build of torch "
            "for this device, which brings it"
        )
    return ""


class CompiledProgram:
    """A program as one function of tensors and numbers.

    torch compiles it in its first runs, for the shapes that it meets, and anew for
    others until sizes that changed are left open.  What it cannot compile it calls.
    Runs are one at a time.
    """

    def __init__(self, torch: Any, program: Program, mode: str) -> None:
        self._program = program
        self._lock = threading.Lock()
        steps = tuple(
            step
            if step.traced
            else step._replace(function=torch.compiler.disable(step.function))
            for step in program.steps
        )
        template = program.template
        inputs, outputs = program.inputs, program.outputs

        # of what follows torch sees the calls alone; so nothing else is in it
        def function(*arguments: Any) -> Any:
            slots = list(template)
            for slot, argument in zip(inputs, arguments, strict=True):
                slots[slot] = argument
            for step in steps:
                results = step.function(*[slots[slot] for slot in step.inputs])
                if isinstance(results, tuple):
                    for slot, result in zip(step.outputs, results, strict=False):
                        slots[slot] = result
                else:
                    slots[step.outputs[0]] = results
                for slot in step.frees:
                    slots[slot] = None
            return [slots[slot] for slot in outputs]

        self._function = torch.compile(function, dynamic=None, mode=mode or None)

    def __call__(
        self, arguments: Sequence[Any], context: ep.RunContext | None
    ) -> Sequence[Any]:
        """The results of a run.

        Raises:
            NodeError: a node fails, compiled or not.
            RuntimeError: the program fails compiled only.
        """
        with self._lock:
            try:
                found: Sequence[Any] = self._function(*arguments)
            # whatever torch raises: of a node, or of compiling
            except Exception as error:
                ep.raise_interruption(error)
                # called step by step it fails with the name of the node, if that does
                execute(self._program, arguments, context)
                raise RuntimeError(
                    f"torch.compile fails where its operators do not: "
                    f"{type(error).__name__}: {str(error)[:400]}; turn the option "
                    "'compile' off"
                ) from error
        return found
