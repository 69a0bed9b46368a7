"""Makes a session's model anew when what is fed belies sizes that it was made for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug.errors import LoadCancelled, ModelError, RunCancelled, RunError
from onnxplug.run.run import deadline_of, why_cancelled
from onnxplug.session.opening import open_model
from onnxplug.shapes.symbols import sizes_in_words

if TYPE_CHECKING:
    from onnxplug.options import RunOptions
    from onnxplug.run.profiling import Profile
    from onnxplug.session.opening import OpenedModel
    from onnxplug.session.request import SessionRequest
    from onnxplug.shapes.symbols import Symbol


def remake(
    request: SessionRequest,
    before: OpenedModel,
    belied: frozenset[Symbol],
    extra_outputs: Sequence[str],
    profile: Profile | None,
    run_options: RunOptions | None,
) -> OpenedModel:
    """Open the model of *request* without what a run *belied*; the caller closes it.

    Args:
        before: the model as it was opened, whose EPs are those of the new one.
        extra_outputs, profile: as of ``open_model``.
        run_options: those of the run, which is what can cancel this: the session is
            made already.

    Raises:
        RunCancelled: the run was cancelled, or its time is over.
        ModelError: the model's files are not there any more, or have changed.
        OnnxplugError: see ``InferenceSession``.
    """
    import logging  # which most sessions do without

    sizes = sizes_in_words(belied)
    if belied <= request.belied:
        raise RunError(
            f"what is fed differs in {sizes}, for which the model was made anew "
            "before; this is a defect of onnxplug, please report it"
        )
    logging.getLogger("onnxplug.session").debug(
        "the model is made anew, since sizes that it states alike differ: %s", sizes
    )
    deadline = deadline_of(run_options)
    changed = request._replace(belied=request.belied | belied)
    try:
        with request.options.cancelled_by(
            lambda: bool(why_cancelled(run_options, deadline))
        ) as options:
            return open_model(
                changed._replace(options=options),
                extra_outputs,
                before.resolved,
                profile,
            )
    except LoadCancelled as error:
        raise RunCancelled(why_cancelled(run_options, deadline)) from error
    except ModelError as error:
        raise type(error)(
            f"what is fed differs in {sizes}, so that the model has to be read again: "
            f"{error}; leave its files as they are while sessions use it, or make the "
            "session from its bytes"
        ) from error
