"""Writes the reference of public names, from their signatures and docstrings.

    python tests/docs/reference.py

writes ``api.md``, ``spi.md`` and those that it leads to, ``authoring.md`` and
``operators.md``.

The page of operators is what ``onnxplug ops --ep cpu`` lists.  A test compares the
pages with what this would write.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import itertools
import pkgutil
import re
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


class Page(NamedTuple):
    """A reference page: a module, and its names by section.

    What stands on the page before the first section is written by hand.
    """

    module: str
    sections: dict[str, tuple[str, ...]]


PAGES = {
    "api.md": Page(
        "onnxplug",
        {
            "Sessions": (
                "InferenceSession", "SessionOptions", "RunOptions",
                "GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder", "NodeArg",
                "ModelMetadata", "Explanation",
            ),
            "Values": ("OrtValue", "IOBinding"),
            "Compiling ahead": (
                "ModelCompiler", "OrtCompileApiFlags", "OrtCompiledModelCompatibility",
                "get_model_compatibility_for_ep_devices",
                "get_compatibility_info_from_model",
                "get_compatibility_info_from_model_bytes", "OrtEpContextData",
                "OrtEpContextDataBuffer", "OrtExternalInitializerInfo",
            ),
            "Choosing EPs": (
                "provider", "set_default_providers", "get_default_providers",
                "OrtExecutionProviderDevicePolicy", "calibrate",
            ),
            "Asking": (
                "get_available_providers", "get_all_providers", "get_ep_devices",
                "get_hardware_devices", "get_plugins", "is_available",
                "supported_by_platform",
            ),
            "Registering by hand": (
                "register_ep_library", "unregister_ep_library",
                "register_execution_provider_library",
                "unregister_execution_provider_library",
            ),
            "About onnxplug itself": (
                "get_version_string", "get_build_info", "get_device",
                "set_default_logger_severity", "set_seed", "__version__",
            ),
            "Modules": ("ep", "errors"),
        },
    ),
    "spi.md": Page(
        "onnxplug.ep",
        {
            "Hooks": (),
            "What a plugin supplies": (
                "EpFactory", "ExecutionProvider", "CompiledPartition", "hookimpl",
                "SelectionPolicy", "SPI_VERSION",
            ),
            "Facts that it returns": (
                "EpDevice", "Costs", "Option", "OpenOptions", "OptionValue",
                "CapabilityReport", "ComputeCapability", "Refusal", "Reason",
                "RefusalCode", "Finding", "Level", "OperatorSupport", "RefusedDevice",
                "PartitionReport",
            ),
            "What the host passes in": (
                "Host", "SessionContext", "RunContext", "Profiler", "HardwareDevice",
                "DeviceType", "Graph", "Node", "AttributeValue", "ValueInfo",
                "Partition", "SparseTensor", "ModelInfo",
            ),
            "Types": (
                "DataType", "ValueType", "TensorType", "SparseTensorType",
                "SequenceType", "OptionalType", "MapType", "Dimension", "next_seed",
            ),
            "Errors that a plugin raises": (
                "OptionError", "Declined", "SessionRefused", "NodeError",
                "OutOfMemory", "OutputMismatch", "RunCancelled", "LoadCancelled",
                "InvalidModel", "UnsupportedModel", "OnnxplugError", "EPFail",
                "PluginError", "PluginLoadError", "PluginIncompatible", "status_class",
                "raise_interruption",
            ),
            "On the other pages": (),
        },
    ),
    "spi-compilers.md": Page(
        "onnxplug.ep",
        {
            "The form of nodes": ("Preferences",),
            "Shapes": (
                "Specialiser", "ValueLocations", "Prewarmer", "TensorFacts", "Size",
                "named_sizes",
            ),
            "Keeping what was compiled": (
                "Serialiser", "Restorable", "CompatibilityCheck", "Compatibility",
            ),
            "Models and weights": ("ExportedModel", "WeightSource", "WeightStore"),
        },
    ),
    "spi-devices.md": Page(
        "onnxplug.ep",
        {
            "Memory": (
                "MemorySpaces", "MemoryLocation", "HOST", "DeviceContext", "MemoryKind",
                "Allocator", "DataTransfer",
            ),
            "Streams": (
                "Stream", "Event", "GraphCapture", "CapturedGraph", "CapturePhase",
            ),
            "Whether it is right, and worth it": (
                "Verification", "Probe", "CostModel",
                "DynamicOptions",
            ),
        },
    ),
    "spi-domains.md": Page(
        "onnxplug.ep",
        {
            "A domain and its operators": ("Domain", "Operator", "Trait", "InferTypes"),
            "Operators as graphs of others": (
                "FunctionBody", "Function", "Call", "ComputedConstant", "GraphEditor",
            ),
        },
    ),
}  # fmt: skip

OPERATORS = "operators.md"
"""The page of operators."""

AUTHORING = "authoring.md"
"""The page of what helps authors of EPs, a section for each module."""

HOOKS = """\
A plugin's module, named by an entry point of the group
`onnxplug.execution_providers` or `onnxplug.domains`, implements these, each marked with
`onnxplug.ep.hookimpl`. An implementation may leave out arguments that it does not use.
An entry point that names an `EpFactory`, as `package.module:Factory`, needs no hooks,
and is loaded without pluggy, whose import takes time.
"""

NOT_MADE_BY_USERS = {
    "Explanation", "IOBinding", "ModelMetadata", "NodeArg", "OrtValue", "Size",
}  # fmt: skip
"""Classes whose instances come from elsewhere than their constructor."""


def write(name: str) -> str:
    """The text of a page."""
    page = PAGES[name]
    module = importlib.import_module(page.module)
    present = (FOLDER / name).read_text("utf-8")
    texts = [present.partition(f"\n## {next(iter(page.sections))}\n")[0].rstrip("\n")]
    for title, names in page.sections.items():
        texts.append(f"## {title}")
        texts.append(WRITTEN[title](name) if title in WRITTEN else "")
        texts += [entry(module, each) for each in names]
    return "\n\n".join(filter(None, texts)) + "\n"


def write_authoring() -> str:
    """The text of the page of ``onnxplug.authoring``: its head, and its modules."""
    package = importlib.import_module("onnxplug.authoring")
    present = (FOLDER / AUTHORING).read_text("utf-8")
    texts = [present.partition("\n## ")[0].rstrip("\n")]
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"onnxplug.authoring.{found.name}")
        texts += [f"## {found.name}", first_sentence(module)]
        own = [
            name
            for name, value in vars(module).items()
            if name[0] != "_"
            and getattr(value, "__module__", "") == module.__name__
            # one that remembers its results, too
            and (inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value)))
        ]
        texts += [entry(module, name) for name in own]
    return "\n\n".join(filter(None, texts)) + "\n"


def write_operators() -> str:
    """The text of the page of operators: its head, and what ``onnxplug ops`` lists."""
    from onnxplug.plugins import registry
    from onnxplug_cli import ops
    from onnxplug_cli.operators import list_operators

    present = (FOLDER / OPERATORS).read_text("utf-8")
    texts = [present.partition("\n## ")[0].rstrip("\n")]
    versions = list_operators([registry.factory("cpu")]).versions
    for domain, rows in itertools.groupby(ops.rows(versions), lambda row: row.domain):
        lines = ["| operator | versions | tier | types |", "| --- | --- | --- | --- |"]
        last = ""
        for each in rows:
            name = "" if each.op_type == last else f"`{each.op_type}`"
            last = each.op_type
            _, numbers, _, tier, types = each.cells()
            lines.append(f"| {name} | {numbers} | {tier or 'none'} | {types} |")
        texts += [f"## {ops.domain_name(domain)}", "\n".join(lines)]
    return "\n\n".join(texts) + "\n"


def hooks(name: str) -> str:
    """The table of hooks, and what to know of all of them."""
    specifications = importlib.import_module("onnxplug.plugins.hookspecs")
    rows = [
        row(f"{hook}{signature(function)}", first_sentence(function))
        for hook, function in vars(specifications).items()
        if hook.startswith("onnxplug_")
    ]
    return f"{HOOKS}\n{table(rows)}"


def elsewhere(name: str) -> str:
    """A table of the names of a page's module that other pages have.

    Each row has the anchor that the name would have here, unless another has it.
    """
    module = importlib.import_module(PAGES[name].module)
    own = {each.lower() for names in PAGES[name].sections.values() for each in names}
    rows = [
        f"| {anchor(each.lower()) if each.lower() not in own else ''}"
        f"[`{each}`]({other}#{each.lower()}) | {sentence(module, each)} |"
        for other, page in PAGES.items()
        if page.module == PAGES[name].module and other != name
        for names in page.sections.values()
        for each in names
    ]
    return table(rows)


def anchor(name: str) -> str:
    """What links lead to that have *name* after their ``#``."""
    return f'<a id="{name}"></a>'


def sentence(module: ModuleType, name: str) -> str:
    """The first sentence of what is said of a public name."""
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return first_sentence(value)
    return constant(module, name)[1]


WRITTEN = {"Hooks": hooks, "On the other pages": elsewhere}
"""The sections that list something else than names of the module."""


def entry(module: ModuleType, name: str) -> str:
    """What the page says of one public name."""
    value = getattr(module, name)
    if not inspect.isclass(value):
        value = inspect.unwrap(value)
    heading = f"### {name}"
    if value is not Any and inspect.isclass(value):
        return "\n\n".join(filter(None, [heading, *of_class(name, value)]))
    if inspect.isfunction(value) or inspect.ismethod(value):
        call = f"```text\n{name}{signature(value, wrap=len(name))}\n```"
        return f"{heading}\n\n{call}\n\n{first_sentence(value)}"
    if inspect.ismodule(value):
        return f"{heading}\n\n{first_sentence(value)}"
    source, about = constant(module, name)
    return f"{heading}\n\n```text\n{name} = {source}\n```\n\n{about}".rstrip()


def of_class(name: str, kind: type) -> Iterator[str]:
    """First its sentence, then how it is made, then its members."""
    yield first_sentence(kind)
    attributes = described_attributes(kind)
    if issubclass(kind, enum.Enum):
        members = ", ".join(f"`{m.name}` ({m.value!r})" for m in kind)
        yield f"Members: {members}."
        rows = list(methods(kind))
    else:
        made = "" if name in NOT_MADE_BY_USERS else constructor(name, kind)
        if made:
            yield f"```text\n{made}\n```"
        rows = [row(field, text) for field, text in attributes.items()]
        known = set(attributes)
        rows += [
            row(field, text)
            for field, text in class_attributes(kind).items()
            if field not in known
        ]
        rows += list(methods(kind))
    if not rows and name in NOT_MADE_BY_USERS:
        fields = re.findall(r"self\.([a-z]\w*) = ", inspect.getsource(kind))
        yield f"Attributes: {', '.join(f'`{field}`' for field in fields)}."
    yield table(rows)


def constructor(name: str, kind: type) -> str:
    """How instances are made, where that is for users to do."""
    if inspect.isabstract(kind) or getattr(kind, "_is_protocol", False):
        return ""
    is_plain = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    if not is_plain and "__init__" not in vars(kind):
        return f"{name}()" if kind.__init__ is object.__init__ else ""
    found = inspect.signature(kind)
    return name + signature_text(
        found.replace(return_annotation=found.empty), wrap=len(name)
    )


def methods(kind: type) -> Iterator[str]:
    """Rows for the public methods and properties that *kind* itself defines."""
    for name, member in vars(kind).items():
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(member, property):
            yield row(name, first_sentence(member))
        elif isinstance(member, staticmethod | classmethod):
            yield row(f"{name}{signature(getattr(kind, name))}", first_sentence(member))
        elif inspect.isfunction(member):
            text = signature_text(without_self(inspect.signature(member)))
            start = "async " if inspect.iscoroutinefunction(member) else ""
            yield row(f"{start}{name}{text}", first_sentence(member))


def without_self(found: inspect.Signature) -> inspect.Signature:
    return found.replace(parameters=list(found.parameters.values())[1:])


def signature(function: Any, wrap: int | None = None) -> str:
    return signature_text(inspect.signature(function), wrap)


def signature_text(found: inspect.Signature, wrap: int | None = None) -> str:
    """A signature as it is written in the source.

    Args:
        wrap: one argument a line if it does not fit after so many characters.
    """
    parts = []
    kinds = inspect.Parameter
    star_is_due = True
    for parameter in found.parameters.values():
        if parameter.kind is kinds.KEYWORD_ONLY and star_is_due:
            parts.append("*")
        if parameter.kind in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL):
            star_is_due = False
        text = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(
            parameter.kind, ""
        )
        text += parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            equals = " = " if parameter.annotation is not parameter.empty else "="
            text += f"{equals}{default(parameter.default)}"
        parts.append(text)
    end = ""
    if found.return_annotation is not found.empty:
        end = f" -> {annotation(found.return_annotation)}"
    text = f"({', '.join(parts)}){end}"
    if wrap is None or wrap + len(text) <= 88:
        return text
    return "(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def annotation(found: Any) -> str:
    if isinstance(found, str):
        return found.replace("np.ndarray[Any, Any]", "np.ndarray")
    if isinstance(found, typing.ForwardRef):
        return found.__forward_arg__
    return inspect.formatannotation(found).replace("typing.", "")


def default(value: Any) -> str:
    from onnxplug.ep import HOST

    if isinstance(value, enum.Enum):
        return str(value)
    text = "HOST" if value == HOST else repr(value)
    return "…" if text.startswith("<") else text  # such as a dataclass's factory


def first_sentence(thing: Any) -> str:
    """The first sentence of a docstring, as Markdown; empty when there is none."""
    own = thing.__func__ if isinstance(thing, staticmethod | classmethod) else thing
    text = inspect.cleandoc(getattr(own, "__doc__", "") or "").split("\n\n")[0]
    return markdown(re.split(r"(?<=[.:])\s{2,}|(?<=\.)\n", text)[0])


def markdown(text: str) -> str:
    text = re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`").rstrip(":").strip()


def described_attributes(kind: type) -> dict[str, str]:
    """The section "Attributes" of a docstring, name by name."""
    text = inspect.cleandoc(kind.__doc__ or "")
    _, found, section = text.partition("Attributes:\n")
    attributes: dict[str, str] = {}
    if not found:
        return attributes
    names: list[str] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        if match := re.match(r"    (\w+(?:, \w+)*): (.*)", line):
            names = match[1].split(", ")
            attributes |= dict.fromkeys(names, match[2])
        elif line.strip() and names:
            for name in names:
                attributes[name] += f" {line.strip()}"
    return {name: markdown(text) for name, text in attributes.items()}


def class_attributes(kind: type) -> dict[str, str]:
    """Annotated attributes with a string below them, which inspect does not see."""
    source = inspect.getsource(kind)
    pattern = r'^    (\w+): [^\n]*\n    """(.*?)"""'
    return {
        name: markdown(text.split("\n\n")[0])
        for name, text in re.findall(pattern, source, re.DOTALL | re.MULTILINE)
        if not name.startswith("_")
    }


def constant(module: ModuleType, name: str) -> tuple[str, str]:
    """What a name of a package is set to in its source, and the string below."""
    for path in sorted(Path(module.__file__ or "").parent.glob("*.py")):
        body = ast.parse(path.read_text("utf-8")).body
        for statement, below in zip(body, [*body[1:], None], strict=True):
            match statement:
                case (
                    ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value)
                    | ast.Assign(targets=[ast.Name(id=found)], value=value)
                ) if found == name:
                    about = ""
                    if isinstance(below, ast.Expr) and isinstance(
                        below.value, ast.Constant
                    ):
                        about = markdown(inspect.cleandoc(str(below.value.value)))
                    return ast.unparse(value), about
    raise LookupError(f"{module.__name__} sets {name} nowhere")


def row(name: str, text: str) -> str:
    # GitHub ends a cell at a bar, in code too
    return f"| `{name}` | {text} |".replace(" | ", " \\| ").replace("` \\| ", "` | ", 1)


def table(rows: Iterable[str]) -> str:
    rows = list(rows)
    return "\n".join(["| | |", "| --- | --- |", *rows]) if rows else ""


if __name__ == "__main__":
    for each in PAGES:
        (FOLDER / each).write_text(write(each), "utf-8")
    (FOLDER / AUTHORING).write_text(write_authoring(), "utf-8")
    (FOLDER / OPERATORS).write_text(write_operators(), "utf-8")
