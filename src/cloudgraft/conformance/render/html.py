"""Renders a report as one web page: loads nothing, runs nothing, escapes all text of the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from cloudgraft.conformance.render.words import advice, as_called, clean, conclusion, headline, rules_of
from cloudgraft.conformance.report import Exchange, Report, Result, Status
from cloudgraft.conformance.rules import RULES, Level

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #ffffff; --box: #f3f5f8; --edge: #d4dae2;
  --must: #b3141d; --should: #8a5a00; --note: #0b6277; --good: #16703a; --odd: #7a2d8f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa6b5; --paper: #14181e; --box: #1d232b;
  --edge: #343d49; --must: #ff7b80; --should: #f0b958; --note: #62c8de; --good: #66d28f; --odd: #d797ea; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; } h3 { font-size: 1.05rem; margin: 0; }
.verdict { font-size: 1.15rem; font-weight: 600; }
.soft { color: var(--soft); }
.must, .failed { color: var(--must); } .note { color: var(--note); }
.should, .blocked, .inconclusive { color: var(--should); }
.passed { color: var(--good); } .error { color: var(--odd); } .skipped { color: var(--soft); }
article { border: 1px solid var(--edge); border-left: 0.35rem solid currentColor; border-radius: 0.3rem;
  padding: 0.8rem 1rem; margin: 1rem 0; }
article > * { color: var(--ink); }
dl { display: grid; grid-template-columns: 10rem 1fr; gap: 0.3rem 1rem; margin: 0.6rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { border-bottom: 1px solid var(--edge); padding: 0.3rem 0.8rem 0.3rem 0; vertical-align: top;
  overflow-wrap: anywhere; }
pre { background: var(--box); padding: 0.6rem 0.8rem; border-radius: 0.3rem; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; margin: 0.3rem 0; font-size: 0.85rem; }
summary { cursor: pointer; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } }
"""
_HEAD: Final = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Conformance report</title>
<style>{_STYLE}</style>
</head>
<body>
"""


def to_html(report: Report) -> str:
    """The page."""
    parts = [
        _HEAD,
        *_title(report),
        *_summary(report),
        *_section("Failures", (_article(result) for result in report.failures)),
        *_section("Could not be judged", (_article(each) for each in report.results if each.status is Status.ERROR)),
        *_left_behind(report),
        *_reasons("Inconclusive: neither passed nor failed", report, Status.INCONCLUSIVE),
        *_reasons("Blocked: these follow from a failure above", report, Status.BLOCKED),
        *_reasons("Skipped", report, Status.SKIPPED),
        *_all_checks(report),
        *(_unseen() if report.release else ()),  # the rules of a server
        "</body>\n</html>\n",
    ]
    return "".join(parts)


def _text(value: str) -> str:
    """Escapes any text for the page."""
    return escape(clean(value))


def _title(report: Report) -> Iterator[str]:
    word = "passed" if report.is_passed else "failed" if report.is_broken else "inconclusive"
    yield f"<h1>Conformance of {_text(headline(report.server))}</h1>\n"
    yield f'<p class="verdict {word}">{_text(conclusion(report))}</p>\n'
    started = f"{report.started:%Y-%m-%d %H:%M:%S %Z}".strip()
    yield f'<p class="soft">{_text(as_called(report))}, {_text(started)}.</p>\n'


def _summary(report: Report) -> Iterator[str]:
    yield f"<table><tr><th>level</th>{''.join(f'<th>{status}</th>' for status in Status)}</tr>\n"
    for level in Level:
        results = [result for result in report.results if result.level is level]
        counts = [(status, sum(result.status is status for result in results)) for status in Status]
        cells = "".join(f'<td class="{status if count else "soft"}">{count}</td>' for status, count in counts)
        yield f'<tr><td class="{level}">{level}</td>{cells}</tr>\n'
    yield "</table>\n"


def _section(title: str, parts: Iterable[str]) -> Iterator[str]:
    if body := "".join(parts):
        yield f"<h2>{_text(title)}</h2>\n{body}"


def _article(result: Result) -> str:
    kind = result.level if result.status is Status.FAILED else result.status
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>\n" for name, value in _facts(result))
    return (
        f'<article class="{kind}"><h3><span class="{kind}">{kind}</span> {_text(result.check)}</h3>\n'
        f"<dl>\n{facts}</dl>\n{_calls(result.exchanges, is_open=True)}</article>\n"
    )


def _facts(result: Result) -> Iterator[tuple[str, str]]:
    yield "what must hold", result.title
    yield "what came instead", result.message
    for number, rule in enumerate(rules_of(result)):
        yield ("rule" if number == 0 else ""), f"{rule.id}: {rule.title}"
    if (main := advice(result)) and result.status is Status.FAILED:
        yield "why it matters", main.why
        yield "how to fix it", main.fix


def _calls(exchanges: Iterable[Exchange], *, is_open: bool = False) -> str:
    shown = "".join(
        f'<pre>{_text(exchange.rpc)} {_text(exchange.sent)}</pre>\n<pre class="{"must" if exchange.is_failed else ""}">'
        f"({exchange.seconds * 1000:.0f} ms) {_text(exchange.answered)}</pre>\n"
        for exchange in exchanges
    )
    return f"<details{' open' if is_open else ''}><summary>calls</summary>\n{shown}</details>\n" if shown else ""


def _left_behind(report: Report) -> Iterator[str]:
    machines = "".join(f"<li>{_text(machine)}</li>\n" for machine in report.left_behind)
    title = "Left behind: the kit made these machines and could not delete them"
    yield from _section(title, [f'<ul class="must">\n{machines}</ul>\n'] if machines else [])


def _reasons(title: str, report: Report, status: Status) -> Iterator[str]:
    found = [result for result in report.results if result.status is status]
    rows = "".join(
        f"<tr><td>{_text(each.check)}</td><td>{_text(' '.join(each.rules))}</td><td>{_text(each.message)}</td></tr>\n"
        for each in found
    )
    table = f"<table><tr><th>check</th><th>rules</th><th>why</th></tr>\n{rows}</table>\n"
    yield from _section(f"{title} ({len(found)})", [table] if found else [])


def _all_checks(report: Report) -> Iterator[str]:
    yield f"<h2>All checks ({len(report.results)})</h2>\n<table><tr><th>check</th><th>rules</th><th>level</th>"
    yield "<th>outcome</th><th>seconds</th></tr>\n"
    for result in report.results:
        what = f'{_text(result.check)}<br><span class="soft">{_text(result.title)}</span>{_calls(result.exchanges)}'
        yield f"<tr><td>{what}</td><td>{_text(' '.join(result.rules))}</td>"
        yield f'<td class="{result.level}">{result.level}</td><td class="{result.status}">{result.status}</td>'
        yield f"<td>{result.seconds:.1f}</td></tr>\n"
    yield "</table>\n"


def _unseen() -> Iterator[str]:
    rows = "".join(
        f"<tr><td>{rule.id}</td><td>{_text(rule.title)}</td><td>{_text(rule.unobservable)}</td></tr>\n"
        for rule in RULES.values()
        if rule.unobservable
    )
    yield "<h2>What nothing from outside can see</h2>\n<table><tr><th>rule</th><th>what it says</th>"
    yield f"<th>why there is no check</th></tr>\n{rows}</table>\n"
