"""Domains of operators that an installed distribution supplies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.ep import DataType, TensorType
from onnxplug.errors import InvalidModel, PluginError, UnassignedNode, UnsupportedModel
from onnxplug.graph.load import load_model
from onnxplug.plugins import FoundPlugin, PluginRegistry, find_plugins, registry
from onnxplug.plugins.domains import GROUP as DOMAINS
from onnxplug.prepare import infer_types

DOMAIN = "com.example"
X = np.array([[-1.0, 2.0, 3.0]], np.float32)

CODE = '''
from onnxplug import ep
from onnxplug.authoring.nodes import describe

CLAMP = """
<domain: "com.example", opset_import: ["" : 17]>
Clamp <low: float = 0.0, high> (x) => (y)
{
    least = Constant <value_float: float = @low> ()
    most = Constant <value_float: float = @high> ()
    y = Clip (x, least, most)
}
"""


def halved(graph, node):
    """A function for one element type."""
    import onnx

    if graph.value(node.inputs[0]).dtype != ep.DataType.FLOAT32:
        return ep.Reason(ep.RefusalCode.DTYPE, "only float32 is halved")
    return onnx.parser.parse_function(
        """<domain: "com.example", opset_import: ["" : 17]>
        Halved (x) => (y) {
            two = Constant <value = float {2}> ()
            y = Div (x, two)
        }"""
    )


def joined(graph, node, inputs):
    """The rule of an operator that joins two tensors along their first axis."""
    first, second = inputs
    if first is None or first.shape is None or second.shape is None:
        return [first]
    if len(first.shape) != len(second.shape):
        raise ep.InvalidModel("Joined takes tensors of one rank")
    return [ep.TensorType(first.dtype, (f"{first.shape[0]}+{second.shape[0]}",
                                        *first.shape[1:]))]


BODY = """<domain: "com.example", opset_import: ["" : 17]>
          Joined (a, b) => (y) { y = Concat <axis = 0> (a, b) }"""
FOREVER = """<domain: "com.example", opset_import: ["" : 17, "com.example" : 1]>
             Forever (x) => (y) { z = com.example.Forever (x)  y = Neg (z) }"""


def scaled(graph, node, xp):
    """A kernel over any arrays."""
    if "by" not in node.attributes:
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, "Scaled needs the attribute 'by'")
    by = node.attributes["by"]
    return lambda x: xp.asarray(x * by)


def twice(editor):
    """Twice (x) becomes Add (x, x), but the first one becomes a Mul by a constant."""
    import numpy as np

    replaced, nodes = [], []
    for node in editor.graph.nodes:
        if node.op_type == "Twice":
            operands = [node.inputs[0]] * 2
            if not replaced:
                operands[1] = editor.add_constant("two", np.float32(2))
            op_type = "Mul" if not replaced else "Add"
            replaced.append(describe(node))
            node = editor.make_node(op_type, operands, node.outputs)
        nodes.append(node)
    editor.replace_nodes(nodes)
    return replaced


def broken(graph, node=None, *rest):
    raise RuntimeError("no idea")


@ep.hookimpl
def onnxplug_domains(host):
    return [
        ep.Domain(
            name="com.example",
            spi_version=(0, 4),
            operators=[
                ep.Operator(op_type="Clamp", function=CLAMP),
                ep.Operator(op_type="Halved", function=halved),
                ep.Operator(op_type="Joined", function=BODY, infer_types=joined),
                ep.Operator(op_type="Late", since=3, function=CLAMP),
                ep.Operator(op_type="Forever", function=FOREVER),
                ep.Operator(op_type="Never", refused="it was never meant to be"),
                ep.Operator(op_type="Untold"),
                ep.Operator(op_type="Scaled", kernel=scaled),
                *(
                    ep.Operator(op_type=name, kernel=scaled)
                    for name in ("Relu", "Add", "Transpose", "Softmax")
                ),
                ep.Operator(op_type="Twice", rewrite=twice),
                ep.Operator(op_type="Miskerneled", kernel=broken),
                ep.Operator(op_type="Miswritten", rewrite=broken),
                ep.Operator(op_type="Broken", function=broken),
                ep.Operator(op_type="Misruled", function=CLAMP, infer_types=broken),
                ep.Operator(op_type="NoText", function="Nothing that ONNX reads"),
            ],
        )
    ]
'''


@pytest.fixture
def supply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a distribution that supplies the domain on ``sys.path``."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def supply(
        code: str = CODE, distribution: str = "acme-operators", attribute: str = ""
    ) -> None:
        module = distribution.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {distribution}\nVersion: 1.0\n\n")
        (info / "entry_points.txt").write_text(
            f"[onnxplug.domains]\n{DOMAIN} = {module}{attribute}\n"
        )
        monkeypatch.delitem(sys.modules, module, raising=False)
        registry.refresh()

    yield supply
    monkeypatch.undo()
    registry.refresh()


def model(
    nodes: str, version: int = 1, inputs: str = "float[N,3] x"
) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "{DOMAIN}" : {version}]>\n'
        f"g ({inputs}) => (y) {{ {nodes} }}"
    )


def run(nodes: str, *inputs: np.ndarray, **options) -> np.ndarray:
    session = onnxplug.InferenceSession(model(nodes, **options))
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))[0]


def refusal(nodes: str, **options) -> str:
    with pytest.raises(UnassignedNode) as caught:
        onnxplug.InferenceSession(model(nodes, **options))
    return str(caught.value)


def test_a_function_as_text(supply) -> None:
    supply()
    result = run("y = com.example.Clamp <low = -0.5, high = 2.5> (x)", X)
    np.testing.assert_array_equal(result, np.float32([[-0.5, 2, 2.5]]))
    result = run("y = com.example.Clamp <high = 2.5> (x)", X)
    np.testing.assert_array_equal(result, np.float32([[0, 2, 2.5]]))


def test_a_function_made_for_the_node(supply) -> None:
    supply()
    np.testing.assert_array_equal(run("y = com.example.Halved (x)", X), X / 2)
    said = refusal("y = com.example.Halved (x)", inputs="double[N,3] x")
    assert "cannot be replaced by a function: only float32 is halved" in said


def test_a_rule_of_types(supply) -> None:
    supply()
    loaded = load_model(
        model(
            "j = com.example.Joined (a, b)  y = Neg (j)",
            inputs="float[A,3] a, float[B,3] b",
        )
    )
    infer_types(loaded.graph)
    assert loaded.graph.types["j"] == TensorType(DataType.FLOAT32, ("A + B", 3))
    result = run(
        "y = com.example.Joined (a, b)", X, X, inputs="float[A,3] a, float[B,3] b"
    )
    assert result.shape == (2, 3)
    with pytest.raises(InvalidModel, match="tensors of one rank"):
        run("y = com.example.Joined (a, b)", inputs="float[A,3] a, float[B] b")


def test_a_kernel(supply) -> None:
    supply()
    nodes = "s = com.example.Scaled <by = 3.0> (x)  y = Neg (s)"
    np.testing.assert_array_equal(run(nodes, X), X * -3)
    session = onnxplug.InferenceSession(model(nodes))
    assert session.explain().partitions[0].tiers == {"array": 2}
    assert "Scaled needs the attribute 'by'" in refusal("y = com.example.Scaled (x)")
    said = "acme-operators, in kernel of Miskerneled, failed: RuntimeError: no idea"
    assert said in refusal("y = com.example.Miskerneled (x)")


@pytest.mark.parametrize("name", ["Relu", "Add", "Transpose", "Softmax"])
def test_a_kernel_of_an_operator_that_is_called_as_one_of_onnx(
    supply, name: str
) -> None:
    supply()
    nodes = f"s = com.example.{name} <by = 3.0> (x)  n = Neg (s)  y = Abs (n)"
    np.testing.assert_array_equal(run(nodes, X), abs(X * 3))


def test_a_rewrite(supply) -> None:
    supply()
    nodes = """t = com.example.Twice (x)  c = Constant <value = bool {1}> ()
               y = If (b) <then_branch = t () => (u) { u = com.example.Twice (t) },
                           else_branch = e () => (v) { v = Neg (t) }>"""
    inputs = "float[N,3] x, bool b"
    result = run(nodes, X, np.array(True), inputs=inputs)
    np.testing.assert_array_equal(result, X * 4)
    session = onnxplug.InferenceSession(model(nodes, inputs=inputs))
    assert session.explain().passes["rewrite"] == [
        "com.example.Twice giving 't'",
        "com.example.Twice giving 'u'",
    ]
    with pytest.raises(UnassignedNode, match="replaces it in the pass 'rewrite' only"):
        onnxplug.InferenceSession(
            model("y = com.example.Twice (x)"), disabled_optimizers=["rewrite"]
        )


@pytest.mark.parametrize(
    ("operator", "domain", "distribution"),
    [
        ('Gradient <xs = ["x"], y = "x">', "ai.onnx.preview.training", "training"),
        ("Adam", "ai.onnx.preview.training", "training"),
        ("GraphCall", "ai.onnx.preview.training", "training"),
        ("Gelu", "com.microsoft", "microsoft"),
        ("ReorderInput", "com.microsoft.nchwc", "microsoft"),
        ("SimplifiedLayerNormalization", "", "microsoft"),
    ],
)
def test_a_domain_that_onnxplug_publishes(
    operator: str, domain: str, distribution: str
) -> None:
    def find(group: str) -> list[FoundPlugin]:
        return [] if group == DOMAINS else find_plugins(group)

    without = PluginRegistry({}, find)
    asking = model(f"y = {domain}{'.' if domain else ''}{operator} (x)")
    if domain:
        asking.opset_import.add(domain=domain, version=1)
    lacking = f"operators of '{domain or 'ai.onnx'}'; install onnxplug-{distribution}"
    with pytest.raises(UnassignedNode, match=lacking):
        onnxplug.InferenceSession(asking, registry=without)


class Advertised:
    """A distribution that is not installed."""

    @staticmethod
    def read_text(name: str) -> str:
        return "Name: acme-operators\nVersion: 1.0\n\n"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = com.example.Clamp <high = 2.5> (x)", np.clip(X, 0, 2.5)),  # a function
        ("y = com.example.Scaled <by = 3.0> (x)", X * 3),  # a kernel
        ("y = com.example.Twice (x)", X * 2),  # a rewrite
        ("y = com.example.Joined (x, x)", np.vstack([X, X])),  # a rule
        # of a constant, and in a body
        (
            """k = Constant <value = float[2] {1, 2}> ()
            t = com.example.Clamp <high = 2.5> (k)
            s = ReduceSum <keepdims = 0> (t) zero = Constant <value = float {0}> ()
            c = Greater (s, zero)
            y = If (c) <
                then_branch = a () => (z) { z = com.example.Scaled <by = 3.0> (x) },
                else_branch = b () => (z) { z = Neg (x) }>""",
            X * 3,
        ),
    ],
)
def test_a_session_asks_its_own_registry_only(
    nodes: str, expected: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "acme_domain.py").write_text(CODE)
    monkeypatch.delitem(sys.modules, "acme_domain", raising=False)
    advertised = FoundPlugin(DOMAIN, "acme_domain", Advertised())

    def find(group: str) -> list[FoundPlugin]:
        return [advertised] if group == DOMAINS else find_plugins(group)

    having, lacking = PluginRegistry({}, find), PluginRegistry({})
    said = f"no installed distribution supplies operators of '{DOMAIN}'"
    session = onnxplug.InferenceSession(model(nodes), registry=having)
    for without in (lacking, None):
        with pytest.raises(UnassignedNode, match=said):
            onnxplug.InferenceSession(model(nodes), registry=without)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)
    session.set_providers(["cpu"])  # opens the model anew
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)


def test_an_entry_point_that_leads_to_the_domain_itself(supply) -> None:
    supply(CODE + "\nACME = onnxplug_domains(None)[0]\n", attribute=":ACME")
    np.testing.assert_array_equal(run("y = com.example.Halved (x)", X), X / 2)


def test_nothing_is_imported_before_an_operator_is_used(supply) -> None:
    supply()
    session = onnxplug.InferenceSession(model("y = Neg (x)"))
    assert session.run(None, {"x": X})
    assert "acme_operators" not in sys.modules
    run("y = com.example.Halved (x)", X)
    assert "acme_operators" in sys.modules


def test_a_domain_that_nobody_supplies() -> None:
    said = refusal("y = com.example.Clamp (x)")
    assert "no installed distribution supplies operators of 'com.example'" in said


@pytest.mark.parametrize(
    ("nodes", "version", "said"),
    [
        (
            "y = com.example.Clmp (x)",
            1,
            "acme-operators supplies 'com.example' without an operator 'Clmp'; did "
            "you mean 'Clamp'?",
        ),
        (
            "y = com.example.Late <high = 1.0> (x)",
            2,
            "acme-operators supplies Late from version 3 of 'com.example' on, and the "
            "model imports 2",
        ),
        ("y = com.example.Never (x)", 1, "by a function: it was never meant to be"),
        ("y = com.example.Untold (x)", 1, "acme-operators supplies it without a fun"),
        ("y = com.example.Clamp <lo = 1.0> (x)", 1, "knows no attribute 'lo'"),
    ],
)
def test_what_a_supplier_has_not(supply, nodes: str, version: int, said: str) -> None:
    supply()
    assert said in refusal(nodes, version=version)


def test_a_newer_version(supply) -> None:
    supply()
    result = run("y = com.example.Late <high = 1.0> (x)", X, version=3)
    np.testing.assert_array_equal(result, np.float32([[0, 1, 1]]))


def test_a_body_of_another_opset(supply) -> None:
    supply()
    old = model("y = com.example.Clamp <high = 2.5> (x)")
    old.opset_import[0].version = 10  # Clip had its bounds in attributes
    with pytest.raises(UnassignedNode, match=r"written for opset 17 of ai\.onnx"):
        onnxplug.InferenceSession(old)


def test_a_function_that_calls_itself(supply) -> None:
    supply()
    with pytest.raises(UnsupportedModel, match=r"does a function call itself"):
        run("y = com.example.Forever (x)", X)


@pytest.mark.parametrize(
    ("op_type", "said"),
    [
        ("Broken", r"acme-operators, in function of Broken, failed: Runtime.*no idea"),
        ("Misruled", r"acme-operators, in infer_types of Misruled, failed: .*no idea"),
        ("Miswritten", r"acme-operators, in rewrite of Miswritten, failed: .*no idea"),
        ("NoText", r"acme-operators, in function of NoText, failed: ParseError"),
    ],
)
def test_a_supplier_that_fails(supply, op_type: str, said: str) -> None:
    supply()
    with pytest.raises(PluginError, match=said):
        run(f"y = com.example.{op_type} (x)", X)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('no such driver')", "RuntimeError: no such driver"),
        ("x = 1", "nothing in it is marked with onnxplug.ep.hookimpl"),
        (CODE.replace("(0, 4)", "(1, 99)"), "written for SPI 1.99"),
        (CODE.replace("since=3", 'since="3"'), "a whole number for since"),
        (CODE.replace('"Late", since=3', '"Clamp"'), "has Clamp since 1 twice"),
        (CODE.replace('name="com.example"', 'name="org"'), "and not 'com.example'"),
    ],
)
def test_a_supplier_that_cannot_be_loaded(
    supply, code: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    supply(code)
    assert said in refusal("y = com.example.Clamp <high = 1.0> (x)")
    (record,) = caplog.records
    assert said in record.message


def test_two_suppliers_of_one_operator(supply) -> None:
    supply()
    supply(distribution="other-operators")
    said = refusal("y = com.example.Clamp <high = 1.0> (x)")
    assert "acme-operators and other-operators both supply Clamp" in said


def test_two_suppliers_of_one_domain(supply) -> None:
    supply()
    supply(CODE.replace('op_type="', 'op_type="My'), distribution="other-operators")
    nodes = "h = com.example.Halved (x)  y = com.example.MyHalved (h)"
    np.testing.assert_array_equal(run(nodes, X), X / 4)


@pytest.mark.parametrize("name", ["acme-operators", "Acme_Operators", "com.example"])
def test_a_blocked_supplier(supply, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("ONNXPLUG_BLOCK", name)
    supply()
    assert "ONNXPLUG_BLOCK has it" in refusal("y = com.example.Clamp <high = 1.0> (x)")
    assert "acme_operators" not in sys.modules


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"PLUGINS": "cpu"}, "ONNXPLUG_PLUGINS does not list it; add 'acme-operators'"),
        (
            {"PLUGINS": "cpu,acme-operators@others"},
            "ONNXPLUG_PLUGINS does not list it; add 'acme-operators'",
        ),
        ({"AUTOLOAD": "0"}, "list 'acme-operators' in ONNXPLUG_PLUGINS to use it"),
    ],
)
def test_a_model_loads_no_supplier_that_settings_keep_out(
    supply, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], said: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"ONNXPLUG_{name}", value)
    supply()
    assert said in refusal("y = com.example.Clamp <high = 1.0> (x)")
    assert "acme_operators" not in sys.modules


@pytest.mark.parametrize("autoload", ["0", "1"])
@pytest.mark.parametrize(
    "name", ["Acme_Operators", "com.example", "acme-operators@acme_operators"]
)
def test_a_supplier_that_is_listed(
    supply, monkeypatch: pytest.MonkeyPatch, name: str, autoload: str
) -> None:
    monkeypatch.setenv("ONNXPLUG_PLUGINS", f"cpu,{name}")
    monkeypatch.setenv("ONNXPLUG_AUTOLOAD", autoload)
    supply()
    np.testing.assert_array_equal(run("y = com.example.Halved (x)", X), X / 2)


def test_the_operators_are_listed(supply) -> None:
    from onnxplug_cli.operators import list_operators

    supply()
    listing = list_operators([])
    found = {
        (version.op_type, version.since): [each[:2] for each in version.implementations]
        for version in listing.versions
        if version.domain == DOMAIN
    }
    assert found["Clamp", 1] == [("acme-operators", "function")]
    assert found["Late", 3] == [("acme-operators", "function")]
    assert found["Never", 1] == [("acme-operators", "refused")]
    assert found["Untold", 1] == []
    assert found["Scaled", 1] == [("acme-operators", "kernel")]
    assert found["Twice", 1] == [("acme-operators", "rewrite")]
