"""What is known of values, from one set of inputs to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.frontend.call import Abstract
from onnxplug_compiler.schedule.inference import Inference, Tokens


@pytest.mark.parametrize(
    "contents",
    [
        [np.array([0, 2]), np.array([1, 3])],
        [np.zeros(10_000, np.float32), np.ones(10_000, np.float32)],
    ],
    ids=["few", "many"],
)
def test_inputs_of_other_contents_are_told_apart(contents: list[np.ndarray]) -> None:
    inference = Inference([], {}, {}, ["x"], ["x"], Tokens())  # type: ignore[arg-type]
    slot = inference.slots["x"]
    found = [
        inference.infer([Abstract.known(content, varies=True)], lambda: None)
        for content in (*contents, contents[0])
    ]
    tokens = [each.contents[slot] for each in found]
    assert None not in tokens
    assert tokens[0] == tokens[2] != tokens[1]
    for each, before in zip(found[1:], found, strict=False):
        assert list(each.differing(before)) == [slot]
    assert found[1].values[slot].content is contents[1]  # type: ignore[union-attr]
    unknown = Abstract(contents[0].dtype, contents[0].shape)
    last = inference.infer([unknown], lambda: None)
    assert list(last.differing(found[-1])) == [slot]
    assert last.contents[slot] is None


class OneConstant(dict[str, Abstract]):
    """Constants as inference looks at them."""

    known = dict.__getitem__


def test_contents_of_constants_alone_are_asked_for_all_shapes() -> None:
    constants: Any = OneConstant({"c": Abstract.known(np.array([1, 2]))})
    inference = Inference([], {}, constants, ["x"], ["x", "c"], Tokens())
    fed = [Abstract.known(np.array([number]), varies=True) for number in (1, 2)]
    before = inference.infer([fed[0]], lambda: None)
    slot = inference.slots["c"]
    assert before.contents[slot] is None
    token = inference.content_of_constant(slot)
    inference.infer([fed[1]], lambda: None)
    assert inference.contents[slot] == token
    with pytest.raises(AssertionError, match="no constant"):
        inference.content_of_constant(inference.slots["x"])
