"""scikit-learn's vectorizers of text, and pipelines with them, after conversion.

ONNX Runtime cannot load most of these models where the machine lacks the locale, en_US
unless the model says otherwise; here no locale needs to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="make test-exporters installs it")

from skl2onnx import to_onnx
from skl2onnx.common.data_types import StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import (
    CountVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

from .comparison import assert_predicts
from .datasets import Array

TEXTS: Final = np.array(
    [
        "The cat sat on the mat",
        "A dog sat on the log; the dog BARKED!",
        "cats and dogs are not birds",
        "Birds sing on the log",
        "THE MAT IS RED, the log is not",
        "red red red birds",
        "the the the cat",
        "und die Vögel SINGEN",
        "",
        "42 birds and 7 cats",
        "…",
        "log",
    ],
    dtype=object,
)
TOPICS: Final = np.array(list("pfaapfpafaff"), dtype=object)

# The converter takes only ASCII for letters unless told otherwise, and keeps words of
# one letter, which scikit-learn leaves out.
WORDS: Final = r"[a-zA-Zö]+"


def check(
    vectorizer: Any, options: Mapping[str, Any] | None = None, texts: Array = TEXTS
) -> None:
    fitted = vectorizer.fit(texts)
    types = [("x", StringTensorType([None, 1]))]
    chosen = {id(fitted): dict(options)} if options else None
    model = to_onnx(fitted, initial_types=types, options=chosen)
    expected = fitted.transform(texts).toarray()
    assert_predicts(model, {"x": texts[:, None]}, [expected.astype(np.float64)])


# Left out, since skl2onnx 1.20 counts otherwise: n-grams without stop words, which it
# leaves within them, and logarithms of counts, to which it adds one too early.
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"lowercase": False},
        {"binary": True},
        {"ngram_range": (1, 2)},
        {"ngram_range": (2, 2)},
        {"ngram_range": (1, 3)},
        {"ngram_range": (2, 3)},
        {"stop_words": ["the", "on", "and"]},
        {"stop_words": "english"},
        {"min_df": 2, "max_df": 5},
        {"max_features": 5, "ngram_range": (1, 2)},
        {"vocabulary": ["log", "cat", "the", "missing"]},
    ],
    ids=str,
)
def test_counts(settings: Mapping[str, Any]) -> None:
    check(CountVectorizer(token_pattern=WORDS, **settings))


@pytest.mark.filterwarnings(
    "ignore:The conversion of CountVectorizer may not work:UserWarning"
)
@pytest.mark.parametrize("lengths", [(1, 1), (1, 2), (2, 3)])
def test_counts_of_characters(lengths: tuple[int, int]) -> None:
    check(CountVectorizer(analyzer="char", ngram_range=lengths))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "l1"},
        {"norm": None},
        {"use_idf": False},
        {"smooth_idf": False},
        {"binary": True},
        {"ngram_range": (1, 2)},
        {"lowercase": False, "norm": None},
    ],
    ids=str,
)
def test_frequencies(settings: Mapping[str, Any]) -> None:
    check(TfidfVectorizer(token_pattern=WORDS, **settings))


@pytest.mark.parametrize("locale", ["en_US.UTF-8", "de_DE", "xx_NOWHERE", "C"])
def test_locales_need_not_be_installed(locale: str) -> None:
    check(TfidfVectorizer(token_pattern=WORDS), {"locale": locale})


@pytest.mark.parametrize("lowercase", [True, False])
def test_other_alphabets(lowercase: bool) -> None:
    texts = np.array(["Ёлка и ЁЖ", "ёж и Ёж", "ÀÉÎ àéî Straße", "ΣΑΣ και σας"], object)
    check(CountVectorizer(token_pattern=r"[^ ]+", lowercase=lowercase), texts=texts)


@pytest.mark.parametrize(
    "options",
    [{"separators": [" "]}, {"tokenexp": "[^ ]+"}, {"keep_empty_string": True}],
    ids=str,
)
def test_options_of_the_converter(options: Mapping[str, Any]) -> None:
    check(CountVectorizer(token_pattern=r"[^ ]+"), options)


@pytest.mark.filterwarnings(
    # skl2onnx declares one row for MultinomialNB
    "ignore:output '(label|probabilities)' has shape:onnxplug.errors.ModelWarning"
)
@pytest.mark.parametrize(
    "steps",
    [
        (
            TfidfVectorizer(token_pattern=WORDS, ngram_range=(1, 2)),
            LogisticRegression(),
        ),
        (CountVectorizer(token_pattern=WORDS), TfidfTransformer(), MultinomialNB()),
        (
            CountVectorizer(token_pattern=WORDS),
            RandomForestClassifier(9, random_state=0),
        ),
        (
            TfidfVectorizer(token_pattern=WORDS),
            SGDClassifier(loss="log_loss", random_state=0),
        ),
    ],
    ids=lambda steps: type(steps[-1]).__name__,
)
def test_classifiers(steps: tuple[Any, ...]) -> None:
    fitted = make_pipeline(*steps).fit(TEXTS, TOPICS)
    types = [("x", StringTensorType([None, 1]))]
    model = to_onnx(
        fitted, initial_types=types, options={id(fitted): {"zipmap": False}}
    )
    expected = [fitted.predict(TEXTS), fitted.predict_proba(TEXTS)]
    assert_predicts(model, {"x": TEXTS[:, None]}, expected)


def test_several_columns() -> None:
    both = np.column_stack([TEXTS, TEXTS[::-1]])
    columns = ColumnTransformer(
        [
            ("title", TfidfVectorizer(token_pattern=WORDS), 0),
            ("body", CountVectorizer(token_pattern=WORDS, ngram_range=(1, 2)), 1),
        ],
        sparse_threshold=0,
    )
    fitted = columns.fit(both)
    model = to_onnx(fitted, initial_types=[("x", StringTensorType([None, 2]))])
    # the row in the middle is alone in a batch, too, and the last has no words
    for rows in (both, both[::-1], both[8:9], both[3:4]):
        assert_predicts(model, {"x": rows}, [fitted.transform(rows)])
