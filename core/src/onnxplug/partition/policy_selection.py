"""Tries the EPs that a policy chooses on the model, until they claim all of it.

Each is created when its turn comes, and asked what it claims of the prepared model.
One that would run nothing is closed again, and the policy's next is tried.  The CPU EP,
as the last resort, gets what the others leave, and is not asked here.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug.errors import EpError, OnnxplugError, OptionError
from onnxplug.partition import Candidate
from onnxplug.partition.outcomes import commonest
from onnxplug.partition.report import EpOutcome
from onnxplug.partition.survey import Answers, Survey, count_nodes
from onnxplug.selection import CPU, ChosenEp, FailedEp, Origin, ProviderRequest
from onnxplug.selection.choose import (
    close,
    do_without_failed,
    kinds_of,
    warn_if_broken,
)

if TYPE_CHECKING:
    from onnxplug.ep import CapabilityReport, EpDevice
    from onnxplug.graph import Graph
    from onnxplug.partition.pins import Pins
    from onnxplug.selection.policy_choice import PolicyChoice

Amend: TypeAlias = "Callable[[Graph, Candidate, CapabilityReport], CapabilityReport]"

Make: TypeAlias = Callable[[ProviderRequest, int], ChosenEp]
"""Creates the EP of a request, at its rank."""


_LAST: Final = sys.maxsize
"""The rank of the CPU EP as the last resort."""


class _PassedOver(Record):
    """An EP that was closed again; *claimed* nodes, which others have."""

    ep: ChosenEp
    claimed: int
    reason: str


class PolicyEps:
    """The EPs of one session, of which a policy says who is next.

    Attributes:
        chosen: those that the session has, best first.
        failed: those that failed.
        answers: what they said of the model.
        amend: changes what an EP says of a graph, if something does.
        pins: which nodes the user wants on which EP, if any.
    """

    def __init__(self, policy: PolicyChoice, make: Make) -> None:
        self.policy = policy
        self.chosen: list[ChosenEp] = []
        self.failed: list[FailedEp] = []
        self.answers = Answers()
        self.amend: Amend | None = None
        self.pins: Pins | None = None
        self._make = make
        self._considered: list[str] = []
        self._ranks = itertools.count()
        self._waiting: ChosenEp | None = None
        self._passed_over: list[_PassedOver] = []
        self._complained = 0

    def start(self) -> None:
        """Create the EP that computes constants ahead.

        That is the CPU EP, or without it the policy's first choice.

        Raises:
            OptionError: an option is not valid.
        """
        named = [each for each in self.policy.requests if each.name == CPU]
        if named or self.policy.cpu_fallback:
            request = named[0] if named else ProviderRequest(CPU, origin=Origin.IMPLIED)
            ep = self._create(request, _LAST)
            if ep is not None and not named:
                self._replace(ep, ep._replace(request=None))
        if not self.chosen:
            self._waiting = self._next()

    def choose(
        self, graph: Graph, settle_weights: Callable[[Sequence[Candidate]], None]
    ) -> None:
        """Try EPs on *graph*, which is prepared, until each node is claimed.

        Args:
            settle_weights: what is done with quantised weights for these EPs.

        Raises:
            OnnxplugError: nothing that the policy chose works.
        """
        new, self._waiting = self._waiting, None
        while True:
            tried = [ep for ep in self.chosen if ep.rank < _LAST]
            try:
                if tried:
                    settle_weights(self._candidates(self.chosen))
                left = count_nodes(graph)
                if tried and left:
                    survey = Survey(graph, self._candidates(tried), self._ask)
                    left = survey.left
                    if new is not None and not survey.owned(tried.index(new)):
                        self._pass_over(new, survey, tried.index(new))
            except EpError as error:
                self.fail(error)
                if new is not None and new.name == error.ep:
                    new = None
                continue
            if not left and self.chosen:
                break
            new = self._next()
            if new is None:
                break
        self._complain()

    def _candidates(self, eps: Sequence[ChosenEp]) -> list[Candidate]:
        return [Candidate.of(ep, self.pins) for ep in eps]

    def _ask(self, graph: Graph, candidate: Candidate) -> CapabilityReport:
        report = self.answers.ask(graph, candidate)
        if self.amend is None:
            return report
        return self.amend(graph, candidate, report)

    def fail(self, error: EpError) -> None:
        """Do without the EP that failed; :meth:`choose` finds another.

        Raises:
            EpError: it is the implied CPU EP, for which nobody stands in.
        """
        ep = next(ep for ep in self.chosen if ep.name == error.ep)
        if ep.request is None:
            raise error
        self._remove(ep)
        self.failed.append(FailedEp(ep.request, error, ep.rank))
        self.answers.forget()  # they may have depended on what that one had
        for passed in [each for each in self._passed_over if each.claimed]:
            self._passed_over.remove(passed)
            self._considered.remove(passed.ep.name)
            self.answers.ask_again(passed.ep.name)

    def outcomes(self) -> list[tuple[int, EpOutcome]]:
        """What became of EPs that the session does not have and that did not fail.

        Each with its rank.
        """
        found = [
            (each.ep.rank, _outcome(each.ep, "passed over", each))
            for each in self._passed_over
        ]
        reported = {CPU, *self._considered}
        next_ones = [*self.policy.requests, *self.policy.without(reported)]
        for request in next_ones:
            if request.name not in reported:
                reported.add(request.name)
                reason = "every node has an EP that the policy prefers"
                kinds = kinds_of(request.devices)
                outcome = EpOutcome(request.name, kinds, "not needed", reason)
                found.append((_LAST - 1, outcome))
        others: dict[str, list[EpDevice]] = {}
        for pair in self.policy.offered:
            if pair.ep_name not in reported:
                others.setdefault(pair.ep_name, []).append(pair)
        for name, pairs in others.items():
            reason = f"{self.policy.name} does not choose it"
            outcome = EpOutcome(name, kinds_of(pairs), "not chosen", reason)
            found.append((_LAST + 1, outcome))
        return found

    def _next(self) -> ChosenEp | None:
        """The next EP by the policy, created; ``None``: there is none."""
        while True:
            requests = self.policy.without(self._considered)
            if not requests or [each.name for each in requests] == [CPU]:
                return None
            request, rank = requests[0], next(self._ranks)
            self._considered.append(request.name)
            if request.name != CPU:
                ep = self._create(request, rank)
                if ep is not None:
                    return ep
                continue
            for ep in self.chosen:
                if ep.name == CPU:  # there already, and now more than the last resort
                    return self._replace(ep, ep._replace(rank=rank))

    def _create(self, request: ProviderRequest, rank: int) -> ChosenEp | None:
        try:
            ep = self._make(request, rank)
        except OptionError:
            raise
        except OnnxplugError as error:
            self.failed.append(FailedEp(request, error, rank))
            return None
        self.chosen.append(ep)
        self.chosen.sort(key=lambda each: each.rank)
        return ep

    def _replace(self, ep: ChosenEp, by: ChosenEp) -> ChosenEp:
        self.chosen.remove(ep)
        self.chosen.append(by)
        self.chosen.sort(key=lambda each: each.rank)
        return by

    def _remove(self, ep: ChosenEp) -> None:
        self.chosen.remove(ep)
        close([ep])

    def _pass_over(self, ep: ChosenEp, survey: Survey, position: int) -> None:
        claimed = survey.claimed(position)
        refusals = [*survey.refusals(ep.name)]
        reasons = commonest(str(passed.reason) for _, passed in refusals)
        what = "nothing that is left" if claimed else "nothing"
        self._passed_over.append(
            _PassedOver(ep, claimed, f"claims {what} of this model: {reasons}")
        )
        self.answers.do_without(ep.name, refusals)
        self._remove(ep)

    def _complain(self) -> None:
        """Warn of what failed since this was called, or raise it."""
        new = self.failed[self._complained :]
        self._complained = len(self.failed)
        implied = [each for each in new if each.request.origin is Origin.IMPLIED]
        do_without_failed([each for each in new if each not in implied], self.chosen)
        for failure in implied:
            warn_if_broken(failure)


def _outcome(ep: ChosenEp, state: str, passed: _PassedOver) -> EpOutcome:
    return EpOutcome(ep.name, ep.device, state, passed.reason, passed.claimed)
