"""What looks up by indices that may not be there, of libraries that do not look."""

from __future__ import annotations

import json
from pathlib import Path

import onnx.parser
import pytest

from onnxplug import ep
from onnxplug.ep import RefusalCode as Code
from onnxplug.graph.load import load_model
from onnxplug_native import measured

OPTION = "onnxplug.indices_in_range"


def refusal(node: str, tmp_path: Path, *, within: bool = False) -> ep.Reason | None:
    """Why a library that does not look does not get *node*."""
    graph = load_model(
        onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 17]>
            g (float[4, 3] x, float[n, 3] d, int64[2] k, float[2, 3] z)
                => (float[a, b] y)
            <int64[2] low = {{-4, 3}}, int64[2] high = {{0, 4}},
             int64[2, 1] all = {{0, -4}},
             int64[1, 2] place = {{3, -3}}, int64[1, 2] beyond = {{3, 3}},
             bool[4] few = {{1, 0, 0, 1}}, bool[5] many = {{1, 1, 1, 1, 1}}>
            {{ y = {node} }}"""
        )
    ).graph
    operator = node.split()[0]
    since = str(onnx.defs.get_schema(operator, 17).since_version)
    entry = {
        "since": [since],
        "types": ["float32,int64", "float32,bool", "float32,int64,float32"],
        "inputs": ["2", "3"],
        "outputs": ["0"],
        "attributes": ["axis", "reduction=none"],
        "defaults": {"reduction": "none"},
    }
    table = {
        "measured with": {"ep": "E", "vendor": "V", "version": "1"},
        "lacks": {},
        "looks at indices": False,
        "operators": {operator: entry},
    }
    path = tmp_path / "list.json"
    path.write_text(json.dumps(table))
    options = {"onnxplug.allow_list": str(path), OPTION: within}
    found = measured.choose_list("E", "V", options)
    return measured.Judge("E", "1", found).refusals(graph, {0}).get(0)


@pytest.mark.parametrize(
    "node",
    [
        "Gather (x, low)",
        "GatherND (x, place)",
        "ScatterND (x, all, z)",
        "Compress <axis = 0> (x, few)",
        "Compress (x, many)",
    ],
)
def test_constants_that_are_within_are_looked_up(tmp_path: Path, node: str) -> None:
    assert refusal(node, tmp_path) is None


@pytest.mark.parametrize(
    ("node", "code", "detail"),
    [
        ("Gather (x, k)", Code.NOT_CONSTANT, "'k' is not known"),
        (
            "Gather (d, low)",
            Code.DYNAMIC_SHAPE,
            "the size of 'd'",
        ),
        ("Gather (x, high)", Code.OTHER, "'high' is out of range"),
        ("Gather <axis = 1> (d, low)", Code.OTHER, "'low' is out of range"),
        ("GatherND (x, beyond)", Code.OTHER, "'beyond' is out of range"),
        (
            "Compress <axis = 0> (x, many)",
            Code.OTHER,
            "'many' is out of range",
        ),
        ("Compress (d, few)", Code.DYNAMIC_SHAPE, "the size of 'd'"),
    ],
)
def test_others_are_left_to_the_next_ep_unless_users_vouch(
    tmp_path: Path, node: str, code: Code, detail: str
) -> None:
    reason = refusal(node, tmp_path)
    assert reason is not None
    assert reason.code is code
    assert detail in reason.detail and OPTION in reason.detail
    assert refusal(node, tmp_path, within=True) is None


def test_a_list_says_whether_in_one_of_two_words(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    about = {"ep": "E", "vendor": "V", "version": "1"}
    path.write_text(
        json.dumps(
            {
                "measured with": about,
                "lacks": {},
                "operators": {},
                "looks at indices": "no",
            }
        )
    )
    with pytest.raises(ep.OptionError, match="'looks at indices' is 'no'; expected"):
        measured.choose_list("E", "V", {"onnxplug.allow_list": str(path)})
