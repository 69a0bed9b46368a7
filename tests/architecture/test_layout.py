"""The rules of the house: direction of imports, lightness, and the size of files."""

from __future__ import annotations

import ast
import functools
import importlib
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import onnxplug

from .floors import CORE, FLOORS, NEUTRAL, NEUTRAL_FLOORS, PAGE, ROOT, written

GPU: Final = NEUTRAL / "gpu"

GPU_FLOORS: Final = (
    {"probes", "render", "shapes"},
    {"packing"},
    {"command"},
    {"families"},
    {"execution"},
)
"""What compilers for GPUs have in common, from the lowest floor up."""

EXECUTION_FLOORS: Final = (
    {"device", "positions", "splitting", "target"},
    {"array", "backend", "linking"},
    {"artefact", "capability", "profiling"},
    {"program"},
    {"copying", "segment"},
    {"context", "run"},
    {"partition", "restored"},
    {"provider", "serialiser"},
)
"""The same of what runs plans there."""

PLUGINS: Final = ROOT / "plugins"
THIRD_PARTY: Final = ROOT / "tests" / "third_party"

COMPILER: Final = PLUGINS / "cpu" / "src" / "onnxplug_cpu" / "compiler"

COMPILER_FLOORS: Final = (
    {"machine"},
    {"codegen"},
    {"commands"},
    {"kernels", "runtime"},
    {"flow"},
    {"cpu_target", "trial_of_tiles"},
    {"trial_of_bytes"},
    {"identity", "linked_plan", "parametric_plans", "steps", "whole_operators"},
    {"bound_in_place"},
    {"kept_plans"},
    {"kept_partition", "segment"},
    {"filled_segment", "floored_segment", "restore", "varying"},
    {"batches", "built_partition", "node_calls", "sequence"},
    {"variants"},
    {"partition"},
)
"""The same of the CPU EP's compiler; rooms of one floor do not import each other."""

FAMILIES: Final = (
    {"rows", "loop_nest", "horizontal_fusion", "sweep"},
    {"movement"},
    {"elementwise"},
    {"reduction", "widening"},
    {"spatial", "contraction"},
    {
        "attention",
        "coded",
        "normalization",
        "recurrent",
        "selection",
        "tables",
        "trees",
        "window",
        "winograd",
    },
    {"caches"},
)
"""The same of what is in ``kernels``."""


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Names of modules that *path* imports, wherever in the file."""
    return frozenset(_imported(parsed(path)))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes below *tree* but expressions, which are most of them."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.expr):
            yield node
            yield from statements(node)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def name_of(path: Path) -> str:
    """The name of the module or package at *path*."""
    root = next(parent for parent in path.parents if parent.name == "src")
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def imports_within(folder: Path) -> dict[str, set[str]]:
    """The modules of a package, and of these the ones that each imports."""
    paths = {name_of(path): path for path in sources(folder)}
    return {
        name: {other for other in imports(path) if other in paths and other != name}
        for name, path in paths.items()
    }


def room_of(module: str, package: str) -> str:
    return module.removeprefix(f"{package}.").split(".")[0]


def floor_of(room: str, floors: Sequence[set[str]] = FLOORS) -> int:
    found = [number for number, rooms in enumerate(floors) if room in rooms]
    assert found, f"{room} is on no floor; give it one in the list of floors"
    return found[0]


def test_core_imports_go_one_way() -> None:
    found = imports_within(CORE)
    # what the package offers lazily may be asked for from anywhere
    del found["onnxplug"]
    assert not [
        f"{name} imports {other}"
        for name, others in found.items()
        for other in others - {"onnxplug"}
        if floor_of(room_of(other, "onnxplug")) > floor_of(room_of(name, "onnxplug"))
    ]


def test_the_page_has_the_floors_as_they_are() -> None:
    how = "run python tests/architecture/floors.py"
    assert PAGE.read_text("utf-8") == written(), how


@pytest.mark.parametrize(
    ("folder", "floors"),
    [
        (NEUTRAL, NEUTRAL_FLOORS),
        (GPU, GPU_FLOORS),
        (GPU / "execution", EXECUTION_FLOORS),
        (COMPILER, COMPILER_FLOORS),
        (COMPILER / "kernels", FAMILIES),
    ],
    ids=["neutral", "gpu", "execution", "rooms", "families"],
)
def test_imports_of_the_compiler_go_one_way(
    folder: Path, floors: Sequence[set[str]]
) -> None:
    package = name_of(folder)
    wrong = []
    for name, others in imports_within(folder).items():
        for other in others - {package}:
            ours, theirs = room_of(name, package), room_of(other, package)
            if ours != theirs and floor_of(theirs, floors) >= floor_of(ours, floors):
                wrong.append(f"{name} imports {other}")
    assert not wrong


def test_the_neutral_half_knows_no_target() -> None:
    """Nor how one makes code, but by the protocol of targets."""
    allowed = {"numpy", "onnxplug", "onnxplug_compiler", "onnxplug_kernels"}
    found = {name.split(".")[0] for path in sources(NEUTRAL) for name in imports(path)}
    assert found - sys.stdlib_module_names <= allowed


def test_packages_of_the_compiler_say_what_may_be_in_them() -> None:
    """And import nothing, so that a process loads only what it uses."""
    found = [*COMPILER.rglob("__init__.py"), *NEUTRAL.glob("*/**/__init__.py")]
    for path in found:
        if path.parent.name != "math":
            (only,) = parsed(path).body
            assert isinstance(only, ast.Expr) and isinstance(only.value, ast.Constant)


def test_the_core_knows_no_plugin() -> None:
    wrong = [
        f"{path.relative_to(CORE)} imports {name}"
        for path in sources(CORE)
        # which are the doors of the command line, and of its pages
        if path not in (CORE / "__main__.py", CORE / "page.py")
        for name in imports(path)
        if name.startswith("onnxplug_")
    ]
    assert not wrong


DOORS: Final = {
    # runs ONNX's suite through its backend, and examines EPs as the host has them
    "onnxplug_testing": {"backend", "errors", "plugins"},
    # shows what the host knows
    "onnxplug_cli": {
        "calibration",
        "domains",
        "duration",
        "escape",
        "guard",
        "hardware",
        "partition",
        "plugins",
        "selection",
        "session",
        "tolerances",
        "verify",
    },
    # serves what the host runs
    "onnxplug_serve": {"escape", "session", "specialise"},
    # reads what a model needs beside it, to send it to other machines
    "onnxplug_ray": {"compile", "graph", "plugins", "session", "specialise", "warn"},
    # knows the layouts that libraries prefer by the names that the host has for them
    "onnxplug_native": {"layout"},
    # adapts the host's classes to programs for ONNX Runtime
    "onnxplug_onnxruntime": {
        "backend",
        "log",
        "names",
        "partition",
        "plugins",
        "selection",
        "session",
        "strictness",
        "suggest",
        "warn",
    },
}
"""Rooms of the core that parts of the host may use, which are distributions of their
own and no EPs."""

ASKS: Final = {
    "onnxplug_cli": frozenset({"onnxplug_serve", "onnxplug_testing"}),
    "onnxplug_ray": frozenset({"onnxplug_serve"}),
}
"""Which of them calls which other ones, where these are installed."""

HOSTS: Final = {
    "onnxplug_cli",
    "onnxplug_onnxruntime",
    "onnxplug_ray",
    "onnxplug_serve",
}
"""Those of them that import what users do, besides."""


def test_plugins_import_the_interface_and_what_helps_authors_only() -> None:
    """And nothing of each other but kernels; doors that nobody uses are closed."""
    rooms: defaultdict[str, set[str]] = defaultdict(set)
    wrong = []
    for path in [*sources(PLUGINS), *sources(THIRD_PARTY)]:
        if "src" not in path.parts:
            continue
        own = path.parts[path.parts.index("src") + 1]
        for name in imports(path):
            package, _, rest = name.partition(".")
            if package == "onnxplug" and rest:
                rooms[own].add(rest.split(".")[0])
            elif package.startswith("onnxplug_") and package not in {
                own,
                *ASKS.get(own, ()),
                "onnxplug_compiler",
                "onnxplug_kernels",
            }:
                wrong.append(f"{path.name} imports {name}")
    assert not wrong
    public = set(onnxplug.__all__)
    doors = {
        own: found - ({"authoring"} | (public if own in HOSTS else {"ep"}))
        for own, found in rooms.items()
    }
    assert {own: found for own, found in doors.items() if found} == DOORS


def private(names: Iterable[str]) -> set[str]:
    return {
        name
        for name in names
        if name[0] == "_" and name.strip("_") and name[:2] != "__"
    }


def defined(tree: ast.Module) -> Iterator[str]:
    """Names of functions and classes, and what is assigned to, attributes too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def named(tree: ast.Module) -> Iterator[str]:
    """What is read of other objects, imported, or named in a text, as patches do."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "self":
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.rpartition(".")[2]


def test_no_test_depends_on_private_names_of_the_cpu_ep() -> None:
    """So that it can be rebuilt; compared by name, as no object's class is known."""
    hidden = {
        name
        for folder in (NEUTRAL, PLUGINS / "cpu" / "src")
        for path in sources(folder)
        for name in private(defined(parsed(path)))
    }
    tests = [
        *sources(PLUGINS / "cpu" / "tests"),
        *(p for p in sources(ROOT / "tests") if "onnxplug_cpu" in p.read_text("utf-8")),
    ]
    assert not [
        f"{path.relative_to(ROOT)} names {name}"
        for path in tests
        if (names := hidden & {*named(tree := parsed(path))})
        for name in names - {*defined(tree)}
    ]


def test_files_stay_small() -> None:
    counts = {
        str(path.relative_to(ROOT)): len(path.read_bytes().splitlines())
        for folder in ("core", "plugins", "tests", "benchmarks", "demo")
        for path in sources(ROOT / folder)
    }
    assert len(counts) > 1000
    assert not {path: count for path, count in counts.items() if count > 600}


def loaded_by(program: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after *program*."""
    return {name.split(".")[0] for name in modules_after(program)}


def modules_after(program: str) -> set[str]:
    """All modules that a fresh interpreter has after *program*."""
    show = "import sys; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", f"{program}\n{show}"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(found.stdout.split())


def test_importing_onnxplug_is_light() -> None:
    loaded = loaded_by("import onnxplug")
    assert not loaded & {"numpy", "onnx", "ml_dtypes", "pluggy", "importlib_metadata"}


def test_the_spi_imports_the_standard_library_only() -> None:
    before = loaded_by("")
    third_party = {
        name
        for name in loaded_by("import onnxplug.ep") - before
        if name not in sys.stdlib_module_names and not name.startswith("_")
    }
    assert third_party == {"onnxplug"}


def test_listing_plugins_imports_none() -> None:
    loaded = loaded_by("import onnxplug; onnxplug.get_plugins()")
    assert not {name for name in loaded if name.startswith("onnxplug_")}
    assert not loaded & {"numpy", "onnx", "importlib_metadata"}


def test_the_cpu_factory_is_light() -> None:
    loaded = loaded_by("import onnxplug_cpu.factory")
    assert not loaded & {"numpy", "onnx", "ml_dtypes", "onnxplug_kernels"}


def first_result(tmp_path: Path, runtime: str = "import onnxplug") -> str:
    """A program that makes a session of one ``Add`` and runs it.

    Args:
        runtime: imports what is called ``onnxplug`` there.
    """
    import onnx
    from onnx import TensorProto, helper

    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "abc"
    ]
    node = helper.make_node("Add", ["a", "b"], ["c"])
    graph = helper.make_graph([node], "add", values[:2], values[2:])
    onnx.save(helper.make_model(graph), tmp_path / "add.onnx")
    return (
        f"import numpy; {runtime}\n"
        f"session = onnxplug.InferenceSession({str(tmp_path / 'add.onnx')!r}, "
        "providers=['CPUExecutionProvider'])\n"
        "one = numpy.ones(1, numpy.float32)\n"
        "assert session.run(None, {'a': one, 'b': one})[0] == 2"
    )


def test_a_typed_model_runs_without_importing_onnx(tmp_path: Path) -> None:
    assert "onnx" not in loaded_by(first_result(tmp_path))


OWN: Final = "import onnxplug"
STAND_IN: Final = (
    "import onnxplug_onnxruntime; onnxplug_onnxruntime.install(); "
    "import onnxruntime as onnxplug"
)


@pytest.mark.parametrize(
    "runtime", ["import onnxplug", STAND_IN], ids=["own", "stand-in"]
)
def test_a_first_result_imports_what_it_needs(tmp_path: Path, runtime: str) -> None:
    """Not what numpy does without, nor what writes kernels that the cache has."""
    program = first_result(tmp_path, runtime)
    loaded_by(program)  # fills the cache
    loaded = modules_after(program) - modules_after("import numpy")
    heavy = {"asyncio", "email", "importlib.metadata", "json", "logging", "pathlib"}
    heavy |= {"subprocess", "tempfile", "typing_extensions", "urllib", "pluggy"}
    writing = {"codegen.emit", "codegen.lanes", "codegen.math", "runtime.elf"}
    writing |= {"kernels.elementwise.emitters", "kernels.elementwise.generator"}
    assert sorted(loaded & heavy) == []
    writing = {f"onnxplug_cpu.compiler.{name}" for name in writing}
    assert sorted(loaded & writing) == []


def imported_in_functions(path: Path) -> Iterator[str]:
    """The modules that functions of *path* import, of onnxplug's and numpy; where a
    package gives a name when it is asked for, the module that it is from."""
    for function in ast.walk(parsed(path)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module != "onnxplug":
                package = importlib.import_module(node.module or "")
                for alias in node.names:
                    found = getattr(package, alias.name, None)
                    module = getattr(found, "__module__", node.module)
                    is_module = found is None or isinstance(found, ModuleType)
                    yield f"{node.module}.{alias.name}" if is_module else module


def test_functions_import_what_a_first_result_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All else is imported at the top, but where a package gives names when they are
    asked for, in what is loaded before there is a session, and in what EPs import to
    say which devices they drive.  What a session begins by does without more where an
    earlier process kept it."""
    program = first_result(tmp_path)
    loaded_by(program)  # fills the cache
    loaded = modules_after(program)
    monkeypatch.setenv("ONNXPLUG_CPU_KEEP_PLANS", "1")
    loaded_by(program)
    begun = modules_after(program)
    early = modules_after("import onnxplug; onnxplug.get_plugins()")
    wrong = {
        f"{path.relative_to(CORE)} imports {name}"
        for path in sources(CORE)
        if path.name != "__init__.py" and path.parent.name not in ("ep", "authoring")
        for name in imported_in_functions(path)
        if name.split(".")[0] in ("onnxplug", "numpy")
        and name in (begun if name_of(path) in begun else loaded)
        if name_of(path) not in early or name in early
    }
    assert not sorted(wrong)


BROAD: Final = {"FAILURES", "Exception", "BaseException"}
"""What catches exceptions of signal handlers, too, whatever their class."""

PASSES: Final = {
    "blame", "ep_failure", "interruption", "raise_interruption", "status_of",
}  # fmt: skip
"""What tells these from others, and raises them."""

NOT_ASKED: Final = {
    # what others' threads do, or run asynchronously: Python interrupts the main thread
    "onnxplug.session.background",
    "onnxplug.verify.worker",
    "onnxplug.calibration.process",
    "onnxplug_serve.scheduler",
    # a process of its own, whose parent is told whatever happens
    "onnxplug.calibration.child",
    # wraps in a NodeError of which the caller, the host, is told
    "onnxplug.authoring.kernels",
    # measures and tests of EPs, which report whatever happens
    "onnxplug_testing.backend_suite",
    "onnxplug_testing.conformance",
    "onnxplug_testing.measuring.trials",
    # where a library asks, the error is kept in the status that it returns; some
    # entries have none
    "onnxplug_native.interface.host",
    "onnxplug_native.interface.status",
    # where an engine asks, the error is kept for whoever waits for that
    "onnxplug_tensorrt.callbacks",
    # copies an error
    "onnxplug_testing.simulated.queues",
}


def is_asked(name: str) -> bool:
    """Whether neither the module *name* nor a package around it is in `NOT_ASKED`."""
    parts = name.split(".")
    return not any(".".join(parts[:n]) in NOT_ASKED for n in range(1, len(parts) + 1))


def swallowed(path: Path, *, may_wrap: bool) -> Iterator[int]:
    """Lines of broad handlers that let nothing pass of what a signal handler raised.

    Args:
        may_wrap: it is enough that they raise something, as the host looks at that.
    """
    text = path.read_text("utf-8")
    if not any(word in text for word in BROAD):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ExceptHandler) or node.type is None:
            continue
        caught = {each.id for each in ast.walk(node.type) if isinstance(each, ast.Name)}
        last = node.body[-1]
        is_raised = isinstance(last, ast.Raise) and (may_wrap or last.exc is None)
        called = {
            getattr(each.func, "attr", getattr(each.func, "id", ""))
            for each in ast.walk(node)
            if isinstance(each, ast.Call)
        }
        if caught & BROAD and not is_raised and not called & PASSES:
            yield node.lineno


def test_what_signal_handlers_raise_passes_everywhere() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in (CORE, *sorted(PLUGINS.glob("*/src")))
        for path in sources(folder)
        if is_asked(name_of(path))
        for line in swallowed(path, may_wrap=folder != CORE)
    ]
    assert not found, f"call raise_interruption(error) first: {found}"
    suppressed = [
        f"{path.relative_to(ROOT)}"
        for folder in (CORE, *sorted(PLUGINS.glob("*/src")))
        for path in sources(folder)
        if any(f"suppress({each}" in path.read_text("utf-8") for each in BROAD)
        or "suppress(*FAILURES" in path.read_text("utf-8")
    ]
    assert not suppressed, f"with ignoring_failures(): {suppressed}"
