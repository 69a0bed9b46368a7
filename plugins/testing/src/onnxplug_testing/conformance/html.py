"""A report as one page of HTML, which needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from onnxplug_testing.conformance.finding import Finding
from onnxplug_testing.conformance.report import CheckOutcome, Report
from onnxplug_testing.conformance.text import summary

_STYLE: Final = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1c1c20; --faint: #54545e;
        --line: #d4d4dc; --sheet: #f5f5f8; --bad: #b3261e; --link: #0b57d0; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #16161a; --ink: #e6e6ea; --faint: #ababb6;
          --line: #3b3b45; --sheet: #212128; --bad: #ff8a80; --link: #8ab4f8; }
}
* { box-sizing: border-box; }
body { background: var(--ground); color: var(--ink); margin: 2rem auto; padding: 0 1rem;
       font: 16px/1.5 system-ui, sans-serif; max-width: 64rem;
       overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.25; }
h1 { font-size: clamp(1.25rem, 5.5vw, 2rem); }
h2 { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 1rem; }
h3 { font-size: 1.05rem; margin: 0 0 .5rem; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
code { font: .875em/1.5 ui-monospace, monospace; }
nav a { display: inline-block; margin-right: 1.25rem; }
.faint { color: var(--faint); }
.bad { color: var(--bad); font-weight: bold; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
.wide table { min-width: 40rem; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .6rem; text-align: left;
         vertical-align: top; }
tbody th { font-weight: normal; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td ul { list-style: none; margin: 0; padding: 0; }
article { background: var(--sheet); border-left: .3rem solid var(--bad);
          margin: 1.25rem 0; padding: .75rem 1rem; }
article p { margin: .5rem 0; }
blockquote { border-left: 2px solid var(--line); margin: .75rem 0;
             padding-left: .75rem; }
blockquote cite { color: var(--faint); display: block; font-style: normal; }
dl { display: grid; gap: .15rem .9rem; margin: .5rem 0 0;
     grid-template-columns: fit-content(10rem) minmax(0, 1fr); }
dt { color: var(--faint); }
dd { margin: 0; }
@media print { .wide { overflow: visible; } article { break-inside: avoid; } }
"""


def as_html(report: Report) -> str:
    """The page."""
    title = f"{report.ep} {report.version}: conformance"
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _body(report: Report) -> Iterator[str]:
    figures = [
        (each.full_name, what, f"{figure:.4g}")
        for each in report.checks
        for what, figure in each.figures.items()
    ]
    yield from _head(report, has_figures=bool(figures))
    yield '<main>\n<section aria-labelledby="found"><h2 id="found">What was found</h2>'
    if not report.findings:
        yield "<p>Nothing, of what was tried.</p>"
    for number, finding in enumerate(report.findings, 1):
        yield _article(number, finding)
    yield '</section>\n<section><h2 id="tried">What was tried</h2>'
    yield _wide("tried", _table(report))
    if report.unexamined:
        names = ", ".join(f"<code>{escape(name)}</code>" for name in report.unexamined)
        yield f"<p>Not asked for: {names}.</p>"
    yield "</section>"
    if figures:
        yield '<section><h2 id="measured">What was measured</h2>'
        yield _wide("measured", _figures(figures))
        yield "</section>"
    yield "</main>"


def _head(report: Report, *, has_figures: bool) -> Iterator[str]:
    versions = ", ".join(f"{name} {text}" for name, text in report.versions.items())
    yield f"<header><h1>{escape(report.ep)} {escape(report.version)}</h1>"
    yield f'<p>{escape(report.device)}<br><span class="faint">'
    yield f"{escape(versions)}</span></p>"
    state = ' class="bad"' if report.findings else ""
    yield f"<p><strong{state}>{escape(summary(report))}</strong></p></header>"
    yield '<nav aria-label="On this page"><a href="#found">What was found</a>'
    yield '<a href="#tried">What was tried</a>'
    if has_figures:
        yield '<a href="#measured">What was measured</a>'
    yield "</nav>"


def _wide(heading: str, table: str) -> str:
    """*table*, which scrolls where the window is narrow, by keys, too."""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-labelledby="{heading}">'
        f"\n{table}\n</div>"
    )


def _table(report: Report) -> str:
    rows = [
        '<table><thead><tr><th scope="col">check<th scope="col" class="n">tried'
        '<th scope="col" class="n">not tried<th scope="col" class="n">findings'
        '<th scope="col">why not</thead><tbody>'
    ]
    first = 1
    for each in report.checks:
        rows.append(_row(each, first))
        first += len(each.findings)
    return "\n".join([*rows, "</tbody></table>"])


def _row(outcome: CheckOutcome, first: int) -> str:
    """The row of a check, whose first finding has the number *first*."""
    why = "".join(
        f"<li>{count}: {escape(why)}" for why, count in outcome.untried.items()
    )
    found = str(len(outcome.findings))
    if outcome.findings:
        found = f'<a class="bad" href="#finding-{first}">{found}</a>'
    return (
        f'<tr><th scope="row"><code>{escape(outcome.full_name)}</code>'
        f'<br><span class="faint">{escape(outcome.doc)}</span>'
        f'<td class="n">{outcome.tried}'
        f'<td class="n">{sum(outcome.untried.values())}<td class="n">{found}'
        f"<td>{f'<ul>{why}</ul>' if why else ''}</tr>"
    )


def _figures(figures: Iterable[tuple[str, str, str]]) -> str:
    rows = [
        '<table><thead><tr><th scope="col">check<th scope="col">what'
        '<th scope="col" class="n">figure</thead><tbody>'
    ]
    for name, what, figure in figures:
        rows.append(
            f'<tr><th scope="row"><code>{escape(name)}</code><td>{escape(what)}'
            f'<td class="n">{figure}</tr>'
        )
    return "\n".join([*rows, "</tbody></table>"])


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
        f"<dt>{escape(name)}<dd><code>{escape(text)}</code>"
        for name, text in facts
        if text
    )
    heading = f"finding-{number}"
    return (
        f'<article aria-labelledby="{heading}"><h3 id="{heading}">'
        f"{number}. {escape(finding.group)}/{escape(finding.check)}</h3>"
        f"<p>{escape(finding.what)}</p>"
        f"<blockquote>{escape(sentence.says)}"
        f"<cite>{escape(sentence.of)}, <code>{escape(sentence.link)}</code></cite>"
        f"</blockquote>{f'<dl>{rows}</dl>' if rows else ''}</article>"
    )
