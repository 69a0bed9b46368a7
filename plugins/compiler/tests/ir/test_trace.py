"""What is computed of sizes, with the guards that it holds under."""

from __future__ import annotations

from onnxplug_compiler.ir.trace import MOST, Trace


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
