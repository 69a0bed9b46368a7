"""How the time of an examination is shared, by the processor and by the clock."""

from __future__ import annotations

import math
import time

import pytest

from onnxplug_testing.conformance import Trial, find_subject
from onnxplug_testing.conformance.allotment import LEAST, Allotment

SHARES = [0.1, 0.8, *[0.4] * 90, 1.2, 3.0, 8.0]
SECONDS, END = 18.0, 29.0


def carried_out(beside: float, *, first: float = 0.0) -> tuple[list[float], float]:
    """What each check has that uses it all, and when the last ends.

    Args:
        beside: what each takes besides, in s.
        first: when the first begins.
    """
    now, given = first, []
    allotment = Allotment(SHARES, SECONDS, END)
    for share in SHARES:
        seconds, began = allotment.next(share, now), now
        given.append(seconds)
        now += seconds + beside
        allotment.spent(share, seconds, now - began)
    return given, now


def shared(seconds: float) -> list[float]:
    return [seconds * share / sum(SHARES) for share in SHARES]


def test_where_the_clock_leaves_enough_each_has_its_share_of_the_processor() -> None:
    given, end = carried_out(0.05)
    assert given == pytest.approx(shared(SECONDS), rel=0.05)
    assert end < END


def test_what_a_check_leaves_is_for_others() -> None:
    allotment = Allotment([1.0, 1.0, 2.0], 8.0, math.inf)
    assert allotment.next(1.0, 0.0) == 2.0
    allotment.spent(1.0, 0.4, 0.4)
    assert allotment.next(1.0, 0.4) == pytest.approx((8 - 0.4) / 3)
    allotment.spent(1.0, 5.0, 5.0)  # more than it has: that is not of others
    assert allotment.next(2.0, 5.4) == pytest.approx((8 - 0.4) * 2 / 3)


def test_checks_come_in_any_order() -> None:
    allotment = Allotment([1.0, 1.0, 2.0], 8.0, math.inf)
    assert allotment.next(2.0, 0.0) == 4.0
    allotment.spent(2.0, 1.0, 1.0)
    assert allotment.next(1.0, 1.0) == pytest.approx((8 - 1) / 2)


@pytest.mark.parametrize("beside", [0.13, 0.15, 0.17])
def test_on_a_slow_machine_all_have_less_and_the_end_is_the_same(beside) -> None:
    given, end = carried_out(beside, first=2.0)
    assert end == pytest.approx(END, abs=0.5)
    parts = [one / full for one, full in zip(given, shared(SECONDS), strict=True)]
    assert min(parts) >= LEAST and max(parts) < 1
    assert max(parts) < 2 * min(parts)  # nobody has what another lacks


def test_each_has_something_however_late_it_is() -> None:
    given, end = carried_out(1.0)
    assert given[-10:] == pytest.approx(shared(LEAST * SECONDS)[-10:])
    assert end > END
    allotment = Allotment([1.0], 4.0, 10.0)
    assert allotment.next(1.0, 20.0) == LEAST * 4.0
    assert allotment.until(20.0) == 20.0 + LEAST * 4.0


def test_a_check_is_out_of_time_when_the_clock_says_so() -> None:
    subject = find_subject("cpu")
    now = time.monotonic()
    trials = [
        Trial("costs", "estimates", subject, seconds=60.0, until=until)
        for until in (now + 60.0, now)
    ]
    assert [trial.has_time for trial in trials] == [True, True]  # for a first case
    for trial in trials:
        trial.count()
    assert [trial.has_time for trial in trials] == [True, False]
    assert list(trials[1].in_time(range(3))) == []
    assert trials[1].untried == {"no time was left": 3}
