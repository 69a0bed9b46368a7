"""Makes the pages of the site ready for zensical, which knows of no repository.

    python website/stage.py FOLDER

writes ``zensical.toml`` and ``pages/`` into FOLDER, which is made anew.  Pages are
written for a code host, where ``README.md`` is what a folder shows and links lead to
files.  Here each gets a place on the site, what else they link to becomes a page with
its text, and the reference gets pages with all docstrings, which only the site has.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
HERE: Final = Path(__file__).parent

PATTERNS: Final = (
    "README.md", "CHANGELOG.md", "docs/**/*.md", "core/README.md",
    "plugins/*/README.md", "demo/README.md", "benchmarks/README.md",
    "examples/*/README.md", "website/README.md",
)  # fmt: skip
"""The pages of the repository that the site has."""

FULL: Final = "reference/full"
"""The folder of pages with all docstrings."""

LINK: Final = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")

FENCE: Final = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.DOTALL | re.MULTILINE)

ROW: Final = re.compile(r"^ *\|.*\|$", re.MULTILINE)

NESTED: Final = re.compile(r"(?<=\n\n)(?: {2,3}\S.*\n)+")
"""A block that an item of a list has after its text."""

LANGUAGES: Final = {".py": "python", ".toml": "toml", ".yml": "yaml"}


def place(path: PurePosixPath) -> PurePosixPath:
    """Where on the site a page of the repository is.

    ``docs/how-to/x.md`` is ``how-to/x.md``, ``plugins/cpu/README.md`` is
    ``plugins/cpu.md``, and the repository's own is the first page.
    """
    if str(path) == "README.md":
        return PurePosixPath("index.md")
    if str(path) == "docs/README.md":
        return PurePosixPath("contents.md")
    if path.name == "README.md":
        return path.parent.with_suffix(".md")
    if path.parts[0] == "docs":
        return path.relative_to("docs")
    return PurePosixPath(path.name.lower())


class Site:
    """What is made ready, and what pages have been found to link to.

    Attributes:
        places: of each page of the repository, its place on the site.
        shown: of each other file or folder that is linked to, the page with its text.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        found = [
            PurePosixPath(path.relative_to(root).as_posix())
            for pattern in PATTERNS
            for path in sorted(root.glob(pattern))
        ]
        self.places = {path: place(path) for path in found}
        self.shown: dict[PurePosixPath, PurePosixPath] = {}
        self.pictures: dict[PurePosixPath, PurePosixPath] = {}

    def pages(self) -> Iterator[tuple[PurePosixPath, str]]:
        """The pages of the repository, with links as the site needs them, then those
        with the texts of files that they link to."""
        for path, target in self.places.items():
            text = (self.root / path).read_text("utf-8")
            yield target, self.linked(path, text)
        for path, target in self.shown.items():
            yield target, self._text_of(path, target)

    def linked(self, path: PurePosixPath, text: str) -> str:
        """*text*, which *path* has, with links to where things are on the site."""

        def replaced(link: re.Match[str]) -> str:
            if not link[1] or re.match(r"[a-z]+:", link[1]):
                return link[0]
            target = PurePosixPath(posixpath.normpath(path.parent / link[1]))
            there = posixpath.relpath(self.place_of(target), self.places[path].parent)
            return f"]({there}{link[2] or ''})"

        return outside_of_code(
            text, lambda part: python_markdown(LINK.sub(replaced, part))
        )

    def place_of(self, target: PurePosixPath) -> PurePosixPath:
        """Where on the site a file or folder of the repository is.

        Raises:
            LookupError: there is no such thing.
        """
        if not (self.root / target).exists():
            raise LookupError(f"a page links to {target}, which does not exist")
        if target in self.places:
            return self.places[target]
        if target / "README.md" in self.places:
            return self.places[target / "README.md"]
        if target.suffix in (".svg", ".png"):
            kept = target.relative_to("docs") if target.parts[0] == "docs" else target
            return self.pictures.setdefault(target, kept)
        return self.shown.setdefault(
            target, PurePosixPath("source", f"{target}".replace(".", "-") + ".md")
        )

    def _text_of(self, path: PurePosixPath, target: PurePosixPath) -> str:
        """A page with the text of a file, or the pages below a folder."""
        whole = self.root / path
        if whole.is_dir():
            below = [each for each in self.places if path in each.parents]
            lines = [
                f"- [`{each.parent}/`]"
                f"({posixpath.relpath(self.places[each], target.parent)})"
                for each in below
            ]
            return f"# {path}/\n\n" + "\n".join(lines) + "\n"
        language = LANGUAGES.get(path.suffix, "text")
        text = whole.read_text("utf-8").rstrip("\n")
        assert "````" not in text
        return (
            "---\nsearch:\n  exclude: true\n---\n\n"
            f"# {path}\n\n````{language}\n{text}\n````\n"
        )


def python_markdown(text: str) -> str:
    """*text*, GitHub's Markdown without blocks of code, as Python-Markdown needs it to
    mean the same.

    There, a bar in code never ends a cell, and a backslash before it is shown; and what
    follows in an item of a list is indented by four.
    """

    def unescaped(row: re.Match[str]) -> str:
        return re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), row[0])

    def nested(block: re.Match[str]) -> str:
        follows = block.string[block.end() : block.end() + 1]
        # or the next item would be more of the paragraph
        return indented(block[0]) + ("" if follows in ("", "\n") else "\n")

    return NESTED.sub(nested, ROW.sub(unescaped, text))


def indented(block: str) -> str:
    """*block*, which an item of a list has, by as much as Python-Markdown needs."""
    own = len(block) - len(block.lstrip(" "))
    more = " " * (4 - own if own in (2, 3) else 0)
    return "".join(f"{more}{line}" for line in block.splitlines(keepends=True))


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """*text* with *change* made to all that is in no fenced block; such a block is at
    most indented."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), indented(fence[0])]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def navigation(site: Site) -> list[Any]:
    """What the menu has: the index of the documentation, in its order, and the READMEs.

    Raises:
        ValueError: the index has no parts that can be read.
    """
    index = (site.root / "docs/README.md").read_text("utf-8")
    menu: list[Any] = [{"onnxplug": ["index.md", {"All pages": "contents.md"}]}]
    for title, body in re.findall(
        r"^\*\*([^*]+)\*\*:[^\n]*\n\n(.*?)(?=^\*\*|\Z)", index, re.DOTALL | re.MULTILINE
    ):
        entries = [entry for item in items(body) if (entry := _entry(item))]
        if title == "Reference":
            entries.append({"Docstrings in full": _full_entries()})
        menu.append({title: entries})
    if len(menu) != 5:
        raise ValueError(f"docs/README.md has {len(menu) - 1} parts; expected 4")
    readmes = [
        {str(path.parent): str(target)}
        for path, target in site.places.items()
        if path.name == "README.md" and path.parts[0] not in ("README.md", "docs")
    ]
    return [*menu, {"Distributions": [*readmes, {"Changelog": "changelog.md"}]}]


def items(body: str) -> list[str]:
    """The items of a list of Markdown, each on one line."""
    found = re.findall(r"^- (.*?)(?=^- |^$|\Z)", body, re.DOTALL | re.MULTILINE)
    return [" ".join(item.split()) for item in found]


def _entry(item: str) -> dict[str, Any]:
    """The entry of the menu for an item: a page, or several below what is before them,
    or below the first."""
    links = re.findall(r"\[([^]]+)\]\(([^)#]+)\)", item)
    title = item.partition("[")[0].strip(": ")
    pages: list[Any] = [{name[0].upper() + name[1:]: target} for name, target in links]
    if title:
        return {title: pages}
    if len(pages) == 1:
        return pages[0]  # type: ignore[no-any-return]
    return {links[0][0]: [links[0][1], *pages[1:]]}


def reference() -> Mapping[str, Any]:
    """The pages of the reference, with their modules and names by section, as the
    script has them that writes them."""
    path = ROOT / "tests/docs/reference.py"
    spec = importlib.util.spec_from_file_location("docs_reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.PAGES  # type: ignore[no-any-return]


def _full_entries() -> list[dict[str, str]]:
    return [{_title(name): f"{FULL}/{name}"} for name in reference()]


def _title(name: str) -> str:
    """The title of a page of the reference."""
    text = (ROOT / "docs/reference" / name).read_text("utf-8")
    return text.splitlines()[0].removeprefix("# ")


def full_pages() -> Iterator[tuple[PurePosixPath, str]]:
    """Pages with all docstrings of the public names."""
    for name, page in reference().items():
        lines = [
            f"# {_title(name)}, in full",
            f"All that the docstrings say of what [the short page](../{name}) lists.",
        ]
        for section, names in page.sections.items():
            if names:
                lines.append(f"## {section}")
                lines += [f"::: {page.module}.{each}" for each in names]
        yield PurePosixPath(FULL, name), "\n\n".join(lines) + "\n"


def toml(value: Any) -> str:
    """*value* as TOML writes it inline."""
    if isinstance(value, dict):
        inner = ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def settings(menu: list[Any]) -> str:
    """``zensical.toml`` with what depends on the repository and its place."""
    text = (HERE / "zensical.toml").read_text("utf-8")
    filled = {
        "nav": menu,
        "paths": [str(path) for path in sorted(ROOT.glob("core/src"))],
        "extensions": [str(HERE / "roles.py")],
    }
    for key, value in filled.items():
        before = re.compile(rf"^{key} = \[\]", re.MULTILINE)
        text, count = before.subn(lambda _, k=key, v=value: f"{k} = {toml(v)}", text)
        assert count == 1, key
    tomllib.loads(text)
    return text


def stage(folder: Path) -> None:
    """Write all that zensical reads into *folder*, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    site = Site()
    for target, text in (*site.pages(), *full_pages()):
        path = pages / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for picture, target in site.pictures.items():
        (pages / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / picture, pages / target)
    for name in ("site.css", "iframe-worker.js"):
        shutil.copyfile(HERE / name, pages / name)
    (folder / "zensical.toml").write_text(settings(navigation(site)), "utf-8")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
