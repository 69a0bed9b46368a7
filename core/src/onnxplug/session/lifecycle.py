"""The life of a session: its model is opened, made anew, and closed.

A session whose model was opened by an earlier process begins as that left it: see
:mod:`onnxplug.session.start`.  Whatever such a start cannot do has the model opened.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from onnxplug.authoring.locks import new_lock, new_rlock
from onnxplug.errors import RunError
from onnxplug.session.closing import close_model
from onnxplug.session.start import kept_start
from onnxplug.session.variants import Variants

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.options import RunOptions
    from onnxplug.run.profiling import Profile
    from onnxplug.selection.request import ProviderRequest
    from onnxplug.session.opening import OpenedModel
    from onnxplug.session.request import SessionRequest
    from onnxplug.session.runner import ModelRunner
    from onnxplug.session.start.runner import StartRunner
    from onnxplug.shapes.symbols import Symbol


class SessionLifecycle:
    """What a session is of, and how long."""

    _request: SessionRequest
    _runner: ModelRunner | StartRunner
    _model: OpenedModel | None
    _closer: weakref.finalize[..., Any]

    def _open(self) -> None:
        """Make the session that is requested."""
        options = self._request.options
        if not options.enable_profiling:
            self._start((), None, None)
            return
        from onnxplug.session.profiling import new_profile

        with new_profile(options) as profile:
            self._start((), None, profile)

    def _start(
        self,
        extra_outputs: Sequence[str],
        resolved: Sequence[ProviderRequest] | None,
        profile: Profile | None,
    ) -> None:
        """Make the session or, with *extra_outputs*, a variant of one.

        Args:
            resolved: the EPs if they are resolved already.
            profile: what is recorded in; that of a variant is the session's, which
                ends it.
        """
        self._extra_outputs = extra_outputs
        self._profiling_start = 0 if profile is None else profile.start_time_ns
        self._variants: Variants[Self] = Variants()
        self._lock = new_lock()
        self._opening = new_rlock()
        self._model = None
        start = None
        if resolved is None and profile is None and not extra_outputs:
            start = kept_start(self._request)
            runner = None if start is None else start.runner()
            if runner is not None:
                self._closer = weakref.finalize(self, runner.close)
                self._request = self._request._replace(files=runner.files)
                self._runner = runner
                runner.attach(self)
                return
        opened = self._opened_model(resolved, profile)
        self._hold(opened, self._request, profile)
        if start is not None:
            start.keep(opened)

    def _opened_model(
        self,
        resolved: Sequence[ProviderRequest] | None = None,
        profile: Profile | None = None,
    ) -> OpenedModel:
        from onnxplug.session.opening import open_model  # which a start does without

        return open_model(self._request, self._extra_outputs, resolved, profile)

    @property
    def _opened(self) -> OpenedModel:
        """The model, opened now if the session has only begun."""
        if self._model is None:
            with self._opening:
                if self._model is None:
                    begun, start = self._closer, cast("StartRunner", self._runner)
                    opened = self._opened_model()
                    self._hold(opened, self._request, None)
                    if begun.alive:
                        start.detach(self, opened.eps)
                    else:  # of a closed session only facts are wanted
                        self._closer()
                        start.detach(self)
                        opened.detach(self)
                    begun()
        assert self._model is not None
        return self._model

    @property
    def _built(self) -> BuiltModel:
        return self._opened.built

    @property
    def _full(self) -> ModelRunner:
        """What runs the model in every way."""
        if self._model is None and not self._closer.alive:
            raise _closed()
        _ = self._opened
        return cast("ModelRunner", self._runner)

    def _hold(
        self, opened: OpenedModel, request: SessionRequest, profile: Profile | None
    ) -> None:
        """Run *opened*, which is what *request* asks for, from now on."""
        from onnxplug.session.runner import ModelRunner

        # closes what is dropped: a session, one that could not be made included, and
        # one that is alive when the interpreter ends
        ended = None if self._extra_outputs else profile
        closer = weakref.finalize(self, close_model, opened.built, ended)
        runner = ModelRunner(opened.built, profile, opened.declared)
        request = request._replace(files=opened.files)
        # nothing is called meanwhile, so that no interrupt divides these; with the
        # model goes its runner, in other threads too
        self._closer, self._runner = closer, runner
        self._request, self._model = request, opened
        opened.attach(self)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the session's lock, which another one replaces when EPs are set."""
        while True:
            lock = self._lock
            with lock:
                if self._lock is lock:
                    yield
                    return

    def _in_use(self) -> ModelRunner:
        """What runs the model, which stays open until it is released."""
        runner = self._full
        while not runner.built.acquire():
            if runner is self._runner:
                raise _closed()
            runner = self._full  # of set_providers in another thread
        return runner

    def _forget(
        self,
        belied: frozenset[Symbol],
        runner: ModelRunner | StartRunner,
        run_options: RunOptions | None = None,
    ) -> None:
        """Make the model anew without what a run by *runner* has *belied*."""
        from onnxplug.session.remaking import remake  # which few feeds need

        with self._locked():
            self._in_use().built.release()  # a closed session makes no other
            if self._runner is not runner:
                return  # another thread has made it anew, and the run is done by that
            before, closer, request = self._opened, self._closer, self._request
            extra, profile = self._extra_outputs, runner.profile
            opened = remake(request, before, belied, extra, profile, run_options)
            request = request._replace(belied=request.belied | belied)
            try:
                self._hold(opened, request, profile)
                closer.detach()  # as it would end the profile
            finally:
                left = before if self._model is opened else opened
                try:
                    left.built.close()
                finally:
                    left.detach(self, self._opened.eps)

    def _variant(self, names: Collection[str]) -> Self:
        """This session with more outputs."""
        with self._locked():
            self._in_use().built.release()  # a closed session makes no other
            return self._variants.get(names, self._made_variant)

    def _made_variant(self, extra_outputs: tuple[str, ...]) -> Self:
        variant = type(self).__new__(type(self))
        variant._request = self._request
        variant._start(extra_outputs, self._opened.resolved, self._full.profile)
        return variant


_Session = TypeVar("_Session", bound=SessionLifecycle)


def reopened(kind: type[_Session], request: SessionRequest) -> _Session:
    """A session like another one."""
    session = kind.__new__(kind)
    session._request = request.unpickled()
    session._open()
    return session


def _closed() -> RunError:
    return RunError("the session is closed; create another one to run the model")
