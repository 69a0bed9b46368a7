"""The ONNX backend suite with a library before the CPU EP: nothing is lost by that."""

from __future__ import annotations

import pytest

from onnxplug_testing.backend_suite import Lineup, count_cases

EVERY = 25

WRONG_WITHOUT_A_LIST = {
    "OpenVINOExecutionProvider": [
        "test_bitshift_right_int32_negative_input",
        "test_cast_FLOAT_to_DOUBLE",
        "test_dft",
        "test_resize_downsample_scales_cubic_antialias",
        "test_top_k_same_values",
    ],
    "cpu_ep": [
        "test_bitshift_left_int32",
        "test_dequantizelinear_int16",
        "test_dropout_default_mask",
        "test_matmul_1d_3d",
        "test_operator_index",
    ],
}
"""Some of the cases that each computes wrongly when it is taken at its word."""


def test_no_case_is_lost(vendor) -> None:
    found = count_cases(Lineup(vendor, {}), every=EVERY)
    assert found["nodes that the EP ran"] > 50
    assert found["pass on the CPU EP only"] == {}


@pytest.mark.parametrize("vendor", WRONG_WITHOUT_A_LIST)
def test_cases_are_lost_by_trust(vendor) -> None:
    names = WRONG_WITHOUT_A_LIST[vendor]
    trusting = Lineup(vendor, {"onnxplug.trust_library": "1"})
    found = count_cases(trusting, names)
    assert found["pass on the CPU EP only"].keys() == set(names)
    assert count_cases(Lineup(vendor, {}), names)["pass on the CPU EP only"] == {}
