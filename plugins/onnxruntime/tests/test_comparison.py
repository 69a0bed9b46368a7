"""The page on moving from ONNX Runtime lists every name that is missing."""

from __future__ import annotations

from . import comparison


def test_what_is_missing_has_a_reason() -> None:
    assert set(comparison.missing()) == set(comparison.REASONS)


def test_the_page_lists_it() -> None:
    how = "run python plugins/onnxruntime/tests/comparison.py"
    assert comparison.PAGE.read_text("utf-8") == comparison.page(), how
