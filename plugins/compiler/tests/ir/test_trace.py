"""What is computed of sizes, with the guards that it holds under."""

from __future__ import annotations

import math

from onnxplug_compiler.ir.trace import MOST, Trace
from onnxplug_compiler.ir.traced import common_divisor


def test_ranges_are_exact() -> None:
    """Floats would take the product of the largest sizes for one less."""
    trace = Trace([2, 3, 5])
    one, two, three = trace.sizes
    product = one * two * three
    assert product <= MOST**3 - 1
    evaluate = trace.finished([product])
    assert evaluate(2, 3, 5) == [30]
    assert evaluate(7, 3, MOST) == [21 * MOST]
    assert evaluate(*[MOST] * 3) is None


def test_products_of_many_sizes_have_no_end() -> None:
    trace = Trace([2] * 48)
    product = 1
    for size in trace.sizes:
        product = product * size
    assert product < 10**400
    evaluate = trace.finished([product])
    assert evaluate(*[2] * 48) == [2**48]
    assert evaluate(*[1] * 48) == [1]


def test_what_divides_sizes_is_asked_and_not_what_they_are() -> None:
    trace = Trace([6])
    (size,) = trace.sizes
    divisors = common_divisor(12 * size, 8), common_divisor(3 * size, 0, 24)
    evaluate = trace.finished([*divisors, common_divisor(5 * size, 0)])
    answered = 0
    for other in range(1, 80):
        found = evaluate(other)
        wanted = [math.gcd(12 * other, 8), math.gcd(3 * other, 24), 5 * other]
        assert found in (None, wanted)
        assert (found is not None) == (wanted[:2] == [8, 6])
        answered += found is not None
    assert answered == 20
    assert common_divisor(12, 18, 0) == 6
    assert common_divisor() == 0
