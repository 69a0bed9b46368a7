"""Whether models keep their meaning in the form that an EP prefers.

Beside it :mod:`.pairs` asks of nodes that rewrites merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import pairs
from onnxplug_testing.conformance.opinions import contradiction
from onnxplug_testing.conformance.taps import ignoring_failures, listening
from onnxplug_testing.conformance.trial import Trial, in_words
from onnxplug_testing.random_conv_nets import ConvNet

__all__ = ["pairs"]

LAYOUT: Final = Sentence("Preferences", "``NHWC``: the channels of images come last.")
QDQ: Final = Sentence(
    "Preferences",
    "``DequantizeLinear`` of constants stays beside the nodes that read it, where the "
    "EP claims both, as an EP needs that runs integers and their scale;",
)
EXPANDS: Final = Sentence(
    "Preferences",
    "whether it would rather have the function body of a node of a graph.",
)

_SPATIAL: Final = frozenset(
    {
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "DepthToSpace",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "InstanceNormalization",
        "LRN",
        "LpPool",
        "MaxPool",
        "Resize",
        "SpaceToDepth",
    }
)


@check("preferences", share=0.8)
def layouts(trial: Trial) -> None:
    """Networks of images, of sizes that all differ, in whatever layout."""
    for number in trial.in_time(range(12 if trial.quick else 120)):
        net = ConvNet(trial.draw(number).getrandbits(31))
        case = Case(
            net.model.SerializeToString()
            if isinstance(net.model, onnx.ModelProto)
            else net.model,
            _fed(net.model, net.feeds),
            f"a network of {net.spatial} axes, {number}",
        )
        _compare(trial, case, LAYOUT, _SPATIAL)


def _fed(model: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    """Those of *feeds* that are inputs of *model*."""
    if not isinstance(model, onnx.ModelProto):
        model = onnx.load_model_from_string(model)
    names = {value.name for value in model.graph.input}
    return {name: array for name, array in feeds.items() if name in names}


def _compare(
    trial: Trial, case: Case, sentence: Sentence, operators: frozenset[str]
) -> None:
    """Run *case*, the CPU EP behind the EP, which is to take some of *operators*."""
    if not trial.attempt(case):
        return
    subject = trial.subject
    try:
        with subject.session(case.model, alone=False) as session:
            taken = {
                node.op_type
                for node in session.explain().nodes
                if node.ep == subject.name
            }
            if not taken & operators:
                trial.take_back("the EP takes none of the operators it is about")
                return
            found = session.run(None, dict(case.feeds))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        if "runs no node" in str(error):
            trial.take_back("the EP takes none of the operators it is about")
        else:
            trial.find(sentence, in_words(error), case=case, kind=type(error).__name__)
        return
    wrong, _ = contradiction(found, case, subject)
    if wrong:
        words = " ".join(word for word in wrong.split()[:5] if word.isalpha())
        trial.find(sentence, wrong, case=case, kind=words)


@check("preferences", share=0.3)
def quantised(trial: Trial) -> None:
    """Products and convolutions of quantised weights and data."""
    for number in trial.in_time(range(6 if trial.quick else 40)):
        case = _quantised(trial.numbers(number), image=number % 2 == 1)
        _compare(
            trial,
            case,
            QDQ,
            frozenset({"DequantizeLinear", "QuantizeLinear", "MatMul", "Conv"}),
        )


def _quantised(numbers: np.random.Generator, *, image: bool) -> Case:
    """Scales are powers of two, so that what is summed is exact in float32."""
    shape = (1, 3, 5, 7) if image else (5, 6)
    weight_shape = (4, 3, 3, 3) if image else (6, 4)
    weight = numbers.integers(-128, 128, weight_shape).astype(np.int8)
    axis = 0 if image else 1
    weights = {
        "w": weight,
        "ws": np.float32(2.0) ** numbers.integers(-9, -6, 4).astype(np.float32),
        "xs": np.array(2.0**-5, np.float32),
        "xz": np.array(numbers.integers(100, 150), np.uint8),
        "ys": np.array(2.0**-4, np.float32),
        "yz": np.array(numbers.integers(100, 150), np.uint8),
    }
    product = helper.make_node(
        "Conv" if image else "MatMul", ["xd", "wd"], ["p"], name="product"
    )
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"], axis=axis),
        product,
        helper.make_node("QuantizeLinear", ["p", "ys", "yz"], ["pq"]),
        helper.make_node("DequantizeLinear", ["pq", "ys", "yz"], ["y"]),
    ]
    model = _model(nodes, {"x": shape}, ["y"], weights)
    # off the ties, at which engines may round otherwise
    x = (numbers.integers(-60, 60, shape) * 2.0**-5 + 2.0**-7).astype(np.float32)
    return Case(
        model, {"x": x}, "a quantised " + ("convolution" if image else "product")
    )


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    outputs: Sequence[str],
    weights: dict[str, Any],
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "preferences",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", 21)]
    return bytes(
        helper.make_model(
            graph, opset_imports=imports, ir_version=10
        ).SerializeToString()
    )


_FUNCTIONS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("Gelu", {}),
    ("HardSwish", {}),
    ("Softplus", {}),
    ("Mish", {}),
    ("Elu", {"alpha": 0.7}),
    ("Selu", {}),
    ("Softsign", {}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("LogSoftmax", {"axis": -1}),
    ("ThresholdedRelu", {"alpha": 0.2}),
)


@check("preferences", share=0.3)
def expanded(trial: Trial) -> None:
    """Operators that are functions of others, whole or expanded, between others; the
    answer to whether they are is the same again."""
    for number in trial.in_time(range(4 if trial.quick else 24)):
        draw, numbers = trial.draw(number), trial.numbers(number)
        nodes, last = [], "x"
        for place, (operator, attributes) in enumerate(draw.sample(_FUNCTIONS, 4)):
            nodes.append(
                helper.make_node(operator, [last], [f"f{place}"], **attributes)
            )
            nodes.append(helper.make_node("Add", [f"f{place}", "b"], [f"a{place}"]))
            last = f"a{place}"
        b = numbers.uniform(-0.5, 0.5, (4,)).astype(np.float32)
        model = _model(nodes, {"x": (3, 4)}, [last, "f1"], {"b": b})
        x = numbers.uniform(-2, 2, (3, 4)).astype(np.float32)
        case = Case(model, {"x": x}, f"functions, {number}")
        every = frozenset(node.op_type for node in nodes)
        _compare(trial, case, EXPANDS, every | {"Mul", "Exp", "Where", "Less", "Div"})
        _ask_of_functions(trial, case)


def _ask_of_functions(trial: Trial, case: Case) -> None:
    with ignoring_failures(), listening(trial.subject) as talk:
        session = trial.subject.session(case.model, alone=False)
        with session:
            preferences: Any = talk.providers[0].preferences
            if not isinstance(preferences, ep.Preferences):
                text = f"preferences is a {type(preferences).__name__}"
                trial.find(LAYOUT, f"{text}; expected Preferences", kind="type")
                return
            if preferences.expands is None:
                return
            graph = talk.asked[0].graph
            for node in graph.nodes:
                answers = {bool(preferences.expands(graph, node)) for _ in range(3)}
                if len(answers) > 1:
                    text = f"expands says yes, and no, of {node.op_type}"
                    trial.find(EXPANDS, text, case=case, kind="again")


@check("preferences", share=0.3)
def rewritten(trial: Trial) -> None:
    """What a rewrite leaves of a network has the values that it had, each of them."""
    for number in trial.in_time(range(4 if trial.quick else 30)):
        case = _all_seen(trial, number)
        if not trial.attempt(case):
            continue
        with listening(trial.subject) as talk:
            try:
                with trial.subject.session(case.model, alone=False) as session:
                    if talk.providers[0].preferences.rewrite is None:
                        trial.take_back("the EP rewrites nothing")
                        return
                    found = session.run(None, dict(case.feeds))
            except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it is)
                if "runs no node" in str(error):
                    trial.take_back("the EP takes nothing of the network")
                    return
                trial.find(said.REWRITE, in_words(error), case=case, kind="raised")
                continue
        wrong, _ = contradiction(found, case, trial.subject)
        if wrong:
            trial.find(said.REWRITE, wrong, case=case, kind="wrong")


_USUAL: Final = ("Add", "Mul", "Relu", "Sigmoid", "Sub", "Neg", "Tanh", "MatMul", "Max")


def _all_seen(trial: Trial, number: int) -> Case:
    """A network whose every value is an output, so that none may go."""
    draw, numbers = trial.draw(number), trial.numbers(number)
    nodes, values, weights = [], ["x"], {}
    for place in range(8):
        operator = draw.choice(_USUAL)
        source = [draw.choice(values)]
        if operator == "MatMul":
            weights[f"w{place}"] = numbers.uniform(-0.5, 0.5, (4, 4)).astype(np.float32)
            source.append(f"w{place}")
        elif operator in ("Add", "Mul", "Sub", "Max"):
            source.append(draw.choice(values))
        nodes.append(helper.make_node(operator, source, [f"v{place}"]))
        values.append(f"v{place}")
    model = _model(nodes, {"x": (3, 4)}, values[1:], weights)
    x = numbers.uniform(-1, 1, (3, 4)).astype(np.float32)
    return Case(model, {"x": x}, f"a network of which all is seen, {number}")
