"""Batches of columns in one process, without a cluster."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import onnxplug
from onnxplug.errors import EpError, OnnxplugWarning, OptionError, OutOfMemory
from onnxplug_ray import ColumnError, EpNotOnNode, Predictor, RowError

RAGGED = "ragged (float[N, seq] x) => (float[N, seq] y) { y = Mul (x, s) }"
SUMS = "sums (float[N, seq] x) => (float[N, one] y) { y = ReduceSum (x, axes) }"
RUNNING = "running (float[N, 4] x) => (float[N, 4] y) { y = CumSum (x, axis) }"
TABLE = "table (int64[N] i) => (float[N, 2] y) { y = Gather (t, i) }"


def column(*rows):
    """A column of rows as Ray has those of several shapes."""
    made = np.empty(len(rows), object)
    made[:] = rows
    return made


def arrays(*sizes):
    return column(*(np.arange(size, dtype=np.float32) + size for size in sizes))


@pytest.fixture
def table(save_model):
    """A model that looks up rows of a table of three."""
    return save_model(
        TABLE, "table.onnx", t=np.arange(6, dtype=np.float32).reshape(3, 2)
    )


def test_columns_become_inputs_and_outputs_columns(scale) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = Predictor(scale)({"id": np.arange(3), "x": x})
    assert list(found) == ["id", "y", "eps"]
    np.testing.assert_array_equal(found["y"], 2 * x)
    assert found["eps"].tolist() == ["CPUExecutionProvider"] * 3


def test_names_are_chosen_by_the_user(scale) -> None:
    predictor = Predictor(
        scale,
        inputs={"x": "pixels"},
        outputs={"y": "score"},
        keep=["pixels"],
        eps_column=None,
    )
    found = predictor({"id": np.arange(1), "pixels": np.ones((1, 4), np.float32)})
    assert list(found) == ["pixels", "score"]


def test_a_batch_without_rows_has_columns(scale) -> None:
    found = Predictor(scale)({"x": np.ones((0, 4), np.float32)})
    assert found["y"].shape == (0, 4)
    assert found["y"].dtype == np.float32


@pytest.mark.parametrize(
    "x",
    [
        np.ones((2, 4)),
        np.ones((2, 4), np.int64),
        np.ones((2, 4), np.float16),
        np.ones((2, 4), bool),
        column([1, 1, 1, 1], [1.0, 1, 1, 1]),
        column(np.ones(4), np.ones(4, np.uint8)),
    ],
    ids=["float64", "int64", "float16", "bool", "lists", "dtypes"],
)
def test_values_are_converted_where_they_stay_what_they_are(scale, x) -> None:
    found = Predictor(scale)({"x": x})
    np.testing.assert_array_equal(found["y"], np.full((2, 4), 2, np.float32))
    assert found["y"].dtype == np.float32


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        (np.array([[1, 1, 1, 2**24 + 1]]), 0),  # which float32 has not
        (np.array([[1.0] * 4, [1e300] * 4]), 1),
        (column(np.ones(4), None), 1),
        (column(np.ones(4), np.ones(3)), 1),
        (column(np.ones(4), np.ones((4, 4))), 1),
        (column(np.ones(4), np.ones((2, 2, 1))), 1),
        (column([1, 2, 3, 4], [1, 2, 3, "four"]), 1),
        (column([1, 2, 3, 4], [1, 2, 3, [4]]), 1),
        (np.ones((2, 4, 1, 1)), 0),
        (np.array(["a", "b"]), 0),
        (np.array(["2020-01-01"] * 2, "datetime64[D]"), 0),
    ],
)
def test_a_row_at_fault_is_named(scale, values, wrong) -> None:
    batch = {"id": np.arange(len(values)) + 40, "name": np.array(["n"] * len(values))}
    predictor = Predictor(scale)
    with pytest.raises(RowError, match=f"row {wrong} of batch 0 .*id={40 + wrong}"):
        predictor({**batch, "x": values})
    assert predictor({**batch, "x": np.ones((len(values), 4), np.float32)})


def test_integers_stay_integers(table) -> None:
    predictor = Predictor(table, on_error="record")
    found = predictor({"i": np.array([0.0, 1.5, np.nan, 2.0, 2.0**63, -(2.0**63)])})
    assert [bool(text) for text in found["error"]] == [0, 1, 1, 0, 1, 1]
    np.testing.assert_array_equal(found["y"][[0, 3]], [[0, 1], [4, 5]])


def test_rows_at_fault_are_recorded_and_others_run(table) -> None:
    predictor = Predictor(table, on_error="record", row_id=["id"])
    i = np.array([0, 1, 99, 2, 0, -77, 1, 2, 0, 1, 2])
    found = predictor({"id": np.arange(len(i)), "i": i})
    wrong = np.array([2, 5])
    assert np.flatnonzero(found["error"] != "").tolist() == wrong.tolist()
    assert "99" in found["error"][2]
    assert np.isnan(found["y"][wrong]).all()
    right = np.setdiff1d(np.arange(len(i)), wrong)
    expected = np.arange(6, dtype=np.float32).reshape(3, 2)[i[right]]
    np.testing.assert_array_equal(found["y"][right], expected)


def test_the_error_of_a_row_says_where_and_travels(table) -> None:
    predictor = Predictor(table, row_id=["id"])
    with pytest.raises(RowError) as caught:
        predictor({"id": np.array(["a", "b"]), "i": np.array([0, 3])})
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.row, error.batch, error.ids) == (1, 0, "id='b'")
    assert error.eps == "CPUExecutionProvider"
    assert error.node in str(error)
    assert "index 3 is out of range" in error.reason


def test_all_rows_at_fault_have_columns_nonetheless(table, scale) -> None:
    found = Predictor(table, on_error="record")({"i": np.array([7, 8])})
    assert found["y"].shape == (2, 2)
    assert np.isnan(found["y"]).all()
    found = Predictor(scale, on_error="record")({"x": column(None, None)})
    assert found["y"].shape == (2, 4)


def test_rows_of_several_lengths_are_padded_where_that_is_proven(save_model) -> None:
    predictor = Predictor(save_model(RAGGED, s=np.float32(3)))
    calls = count_runs(predictor)
    x = arrays(4, 3, 5, 4)
    found = predictor({"x": x})
    assert len(calls) == 1
    assert calls[0]["x"].shape == (4, 5)
    for row, fed in zip(found["y"], x, strict=True):
        np.testing.assert_array_equal(row, 3 * fed)


def test_padding_makes_no_batch_twice_as_large(save_model) -> None:
    predictor = Predictor(save_model(RAGGED, s=np.float32(3)))
    calls = count_runs(predictor)
    x = arrays(1, 100, 1, 2, 90, 0, 1)
    found = predictor({"x": x})
    assert sum(call["x"].size for call in calls) <= 2 * sum(map(len, x))
    for row, fed in zip(found["y"], x, strict=True):
        np.testing.assert_array_equal(row, 3 * fed)


def test_rows_are_run_by_shape_where_it_is_not_proven(save_model) -> None:
    predictor = Predictor(save_model(SUMS, axes=np.array([1])))
    calls = count_runs(predictor)
    x = arrays(4, 3, 4, 3, 2)
    found = predictor({"x": x})
    assert sorted(call["x"].shape for call in calls) == [(1, 2), (2, 3), (2, 4)]
    np.testing.assert_array_equal(found["y"], [[sum(row)] for row in x])


def test_rows_are_run_one_by_one_where_they_may_mix(save_model) -> None:
    with pytest.warns(OnnxplugWarning, match="one by one.*CumSum"):
        predictor = Predictor(save_model(RUNNING, axis=np.array(0)))
    calls = count_runs(predictor)
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(predictor({"x": x})["y"], x)
    assert len(calls) == 3


def test_inputs_without_rows_are_constants_or_whole(save_model) -> None:
    text = "scaled (float[N, 4] x, float s) => (float[N, 4] y) { y = Mul (x, s) }"
    model = save_model(text)
    x = np.ones((4, 4), np.float32)
    found = Predictor(model, constants={"s": np.float32(3)})({"x": x})
    np.testing.assert_array_equal(found["y"], 3 * x)
    predictor = Predictor(model)
    calls = count_runs(predictor)
    found = predictor({"x": x, "s": np.array([1, 2, 1, 2], np.float32)})
    np.testing.assert_array_equal(found["y"][:, 0], [1, 2, 1, 2])
    assert len(calls) == 2  # for each value of s, all rows that have it


def test_a_row_may_be_a_whole_input(save_model) -> None:
    text = "row (float[4] x) => (float[4] y) { y = CumSum (x, axis) }"
    with pytest.warns(OnnxplugWarning, match="one by one"):
        predictor = Predictor(save_model(text, axis=np.array(0)))
    found = predictor({"x": np.ones((2, 4), np.float32)})
    np.testing.assert_array_equal(found["y"], [[1, 2, 3, 4]] * 2)


def test_texts_are_columns(save_model) -> None:
    text = "same (string[N] t) => (string[N] u) { u = Identity (t) }"
    predictor = Predictor(save_model(text), on_error="record")
    found = predictor({"t": column("a", None, "ü")})
    assert found["u"].tolist() == ["a", "", "ü"]
    assert [bool(text) for text in found["error"]] == [False, True, False]


def test_what_arrow_has_not_is_widened_exactly(save_model) -> None:
    text = "narrow (float[N, 4] x) => (bfloat16[N, 4] y) { y = Cast <to = 16> (x) }"
    found = Predictor(save_model(text))({"x": np.full((2, 4), 1.5, np.float32)})
    assert found["y"].dtype == np.float32
    assert (found["y"] == 1.5).all()


def test_what_cannot_be_is_refused_in_words(scale, save_model) -> None:
    with pytest.raises(OptionError, match="on_error is 'ignore'"):
        Predictor(scale, on_error="ignore")
    with pytest.raises(ColumnError, match="no input 'z'; it has 'x'"):
        Predictor(scale, inputs={"z": "column"})
    with pytest.raises(ColumnError, match="no output 'z'; it has 'y'"):
        Predictor(scale, outputs=["z"])
    with pytest.raises(ColumnError, match=r"no column 'x' for input 'x'.*'pixels'"):
        Predictor(scale)({"pixels": np.ones((1, 4))})
    x = np.ones((1, 4), np.float32)
    with pytest.raises(ColumnError, match="column 'y' would be replaced"):
        Predictor(scale)({"x": x, "y": x})
    with pytest.raises(ColumnError, match="no column 'id' to tell rows by"):
        Predictor(scale, row_id=["id"])({"x": x})
    with pytest.raises(ColumnError, match="the batch is a list"):
        Predictor(scale)([x])
    text = "split (float[N, 4] x) => (seq(float[N, 1]) y) { y = SplitToSequence (x) }"
    with pytest.raises(ColumnError, match=r"output 'y' is seq\(tensor"):
        Predictor(save_model(text))


def test_an_ep_that_is_not_there_is_named_with_the_node(scale) -> None:
    with pytest.raises(EpNotOnNode, match=r"node .* has not the EP .*CUDA") as caught:
        Predictor(scale, providers=["cuda"])
    assert "CUDA" in caught.value.ep
    assert pickle.loads(pickle.dumps(caught.value)).node == caught.value.node


def test_a_policy_takes_what_there_is_and_says_so(scale) -> None:
    predictor = Predictor(scale, policy="prefer_npu")
    found = predictor({"x": np.ones((2, 4), np.float32)})
    assert found["eps"].tolist() == ["CPUExecutionProvider"] * 2


def test_results_are_those_of_each_row_alone(save_model) -> None:
    """Whatever is joined and padded."""
    rng = np.random.default_rng(0)
    path = save_model(RAGGED, s=np.float32(0.1))
    predictor = Predictor(path)
    x = column(
        *(rng.random(size).astype(np.float32) for size in rng.integers(0, 9, 50))
    )
    with onnxplug.InferenceSession(path) as session:
        for row, fed in zip(predictor({"x": x})["y"], x, strict=True):
            (alone,) = session.run(None, {"x": fed[np.newaxis]})
            np.testing.assert_array_equal(row, alone[0])


def fail_where(predictor, is_wrong, error) -> None:
    """Have the session fail on some feeds, as an EP may."""
    run = predictor.session.run

    def failing(names, feeds):
        if is_wrong(feeds["x"]):
            raise error
        return run(names, feeds)

    predictor.session.run = failing


def test_what_an_ep_fails_on_is_the_row_that_others_do_not_share(scale) -> None:
    for wrong in (0, 5, 15):
        predictor = Predictor(scale)
        fail_where(predictor, lambda x, n=wrong: (x == n).any(), EpError("it fails"))
        x = np.repeat(np.arange(16, dtype=np.float32)[:, np.newaxis], 4, axis=1)
        with pytest.raises(RowError, match=f"row {wrong} .*it fails"):
            predictor({"x": x})


@pytest.mark.parametrize("on_error", ["raise", "record"])
@pytest.mark.parametrize("count", [1, 4, 300])
def test_an_ep_that_fails_on_all_rows_is_at_fault_itself(
    scale, on_error, count
) -> None:
    predictor = Predictor(scale, on_error=on_error)
    fail_where(predictor, lambda _: True, EpError("the device is lost"))
    with pytest.raises(EpError, match="the device is lost") as caught:
        predictor({"x": np.ones((count, 4), np.float32)})
    assert "CPUExecutionProvider" in caught.value.__notes__[0]


def test_a_batch_for_which_memory_is_short_is_run_in_parts(scale) -> None:
    predictor = Predictor(scale)
    fail_where(predictor, lambda x: len(x) > 3, OutOfMemory("too large"))
    with pytest.warns(OnnxplugWarning, match="run apart: too large"):
        found = predictor({"x": np.ones((10, 4), np.float32)})
    assert (found["y"] == 2).all()
    fail_where(predictor, lambda _: True, OutOfMemory("too large"))
    with pytest.raises(OutOfMemory):
        predictor({"x": np.ones((10, 4), np.float32)})


def count_runs(predictor):
    """What the predictor's session is fed from now on."""
    calls = []
    run = predictor.session.run

    def counted(names, feeds):
        calls.append(feeds)
        return run(names, feeds)

    predictor.session.run = counted
    return calls
