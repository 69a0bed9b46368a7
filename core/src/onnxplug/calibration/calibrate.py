"""Calibrates a model by hand: ``onnxplug.calibrate``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from onnxplug.calibration import store
from onnxplug.calibration.inputs import draw_all
from onnxplug.calibration.measure import Limits, NothingUsable, measure
from onnxplug.calibration.subject import Subject
from onnxplug.calibration.use import warn_of_differences
from onnxplug.calibration.verdict import Verdict
from onnxplug.compile.load import load
from onnxplug.errors import EpError, OptionError
from onnxplug.plugins import registry as registry_of_process
from onnxplug.selection import model_info
from onnxplug.selection.policy import MEASURED
from onnxplug.selection.policy_choice import PolicyChoice
from onnxplug.selection.resolve import resolve
from onnxplug.session.request import SessionRequest, read_options, read_source

if TYPE_CHECKING:
    from onnxplug.options import SessionOptions


def calibrate(
    path_or_bytes: Any,
    sess_options: SessionOptions | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    seconds: float = Limits().seconds,
    timeout: float = Limits().timeout,
    progress: Callable[[str, float | None], None] | None = None,
) -> Verdict:
    """Time the EPs that ``policy="max_performance"`` may choose for a model, here.

    What is found is kept on disk, and sessions of that policy, of the same model,
    options, EPs and machine, go by it.  Each EP is timed in a process of its own, and
    is not chosen if its outputs differ from the CPU EP's beyond tolerance.

    Args:
        path_or_bytes: as of :class:`InferenceSession`.
        sess_options: those that sessions will have.
        inputs: what the model is run on; drawn at random where it is not given.
        sizes: of dimensions by their names, for what is drawn; others that are not
            fixed are of size 1.
        seconds: that each choice of EPs is timed for.
        timeout: seconds that loading by an EP may take, and each of its rounds.
        progress: called now and then with what is being done, and from 0 to 1 how much
            of that is; ``None`` where nobody knows.

    Raises:
        OptionError: an argument does not fit, or the model cannot be had in another
            process.
        ModelError: the model cannot be loaded.
        EpError: no EP can run it.
    """
    for name, value in (("seconds", seconds), ("timeout", timeout)):
        if not 0 < value < math.inf:
            raise OptionError(f"{name} is {value!r}; expected a number above 0")
    subject = subject_of(path_or_bytes, sess_options)
    options = subject.request.options
    types = {name: subject.graph.value(name).type for name in subject.graph.inputs}
    given = dict(inputs or {})
    unknown = [name for name in given if name not in subject.graph.input_types()]
    if unknown:
        raise OptionError(
            f"the model has no input {unknown[0]!r}; it has {', '.join(types)}"
        )
    open_types = {name: type for name, type in types.items() if name not in given}
    feed = draw_all(open_types, sizes) | given
    try:
        verdict = measure(
            subject,
            feed,
            Limits(seconds, timeout),
            progress or (lambda text, share: None),
            options.check_load,
        )
    except NothingUsable as error:
        raise EpError(f"no EP can run the model: {error}", stage="select") from error
    warn_of_differences(verdict)
    return verdict._replace(kept=store.store(subject.entry, verdict))


def subject_of(path_or_bytes: Any, sess_options: SessionOptions | None) -> Subject:
    """What is calibrated where these are the arguments of :func:`calibrate`."""
    options = read_options(sess_options)
    if options.has_providers() and options.policy != MEASURED:
        raise OptionError(
            "the options have EPs, or another policy; calibrating is for "
            f"policy={MEASURED!r}, so leave them out"
        )
    request = SessionRequest(
        read_source(path_or_bytes), options, None, None, MEASURED, ()
    )
    model, _ = load(request.source, options, ())
    choice = resolve(
        None,
        None,
        policy=MEASURED,
        registry=registry_of_process,
        model_info=functools.partial(model_info, model),
        cpu_fallback=request.cpu_fallback,
    )
    assert isinstance(choice, PolicyChoice)
    return Subject(request, model.graph, choice, registry_of_process)
