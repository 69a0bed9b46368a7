"""Sizes as expressions of names."""

from __future__ import annotations

import random

import pytest

from onnxplug.authoring.sizes import (
    Extent,
    Size,
    TooLong,
    broadcast,
    differ,
    exact_quotient,
    is_natural,
    maximum,
    minimum,
    named,
    names_in,
    product,
    quotient,
    substituted,
)

N, S, H = map(named, "NSH")
NAMES = {"N": N, "S": S, "H": H}


def _random_size(choose: random.Random, depth: int) -> tuple[Extent, str]:
    """A size, and the Python expression that it was made by."""
    if depth == 0:
        if choose.random() < 0.4:
            number = choose.randrange(5)
            return number, str(number)
        name = choose.choice("NSH")
        return NAMES[name], name
    one, one_text = _random_size(choose, depth - 1)
    other, other_text = _random_size(choose, depth - 1)
    match choose.randrange(6):
        case 0:
            return one + other, f"({one_text} + {other_text})"
        case 1:
            return one - other, f"({one_text} - {other_text})"
        case 2:
            return one * other, f"({one_text} * {other_text})"
        case 3:
            divisor = choose.randrange(1, 6)
            found = quotient(one, divisor)
            assert found is not None
            return found, f"({one_text} // {divisor})"
        case 4:
            smaller = minimum(one, other)
            return (
                (one, one_text)
                if smaller is None
                else (
                    smaller,
                    f"min({one_text}, {other_text})",
                )
            )
    larger = maximum(one, other)
    return (
        (one, one_text)
        if larger is None
        else (
            larger,
            f"max({one_text}, {other_text})",
        )
    )


@pytest.mark.parametrize("first", range(0, 400, 40))
def test_expressions_have_the_value_that_python_gives_them(first):
    for seed in range(first, first + 40):
        check_value(random.Random(seed))


def check_value(choose):
    size, text = _random_size(choose, choose.randrange(1, 4))
    if not isinstance(size, int):
        assert Size.parse(str(size)) == size
    for _ in range(5):
        sizes = {name: choose.choice([0, 1, 2, 3, 7, 50]) for name in "NSH"}
        expected = eval(text, {"min": min, "max": max}, sizes)
        assert substituted(size, sizes) == expected, (text, str(size), sizes)
        if is_natural(size):
            assert expected >= 0


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (N + 1, "N + 1"),
        (1 + S + N, "N + S + 1"),
        (2 * N * S - 3, "2*N*S - 3"),
        (-N, "-N"),
        (quotient(N + 3, 2), "(N + 1)//2 + 1"),
        (quotient(quotient(N + 1, 2) + 1, 2), "(N + 3)//4"),
        (quotient(4 * N + 6 * S, 2), "2*N + 3*S"),
        (quotient(N, 2) * S, "(N//2)*S"),
        (maximum(0, N - 1), "max(0, N - 1)"),
        (maximum(N + 1, N), "N + 1"),
        (minimum(N * S, 2 * N * S), "N*S"),
        (broadcast(S, N), "broadcast(N, S)"),
    ],
)
def test_expressions_are_written_in_one_way(size, text):
    assert str(size) == text
    assert Size.parse(text) == size


def test_equal_sizes_are_equal_however_they_came_about():
    assert (N + S) * (N - S) == N * N - S * S
    assert hash(N * S) == hash(S * N)
    assert N - N == 0
    assert product([N, 2, S]) == 2 * S * N
    assert N + 1 != N and N != "N"
    assert names_in(quotient(N + S, 2) * H) == {"N", "S", "H"}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1 - quotient(maximum(0, 3 - N), 2), True),
        (2 - maximum(0, 3 - N), False),
        (64 - minimum(N, 64), True),
        (63 - minimum(N, 64), False),
        (N - quotient(maximum(0, 3 - N), 4), True),
        (9 - S, False),
        (9 - minimum(N, 3) * S, False),
    ],
)
def test_what_is_taken_away_may_have_a_bound(size, expected):
    assert is_natural(size) is expected


@pytest.mark.parametrize(
    ("dividend", "divisor", "expected"),
    [
        (N * S * 768, N * 768, S),
        (N * S * 768, 12 * 64 * S, N),
        ((N + 1) * (S + 2), S + 2, N + 1),
        (N * N - S * S, N + S, N - S),
        (N * 6, 4, None),
        (N + S, N, None),
        (N, 0, None),
        (12, 4, 3),
    ],
)
def test_a_quotient_is_exact_or_there_is_none(dividend, divisor, expected):
    assert exact_quotient(dividend, divisor) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (N, 1, N),
        (1, 1, 1),
        (N, 5, 5),
        (0, N, 0),
        (N, N, N),
        (broadcast(N, S), N, broadcast(N, S)),
        (minimum(N, 64), N, N),
        (maximum(0, N - 1), N - 1, N - 1),
    ],
)
def test_sizes_that_broadcast(one, other, expected):
    assert broadcast(one, other) == broadcast(other, one) == expected


def test_what_may_be_empty_or_one_is_not_taken_for_different():
    assert differ(N + 1, 0) and differ(N, -1) and differ(N + S + 3, N + 2)
    assert not differ(N, 0) and not differ(N, 1) and not differ(N, S)
    assert quotient(N, 0) is None and quotient(N, -2) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("batch", named("batch")),
        ("batch-size", named("batch-size")),
        ("input.1", named("input.1")),
        ("past + 1", named("past") + 1),
        ("h//2*4", quotient(named("h"), 2) * 4),
        ("2*(N + S)", 2 * N + 2 * S),
        ("min(N, 4)", minimum(N, 4)),
        *[
            (text, None)
            for text in ("", "?", "3", "floor(h/2)", "a b", "a +", "(a", "N - N")
        ],
        ("(" * 9000, None),
        ("(" * 200 + "N" + ")" * 200, None),
        ("min(" * 100 + "N" + ", 1)" * 100, None),
        ("-" * 301 + "N", -named("N")),
        ("N//0", None),
    ],
)
def test_names_in_models_are_read(text, size):
    assert Size.parse(text) == size


def _many(kind: str) -> Extent:
    """What would be of millions of terms, or of characters."""
    if kind == "terms":
        return product(named(f"a{i}") + named(f"b{i}") for i in range(40))
    if kind == "factors":
        return product([N] * 10_000)
    if kind == "sum":
        return sum(named(f"a{i}") for i in range(10_000))
    combine = {"min": minimum, "max": maximum, "broadcast": broadcast}[kind]
    size: Extent = N
    for i in range(1000):
        found = combine(size, named(f"a{i}") * 3 + 2)
        assert found is not None
        size = found
    return size


@pytest.mark.parametrize("kind", ["terms", "factors", "sum", "min", "max", "broadcast"])
def test_what_would_grow_without_end_gets_a_name(kind):
    size = _many(kind)
    assert len(str(size)) < 5000
    assert size == _many(kind) and differ(size + 1, 0)


def test_what_may_be_negative_gets_no_name():
    with pytest.raises(TooLong):
        sum(-named(f"a{i}") for i in range(1000))


def test_an_expression_in_a_model_does_not_grow_without_end():
    text = "*".join(f"(a{i} + b{i})" for i in range(30))
    assert Size.parse(text) == Size.parse(text) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seq", 5),
        ("past + seq", 8),
        ("2*past*seq - 1", 29),
        ("(seq + 1)//2", 3),
        ("min(past, seq)", 3),
        ("max(0, past - seq)", 0),
        ("broadcast(past, seq)", 5),
        ("0*other + seq", 5),
        ("other + seq", None),
        ("min(past, other)", None),
    ],
)
def test_a_size_has_a_number_for_given_names(text, expected):
    size = Size.parse(text)
    assert size.evaluate({"past": 3, "seq": 5}) == expected


def test_equal_sizes_are_written_alike():
    one, other = Size.parse("seq + past"), Size.parse("past+seq")
    assert one == other
    assert str(one) == str(other) == "past + seq"
    assert one != Size.parse("past")
