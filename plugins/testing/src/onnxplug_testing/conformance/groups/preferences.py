"""Whether models keep their meaning in the form that an EP prefers.

Beside it :mod:`.pairs` asks of nodes that rewrites merge.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.cases import as_case, describe, load_suite
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import pairs
from onnxplug_testing.conformance.opinions import contradiction
from onnxplug_testing.conformance.pitfalls import pitfalls_of
from onnxplug_testing.conformance.survey import claimed_of, survey
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

_SINGLE: Final = 3
"""Nodes that are tried by themselves for each network."""

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
    """Networks of images, of sizes that all differ, in whatever layout; and what is
    turned, with attributes that engines get wrong."""
    single = _single_nodes(trial)
    for number in trial.in_time(range(12 if trial.quick else 120)):
        for case in itertools.islice(single, _SINGLE):
            _compare(trial, case, LAYOUT, _SPATIAL)
        net = ConvNet(trial.draw(number).getrandbits(31))
        if trial.subject.is_reference and _errs(net):
            trial.leave_out("ONNX's reference alone says otherwise, and is wrong")
            continue
        case = Case(
            net.model.SerializeToString()
            if isinstance(net.model, onnx.ModelProto)
            else net.model,
            _fed(net.model, net.feeds),
            f"a network of {net.spatial} axes, {number}",
        )
        _compare(trial, case, LAYOUT, _SPATIAL)


def _errs(net: ConvNet) -> bool:
    """Whether there is what ONNX's reference computes for two axes only."""
    model = net.model
    if not isinstance(model, onnx.ModelProto):
        model = onnx.load_model_from_string(model)
    return net.spatial != 2 and any(
        node.op_type == "GlobalMaxPool" for node in model.graph.node
    )


def _single_nodes(trial: Trial) -> Iterator[Case]:
    """Pitfalls of operators on images, one of each in turn, if they are turned."""
    with ignoring_failures(), listening(trial.subject, until_asked=True) as talk:
        trial.subject.session(as_case(load_suite()["Relu"][0]).model).close()
    if not talk.providers or talk.providers[0].preferences.layout != "NHWC":
        return
    suite = load_suite()
    spatial = {name: suite[name] for name in sorted(_SPATIAL & suite.keys())}
    answers = survey(trial.subject, spatial, of_each=3)
    names = [name for name, said_of_it in answers.items() if claimed_of(said_of_it)]
    turns = [pitfalls_of(name, trial.draw(name)) for name in names]
    while turns:
        for turn in list(turns):
            tried = next(turn, None)
            if tried is None:
                turns.remove(turn)
                continue
            case = as_case(tried)
            yield Case(case.model, case.feeds, describe(tried))


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
        trial.find(sentence, f"{case.name}: {wrong}", case=case, kind=words)


@check("preferences", share=0.4)
def quantised(trial: Trial) -> None:
    """Products and convolutions of quantised weights and data, of which others read the
    weights, too, or which have a bias."""
    ways = list(itertools.product((False, True), ("", "twice", "seen", "bias")))
    for number in trial.in_time(range(8 if trial.quick else 48)):
        image, way = ways[number % len(ways)]
        case = _quantised(trial.numbers(number), way, image=image)
        _compare(
            trial,
            case,
            QDQ,
            frozenset({"DequantizeLinear", "QuantizeLinear", "MatMul", "Conv"}),
        )


def _quantised(numbers: np.random.Generator, way: str, *, image: bool) -> Case:
    """Scales are powers of two, so that what is summed is exact in float32.

    Args:
        way: who else reads the weights: another product (``twice``), or the caller
            (``seen``); or there is a ``bias``, and weights have zero points.
    """
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
    operator = "Conv" if image else "MatMul"
    of_weights = ["w", "ws"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node(operator, ["xd", "wd"], ["p"], name="product"),
    ]
    outputs, last = ["y"], "p"
    if way == "bias":
        weights["wz"] = numbers.integers(-9, 10, 4).astype(np.int8)
        of_weights.append("wz")
        weights["b"] = numbers.integers(-99, 99, 4).astype(np.int32)
        if image:
            weights["b"] = weights["b"].reshape(4, 1, 1)
        weights["bs"] = np.array(2.0**-6, np.float32)
        nodes.append(helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"]))
        nodes.append(helper.make_node("Add", ["p", "bd"], ["sum"]))
        last = "sum"
    elif way == "twice":
        nodes.append(helper.make_node(operator, ["x", "wd"], ["second"]))
        outputs.append("second")
    elif way == "seen":
        outputs.append("wd")
    nodes.insert(2, helper.make_node("DequantizeLinear", of_weights, ["wd"], axis=axis))
    nodes += [
        helper.make_node("QuantizeLinear", [last, "ys", "yz"], ["pq"]),
        helper.make_node("DequantizeLinear", ["pq", "ys", "yz"], ["y"]),
    ]
    model = _model(nodes, {"x": shape}, outputs, weights)
    # off the ties, at which engines may round otherwise
    x = (numbers.integers(-60, 60, shape) * 2.0**-5 + 2.0**-7).astype(np.float32)
    what = f"a quantised {'convolution' if image else 'product'}{way and f', {way}'}"
    return Case(model, {"x": x}, what)


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
    ("Celu", {"alpha": 0.5}),
    ("Gelu", {"approximate": "tanh"}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("LogSoftmax", {"axis": 0}),
    ("MeanVarianceNormalization", {"axes": [1]}),
    ("Shrink", {"lambd": 0.5, "bias": 0.1}),
    ("Softmax", {"axis": 0}),
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
