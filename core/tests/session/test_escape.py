"""What names may do to text: nothing."""

from __future__ import annotations

import pickle
import sys
import traceback
import unicodedata
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug import errors
from onnxplug.ep import Reason, RefusalCode
from onnxplug.escape import escape, escape_lines

HARMFUL = "\x1b[31m\r\x9b2J\u202e\u2028\u2029\x00\x07\x08\t\x7f\u2066\u200b\ufeff"


def test_what_is_fit_to_be_shown_stays_as_it_is() -> None:
    for text in ("Conv 'a'", "größer → ≥", "入力\u3000一", "\\x1b", "é́", "🙂", "\xa0"):
        assert escape(text) == text
        assert escape(escape(text)) == text


def test_no_other_character_than_those_of_five_categories_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        if code < 0x3100 or 0xD7F0 <= code < 0xE010 or 0xFE00 <= code < 0x10000:
            char = chr(code)
            harmful = unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
            assert (escape(char) != char) == harmful, hex(code)
            assert escape(char).isprintable() or not harmful


def test_a_name_is_in_one_line_and_a_text_keeps_its_own() -> None:
    assert escape("a\nb\x1b\u202e\ud800\U000e0001") == (
        r"a\nb\x1b\u202e\ud800\U000e0001"
    )
    assert escape_lines("a\nb\x1b\r\n") == "a\nb\\x1b\\r\n"
    assert escape(3) == "3"


def of_errors() -> list[type[errors.OnnxplugError]]:
    return [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.OnnxplugError)
    ]


@pytest.mark.parametrize("kind", of_errors(), ids=lambda kind: kind.__name__)
def test_every_error_escapes_its_text(kind: type[errors.OnnxplugError]) -> None:
    error = kind(f"first {HARMFUL}\nsecond")
    assert str(error) == f"first {escape(HARMFUL)}\nsecond"
    assert HARMFUL not in "".join(traceback.format_exception(error))
    restored = pickle.loads(pickle.dumps(error))
    assert str(restored) == str(error)
    assert repr(error).isprintable()


@pytest.mark.parametrize(
    "kind", [errors.OptionWarning, errors.ModelWarning, errors.EpWarning]
)
def test_every_warning_escapes_its_text(kind: type[Warning]) -> None:
    with pytest.warns(kind) as caught:
        warnings.warn(f"about {HARMFUL}", kind, stacklevel=1)
    shown = warnings.formatwarning(caught[0].message, kind, "file.py", 1, "the source")
    assert escape(HARMFUL) in shown
    assert HARMFUL not in shown


def test_a_reason_is_in_one_line() -> None:
    reason = Reason(RefusalCode.OP, f"no kernel for {HARMFUL}\nnot on cpu")
    assert str(reason).isprintable()


def value(name: str, shape: list[int | str] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(op_type: str, *, domain: str = "", twice: bool = False) -> bytes:
    name = f"n{HARMFUL}\nforged"
    node = helper.make_node(op_type, [f"x{name}"], [f"y{name}"], name, domain=domain)
    nodes = [node, node] if twice else [node]
    graph = helper.make_graph(
        nodes, f"g{name}", [value(f"x{name}", [f"d{name}", 2])], [value(f"y{name}")]
    )
    opsets = [helper.make_opsetid("", 18)]
    opsets += [helper.make_opsetid(domain, 1)] if domain else []
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return made.SerializeToString()


def require_safe(text: str) -> None:
    assert text
    for line in text.split("\n"):
        assert all(
            unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
            for char in line
        ), ascii(line)
        assert not line.lstrip().startswith("forged")


def test_errors_of_models_show_no_name_as_it_is(caplog) -> None:
    evil = f"Op{HARMFUL}\nforged"
    for data in (
        model("Relu", twice=True),
        model(evil),
        model(evil, domain=f"own{HARMFUL}\nforged"),
    ):
        with pytest.raises(errors.OnnxplugError) as raised:
            onnxplug.InferenceSession(data)
        require_safe(str(raised.value))
    for record in caplog.records:
        require_safe(record.getMessage())


def test_errors_of_feeds_show_no_name_as_it_is(simulated) -> None:
    ep = simulated(ops=frozenset({"Relu"}))
    session = onnxplug.InferenceSession(model("Relu"), providers=[ep.name])
    name = session.get_inputs()[0].name
    assert name.endswith("\nforged")  # as it is in the model
    array = np.zeros((2, 2), np.float32)
    for feed in (
        {},
        {name: array, f"other{HARMFUL}\nforged": array},
        {name: array[0]},
        {name: array.T[:1].T},
        {name: array.astype(np.int8)},
        {name: "text"},
    ):
        with pytest.raises(errors.OnnxplugError) as raised:
            session.run(None, feed)
        require_safe(str(raised.value))
    with pytest.raises(errors.OnnxplugError) as raised:
        session.run([f"other{HARMFUL}\nforged"], {name: array})
    require_safe(str(raised.value))
    binding = session.io_binding()
    for bind in (binding.bind_cpu_input, binding.bind_output):
        with pytest.raises(errors.OnnxplugError) as raised:
            bind(f"other{HARMFUL}\nforged", array)
        require_safe(str(raised.value))
    require_safe(str(session.explain()))
