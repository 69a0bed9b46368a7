"""String operators against Python's own and ONNX Runtime's."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from onnxplug_kernels import UnsupportedAttribute
from onnxplug_kernels.patterns import compile_re2

from .node_oracles import onnx_runtime, run


def texts(values: Any) -> Any:
    return np.array(values, dtype=object)


def test_concat_broadcasts() -> None:
    result = run("StringConcat", texts([["a"], ["b"]]), texts(["x", "", "z"]))
    assert result.tolist() == [["ax", "a", "az"], ["bx", "b", "bz"]]
    scalar = run("StringConcat", texts("a"), texts("ü"))
    assert isinstance(scalar, np.ndarray)
    assert (scalar.shape, scalar.dtype, scalar.item()) == ((), object, "aü")


@pytest.mark.parametrize(
    "pattern",
    [
        r"www\.[\w.-]+\.\bcom\b",
        r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)",
        r"\d+",
        r"\D+",
        r"[\d_]+",
        r"[^\s\W]+",
        r"[\W]+",
        r"\w+",
        r"[[:alpha:]]+",
        r"[^[:digit:]]+",
        r"[[:^digit:][:digit:]]+",
        r"\pL+",
        r"\p{Lu}\p{^Lu}+",
        r"[\p{L}\P{L}]+",
        r"\p{Greek}*",
        r"(?U)a+.*",
        r"(?i)ABC",
        r"a(?i)BC",
        r"(a(?i)B)c",
        r"(?i:AB)c",
        r"(?i)A(?-i)bc",
        r"(?s).+",
        r".+",
        r"abc$\n?",
        r"(?m)abc$\n.*",
        r"(?m:abc$)\n.*",
        r"\Q1+1\E=2",
        r"\x{61}b\x63",
        r"(?P<first>a)bc",
        r"(?<first>a)bc",
        r"a{,2}",
        r"a{2,}",
        r"[]a]+",
        r"[a&&b~~|[]+",
        r"abc\z",
        r"",
    ],
)
def test_patterns_match_as_in_re2(pattern: str) -> None:
    x = texts(
        [
            ["abc", "ABC", "aBC", "aBc", "abc\n", "abc\nx"],
            ["12", "٣", "a_1", "é", "Éa", " \t"],
            ["1+1=2", "a{,2}", "aaa", "]a", "a&b~|[", ""],
            ["www.google.com", "x@gmail.com", "a\vb", "-", "aé", "\n"],
        ]
    )
    result = run("RegexFullMatch", x, pattern=pattern)
    expected = onnx_runtime(
        "RegexFullMatch", x, outputs=(TensorProto.BOOL,), pattern=pattern
    )
    assert result.dtype == bool
    assert dict(zip(x.flat, result.flat, strict=True)) == dict(
        zip(x.flat, expected[0].flat, strict=True)
    )


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", r"missing \): \("),
        ("[a", r"missing \]: \[a"),
        (r"\p{Nothing}", r"invalid character class range: \\p\{Nothing\}"),
        ("[[:nope:]]", "invalid character class range"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("(a{1000}){1000}", "invalid repetition size"),
        ("\ud800", "half of a surrogate pair"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_patterns_refused(pattern: str, message: str, capfd: Any) -> None:
    with pytest.raises(ValueError, match=message):
        compile_re2(pattern)
    with pytest.raises(UnsupportedAttribute, match="pattern"):
        run("RegexFullMatch", texts(["a"]), pattern=pattern)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|aa)+b", "(.*a){20}b", "(a?){30}a{30}b"]
)
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    began = time.monotonic()
    assert not run("RegexFullMatch", texts(["a" * 5000]), pattern=pattern)[0]
    assert time.monotonic() - began < 5


def test_texts_of_any_characters_are_matched() -> None:
    x = texts(["x\0y", "日本語", "", "\U0001f600", "a\n"])
    assert run("RegexFullMatch", x, pattern=".*").tolist() == [True] * 4 + [False]
    assert run("RegexFullMatch", x, pattern=r"x\x00y").tolist() == [True] + [False] * 4
    assert run("RegexFullMatch", x, pattern="x\0y").tolist() == [True] + [False] * 4
    assert run("RegexFullMatch", x, pattern=".{3}").tolist() == [True] * 2 + [False] * 3
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        run("RegexFullMatch", texts(["\udc00"]), pattern=".")


@pytest.mark.parametrize("maxsplit", [None, 0, 1, 2, 9])
@pytest.mark.parametrize("delimiter", [None, "", ",", "--"])
def test_split(delimiter: str | None, maxsplit: int | None) -> None:
    x = texts([["  a  b  c  ", "a,b,,c"], ["a--b", "x"]])
    attributes: dict[str, Any] = {"delimiter": delimiter, "maxsplit": maxsplit}
    attributes = {k: v for k, v in attributes.items() if v is not None}
    parts, counts = run("StringSplit", x, output_count=2, **attributes)
    expected = onnx_runtime(
        "StringSplit", x, outputs=(TensorProto.STRING, TensorProto.INT64), **attributes
    )
    assert parts.tolist() == expected[0].tolist()
    assert counts.tolist() == expected[1].tolist()
    assert counts.dtype == np.int64


def test_split_of_nothing() -> None:
    parts, counts = run("StringSplit", texts(["", " "]))
    assert (parts.shape, counts.tolist()) == ((2, 0), [0, 0])
    parts, counts = run("StringSplit", texts([]).reshape(0, 3), delimiter=",")
    assert (parts.shape, counts.shape) == ((0, 3, 0), (0, 3))


def normalized(values: Any, **attributes: Any) -> Any:
    return run("StringNormalizer", texts(values), **attributes).tolist()


def test_normalizer_removes_stop_words() -> None:
    words = ["Monday", "tuesday", "TUESDAY", ""]
    assert normalized(words, stopwords=("Tuesday",)) == ["Monday", ""]
    exact = normalized([words], stopwords=("tuesday",), is_case_sensitive=1)
    assert exact == [["Monday", "TUESDAY", ""]]
    assert normalized(["a"], stopwords=("a",)) == [""]
    assert normalized([["a"]], stopwords=("a",)) == [[""]]


def test_normalizer_changes_case() -> None:
    assert normalized(["Äb"], case_change_action="UPPER") == ["ÄB"]
    assert normalized(["Äb"], case_change_action="LOWER", locale="xx_NOWHERE") == ["äb"]
    turkish = {"locale": "tr_TR.UTF-8"}
    assert normalized(["Iİ"], case_change_action="LOWER", **turkish) == ["ıi"]
    assert normalized(["ıi"], case_change_action="UPPER", **turkish) == ["Iİ"]


def test_normalizer_refuses() -> None:
    with pytest.raises(ValueError, match=r"\(2, 1\)"):
        normalized([["a"], ["b"]])
    with pytest.raises(ValueError, match="'TITLE'"):
        normalized(["a"], case_change_action="TITLE")


POOL = (2, 3, 5, 2, 3, 3, 5, 9, 9, 2, 3, 5)
GRAMS = [(2,), (3,), (5,), (2, 3), (3, 5), (9, 9), (2, 3, 5)]


def counted(row: list[int], lengths: range, skips: int) -> list[int]:
    counts = []
    for gram in GRAMS:
        steps = range(1, skips + 2) if len(gram) > 1 else range(1, 2)
        counts.append(
            sum(
                tuple(row[start : start + len(gram) * step : step]) == gram
                for step in steps
                for start in range(len(row))
                if len(gram) in lengths
            )
        )
    return counts


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize(
    ("mode", "skips", "lengths"),
    [
        *itertools.product(
            ("TF", "IDF", "TFIDF"), (0, 1, 5), (range(1, 2), range(2, 3), range(1, 4))
        )
    ],
)
def test_tf_idf(mode: str, skips: int, lengths: range, text: bool) -> None:
    x = np.random.default_rng(1).choice([2, 3, 5, 7, 9], (4, 30))
    indexes = (6, 0, 3, 1, 2, 4, 5)
    weights = np.arange(2, 9)
    attributes: dict[str, Any] = {
        "mode": mode,
        "ngram_counts": (0, 3, 9),
        "ngram_indexes": indexes,
        "weights": tuple(weights.astype(float).tolist()),
        "max_skip_count": skips,
        "min_gram_length": lengths[0],
        "max_gram_length": lengths[-1],
    }
    pool: dict[str, Any] = {"pool_int64s": POOL}
    if text:
        pool = {"pool_strings": tuple(map(str, POOL))}
    tokens = x.astype(str).astype(object) if text else x
    expected = np.zeros((4, 7))
    expected[:, indexes] = [counted(row, lengths, skips) for row in x.tolist()]
    if mode == "IDF":
        expected = np.minimum(expected, 1)
    if mode != "TF":
        expected[:, indexes] *= weights
    result = run("TfIdfVectorizer", tokens, **attributes, **pool)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)
    one = run("TfIdfVectorizer", tokens[1], **attributes, **pool)
    np.testing.assert_array_equal(one, expected[1])


def test_tf_idf_of_too_few_tokens() -> None:
    attributes: dict[str, Any] = {
        "mode": "TF",
        "ngram_counts": (0, 0),
        "ngram_indexes": (3,),
        "pool_int64s": (1, 2),
        "max_skip_count": 0,
        "min_gram_length": 2,
        "max_gram_length": 2,
    }
    short = run("TfIdfVectorizer", np.array([[1]], dtype=np.int32), **attributes)
    assert short.tolist() == [[0, 0, 0, 0]]
    for rows in ((), (1,), (3,), (0,)):
        none = run("TfIdfVectorizer", np.zeros((*rows, 0), np.int32), **attributes)
        assert none.tolist() == np.zeros((*rows, 4)).tolist()
    no_rows = run("TfIdfVectorizer", np.zeros((0, 5), np.int32), **attributes)
    assert no_rows.shape == (0, 4)
    attributes["pool_int64s"] = (1, 2, 1)
    with pytest.raises(ValueError, match="multiple of 2"):
        run("TfIdfVectorizer", np.array([1, 2]), **attributes)
