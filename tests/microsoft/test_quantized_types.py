"""What is known, before a run, of what operators on codes give."""

from __future__ import annotations

import onnx
import pytest

import onnxplug

NODES = {
    "y = m.QGemm<transB=1>(a, s, z, t, s, z)": ("float", ["N", 7]),
    "y = m.QGemm<transA=1>(a, s, z, b, s, z, c, s, z)": ("uint8", [5, 9]),
    "y = m.MatMulIntegerToFloat(x, b, s, s)": ("float", [2, "N", 9]),
    "y = m.DynamicQuantizeMatMul(f, b, s, z)": ("float", [2, "N", 9]),
    "y = m.QLinearWhere(p, a, s, z, a, s, z, s, z)": ("uint8", [2, "N", 5]),
    "y = m.QLinearConcat<axis=-1>(s, z, x, s, z, x, s, z)": ("uint8", [2, "N", 10]),
    "y = m.QLinearReduceMean<axes=[-1], keepdims=0>(x, s, z, s, z)": (
        "uint8",
        [2, "N"],
    ),
    "y = m.QLinearAveragePool<kernel_shape=[2]>(x, s, z, s, z)": (
        "uint8",
        [2, "N", 4],
    ),
    "y = m.QLinearGlobalAveragePool(x, s, z, s, z)": ("uint8", [2, "N", 1]),
    "y = m.QLinearGlobalAveragePool<channels_last=1>(x, s, z, s, z)": (
        "uint8",
        [2, 1, 5],
    ),
}


@pytest.mark.parametrize("node", NODES)
def test_types_follow(node: str) -> None:
    dtype, shape = NODES[node]
    model = onnx.parser.parse_model(
        f"""
        < ir_version: 10, opset_import: ["" : 21, "m" : 1] >
        g (uint8[N, 5] a, uint8[2, N, 5] x, float[2, N, 5] f, bool[2, 1, 1] p)
          => ({dtype} y)
          < float s = {{0.5}}, uint8 z = {{3}}, int32[9] c = {{1,2,3,4,5,6,7,8,9}} >
          {{
            k = Constant<value_ints=[5, 9]>()
            l = Constant<value_ints=[7, 5]>()
            b = ConstantOfShape<value=uint8[1] {{1}}>(k)
            t = ConstantOfShape<value=uint8[1] {{1}}>(l)
            {node}
          }}
        """
    )
    for imported in model.opset_import:
        imported.domain = imported.domain.replace("m", "com.microsoft")
    for each in model.graph.node:
        each.domain = "com.microsoft" if each.domain == "m" else each.domain
    (found,) = onnxplug.InferenceSession(model).get_outputs()
    assert found.shape == shape
