"""The cases of the suite that are not compared as the suite does, and why not."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import onnxplug


def load_cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        return {case.name: case for case in load_model_tests(kind="node")}


CASES: Final = load_cases()
BERNOULLI: Final = sorted(name for name in CASES if "bernoulli" in name)
COPIES: Final = 5000
"""So many draws of each probability make three deviations 0.021 at most."""


def decoded(values: Any) -> list[Any]:
    return [
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
        for value in values
    ]


def results(model: onnx.ModelProto, *inputs: Any, compiled: bool = True) -> list[Any]:
    options = {"compile": compiled}
    session = onnxplug.InferenceSession(
        model, providers=[("CPUExecutionProvider", options)]
    )
    names = [each.name for each in session.get_inputs()]
    return list(session.run(None, dict(zip(names, inputs, strict=True))))


def test_there_are_six_random_cases() -> None:
    assert len(BERNOULLI) == 6


@pytest.mark.parametrize("name", BERNOULLI)
def test_draws_have_the_distribution_of_the_case(name: str) -> None:
    case = CASES[name]
    (probabilities,), (expected,) = map(decoded, case.data_sets[0])
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value *= COPIES
    del model.graph.value_info[:]
    (drawn,) = results(model, np.tile(probabilities, COPIES))
    assert drawn.dtype == expected.dtype
    assert drawn.shape == (COPIES * len(probabilities),)
    assert set(np.unique(drawn)) == {0, 1}
    draws = drawn.reshape(COPIES, -1).astype(np.float64)
    if name.endswith("_expanded"):
        # the function's body, which these cases hold, asks whether a number of [0, 1)
        # is *greater* than the probability
        probabilities = 1 - probabilities
    deviations = np.sqrt(probabilities * (1 - probabilities) / COPIES)
    assert (np.abs(draws.mean(axis=0) - probabilities) < 5 * deviations).all()
    # and each for itself: a draw tells nothing of the next
    together = np.corrcoef(draws.T) - np.eye(len(probabilities))
    assert np.abs(together).max() < 0.08


def test_the_scalar_sequence_cannot_pass() -> None:
    """What the case itself expects does not pass its comparison either."""
    case = CASES["test_loop16_seq_none"]
    expected = decoded(case.data_sets[0][1])
    with pytest.raises(TypeError, match="Unable to compare"):
        Runner.assert_similar_outputs(expected, expected, case.rtol, case.atol)


def test_the_scalar_sequence_is_right_all_the_same() -> None:
    case = CASES["test_loop16_seq_none"]
    inputs, (expected,) = map(decoded, case.data_sets[0])
    (found,) = results(case.model, *inputs)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_float16_attention_is_nearer_to_the_definition_than_the_case() -> None:
    """The case's own values miss softmax(Q Kᵀ / √d) V by more than those of arrays."""
    case = CASES["test_attention_4d_causal_fp16_expanded"]
    (q, k, v), (expected,) = map(decoded, case.data_sets[0])
    (found,) = results(case.model, q, k, v, compiled=False)
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    scores = q @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[-1])
    scores[..., ~np.tri(*scores.shape[2:], dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    exact = weights / weights.sum(axis=-1, keepdims=True) @ v

    def error(values: Any) -> Any:
        return np.abs(values.astype(np.float64) - exact) / np.abs(exact)

    failing = ~np.isclose(found, expected, rtol=case.rtol, atol=case.atol)
    assert 0 < failing.sum() < 5
    assert (error(found)[failing] < error(expected)[failing]).all()
    assert error(found).max() < error(expected).max()


def test_zeros_of_an_inverse_transform_are_nearer_than_the_case_has_them() -> None:
    """What the case expects of zeros is how its own sums in float32 were rounded."""
    case = CASES["test_dft_inverse_opset19"]
    (x,), (expected,) = map(decoded, case.data_sets[0])
    (found,) = results(case.model, x)
    wide = x.astype(np.float64)
    exact = np.fft.ifft(wide[..., 0] + 1j * wide[..., 1], axis=1)
    exact = np.stack([exact.real, exact.imag], -1)
    failing = ~np.isclose(found, expected, rtol=case.rtol, atol=case.atol)
    assert 0 < failing.sum() <= 10
    assert np.abs(exact[failing]).max() < 1e-13
    assert np.abs(found[failing]).max() < 1e-13 < np.abs(expected[failing]).min()
