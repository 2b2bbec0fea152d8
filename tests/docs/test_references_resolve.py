"""What is cited is there: numbers (laws, rules, traces, bugs, cases of the dock), files and packages.

A citation is "law 6", "laws 2 and 3", "R27", "T7", "B9", "D13", "case 12", or "bug 4". Ranges ("R49 to R58") count by
their ends, because the definitions have no gaps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.docs.anchors import anchors
from tests.docs.terminal import ROOT

FOLDERS = ("src", "tests", "docs", "examples", "e2e", "bench", "clouds", "deploy", "native/src", "scripts")
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".pyi", ".md", ".rs", ".proto", ".yaml", ".sh", ".go", ".js"}

LIST = r"\d+(?:(?:, | and | to |, and )\d+)*"
WORD = re.compile(rf"\b(law|case|bug)s?\s+(?:#\s+)?({LIST})\b", re.IGNORECASE)
# Not part of a path or product (S3/R2), of an escape (%D9), or of a longer word.
TAG = re.compile(r"(?<![\w%/+=])([RTBD])(\d+)(?![\w%/+=])")
LINT = re.compile(r"noqa: [A-Z]+\d+(?:, [A-Z]+\d+)*")


@dataclass(frozen=True, order=True)
class Citation:
    """A kind and a number, such as ("law", 6) or ("R", 27)."""

    kind: str
    number: int

    @property
    def anchor(self) -> str:
        return f"{self.kind.lower()}{'-' if len(self.kind) > 1 else ''}{self.number}"


PAGES = {
    "law": ROOT / "docs/explanation/architecture.md",
    "R": ROOT / "docs/reference/autoscaler-contract.md",
    "T": ROOT / "docs/reference/autoscaler-contract.md",
    "B": ROOT / "docs/reference/autoscaler-bugs.md",
    "D": ROOT / "docs/reference/driver-contract.md",
    "case": ROOT / "docs/reference/dock-cases.md",
    "bug": ROOT / "docs/reference/liqo-bugs.md",
}


def citations(text: str) -> Iterator[tuple[int, Citation]]:
    """What a text cites, each with its line; names such as `test_case_12_and_13` cite too."""
    text = LINT.sub(lambda found: " " * len(found[0]), text)
    for found in WORD.finditer(text.replace("_", " ")):
        for number in re.findall(r"\d+", found[2]):
            yield text.count("\n", 0, found.start()) + 1, Citation(found[1].lower(), int(number))
    for found in TAG.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, Citation(found[1], int(found[2]))


def sources() -> list[Path]:
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    mine = Path(__file__).resolve()  # its examples are wrong on purpose
    return sorted(path for path in [*below, *(ROOT / name for name in FILES)] if path != mine)


@cache
def cited() -> dict[Citation, list[str]]:
    """Every citation, with the places of it."""
    places: dict[Citation, list[str]] = {}
    for path in sources():
        for line, citation in citations(path.read_text()):
            places.setdefault(citation, []).append(f"{path.relative_to(ROOT)}:{line}")
    return places


@cache
def defined(kind: str) -> list[int]:
    """The numbers of that kind that its page has an anchor for, in order."""
    pattern = re.compile(re.escape(Citation(kind, 0).anchor.removesuffix("0")) + r"(\d+)")
    found = (pattern.fullmatch(anchor) for anchor in anchors(PAGES[kind].read_text()))
    return sorted(int(match[1]) for match in found if match)


@pytest.mark.parametrize("kind", PAGES)
def test_every_citation_is_defined(kind: str) -> None:
    undefined = {
        citation.anchor: places
        for citation, places in sorted(cited().items())
        if citation.kind == kind and citation.number not in defined(kind)
    }
    assert undefined == {}, f"define them in {PAGES[kind].relative_to(ROOT)}, or cite another"


@pytest.mark.parametrize("kind", PAGES)
def test_definitions_have_no_gaps(kind: str) -> None:
    assert defined(kind) == list(range(1, len(defined(kind)) + 1))
    assert len(defined(kind)) >= 10


@pytest.mark.parametrize("kind", ["law", "case", "bug"])
def test_each_law_case_and_bug_is_cited_by_a_test(kind: str) -> None:
    """Their pages promise that tests hold them."""
    untested = [
        number
        for number in defined(kind)
        if not any(place.startswith("tests/") for place in cited().get(Citation(kind, number), []))
    ]
    assert untested == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("law 6", ["law-6"]),
        ("Laws 1, 3 and 6. Two machines", ["law-1", "law-3", "law-6"]),
        ("as it must be (law\n    # 12)", ["law-12"]),
        ("LAW_9 = 1", ["law-9"]),
        ("async def test_case_12_and_13_unknown_numbers_of_200() -> None:", ["case-12", "case-13"]),
        ("cases 27 to 29 and 32", ["case-27", "case-29", "case-32"]),
        ("def test_bugs_4_and_5_hold() -> None:", ["bug-4", "bug-5"]),
        ('@check("R91", after=("D37",))  # T11, B15', ["r91", "d37", "t11", "b15"]),
        ("R59-R62, R3 to R4", ["r59", "r62", "r3", "r4"]),
        ("S3/R2, limit=%D9%A3, m5.R6large, x.T1_000", []),
        ("except Exception:  # noqa: B902, T201 - it is told", []),
        ("a law of its own, in case of need, 3 cases", []),
    ],
)
def test_citations_are_found(text: str, found: list[str]) -> None:
    assert [citation.anchor for _, citation in citations(text)] == found


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_named_in_the_docs_exists(page: Path) -> None:
    """`engine/writer.py` is looked for below src/cloudgraft, `tests/wire` from the root of the repository."""
    named = re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", page.read_text())
    kept = [name for name in named if name.endswith("/") or Path(name).suffix in SUFFIXES]
    bases = (ROOT, ROOT / "src/cloudgraft", page.parent)
    assert [name for name in kept if not any((base / name).exists() for base in bases)] == []


def test_the_architecture_lists_every_package_once() -> None:
    table = PAGES["law"].read_text().partition("## The parts")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    package = ROOT / "src/cloudgraft"
    there = [path.parent.name for path in package.glob("*/__init__.py")]
    there += [path.stem for path in package.glob("*.py") if not path.stem.startswith("_")]
    assert sorted(listed) == sorted(there)
