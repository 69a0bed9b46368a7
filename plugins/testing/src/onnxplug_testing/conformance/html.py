"""A report as one page of HTML, which needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from onnxplug_testing.conformance.finding import Finding
from onnxplug_testing.conformance.report import Report
from onnxplug_testing.conformance.text import summary

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem;
       padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8884; padding: .3rem .6rem; text-align: left;
         vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.found { font-weight: bold; color: #c33; }
article { border-left: .25rem solid #c33; margin: 1.5rem 0; padding: 0 1rem; }
blockquote { margin: .5rem 0; font-style: italic; }
code { overflow-wrap: anywhere; }
"""


def as_html(report: Report) -> str:
    """The page."""
    title = f"{report.ep} {report.version}: conformance"
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _body(report: Report) -> Iterator[str]:
    yield f"<h1>{escape(report.ep)} {escape(report.version)}</h1>"
    versions = ", ".join(f"{name} {text}" for name, text in report.versions.items())
    yield f"<p>{escape(report.device)}<br>{escape(versions)}</p>"
    yield f"<p><strong>{escape(summary(report))}</strong></p>"
    yield "<h2>What was tried</h2>"
    yield _table(report)
    if report.unexamined:
        yield f"<p>Not asked for: {escape(', '.join(report.unexamined))}.</p>"
    figures = [
        (each.full_name, what, f"{figure:.4g}")
        for each in report.checks
        for what, figure in each.figures.items()
    ]
    if figures:
        yield "<h2>What was measured</h2>"
        yield "<table><tr><th>check<th>what<th class=n>figure</tr>"
        for name, what, figure in figures:
            yield f"<tr>{_cells((name, what))}<td class=n>{figure}</tr>"
        yield "</table>"
    yield f"<h2>What was found</h2>{'' if report.findings else '<p>Nothing.</p>'}"
    for number, finding in enumerate(report.findings, 1):
        yield _article(number, finding)


def _table(report: Report) -> str:
    rows = [
        "<table><tr><th>check<th class=n>tried<th class=n>not tried"
        "<th class=n>findings<th>why not</tr>"
    ]
    for each in report.checks:
        why = "; ".join(f"{count}: {why}" for why, count in each.untried.items())
        found = len(each.findings)
        name = f"<code>{escape(each.full_name)}</code><br>{escape(each.doc)}"
        rows.append(
            f"<tr><td>{name}<td class=n>{each.tried}"
            f"<td class=n>{sum(each.untried.values())}"
            f'<td class="n{" found" if found else ""}">{found}'
            f"<td>{escape(why)}</tr>"
        )
    return "\n".join([*rows, "</table>"])


def _cells(texts: Iterable[str]) -> str:
    return "".join(f"<td>{escape(text)}" for text in texts)


def _article(number: int, finding: Finding) -> str:
    sentence = finding.sentence
    facts = [
        ("node", finding.node),
        ("case", finding.case),
        *(
            (name, f"{dtype}{list(finding.shapes[name])}")
            for name, dtype in finding.types.items()
        ),
        ("reproduce", f"{finding.file}/reproduce.py" if finding.file else ""),
        ("found", f"{finding.times} times" if finding.times > 1 else ""),
    ]
    rows = "".join(
        f"<tr><th>{escape(name)}<td><code>{escape(text)}</code></tr>"
        for name, text in facts
        if text
    )
    return (
        f"<article><h3>{number}. {escape(finding.group)}/{escape(finding.check)}</h3>"
        f"<p>{escape(finding.what)}</p>"
        f"<blockquote>{escape(sentence.of)}: {escape(sentence.says)} "
        f"<small>({escape(sentence.link)})</small></blockquote>"
        f"<table>{rows}</table></article>"
    )
