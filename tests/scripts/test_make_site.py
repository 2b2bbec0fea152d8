"""The site of docs/ has the order of its index, and the judge of its links finds what is wrong."""

from __future__ import annotations

from pathlib import Path

from scripts.make_site import flaws, order, stage
from tests.docs.terminal import ROOT

INDEX = (ROOT / "docs/index.md").read_text()


def test_the_pages_are_in_the_order_of_the_index() -> None:
    assert order("# t\n[no](x.md)\n## A\n[b](b.md), [a](a.md#x)\n[b](b.md)\n## B\nnothing\n## C\n[c](c/d.md)\n") == {
        "A": ["b.md", "a.md"],
        "C": ["c/d.md"],
    }
    sections = order(INDEX)
    assert next(iter(sections)) == "Learn"
    listed = [page for pages in sections.values() for page in pages]
    written = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted({*written} - {"index.md"})  # each once


def test_what_pages_link_to_outside_of_docs_becomes_a_page(tmp_path: Path) -> None:
    stage(tmp_path)
    page = (tmp_path / "how-to/deploy-to-kubernetes.md").read_text()
    assert "](../tree/deploy/Dockerfile.md)" in page
    assert "ARG BASE=" in (tmp_path / "tree/deploy/Dockerfile.md").read_text()
    assert "](../../" not in page


def test_links_that_lead_nowhere_and_files_from_elsewhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#there">b</a><a href="#top">top</a><a href="https://example.org/">away</a>'
        '<a href="b.html#gone">b</a><a href="gone.html">c</a><script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="there">B</p>')
    assert list(flaws(tmp_path)) == [
        "a.html: loads https://example.org/x.js",
        "a.html: b.html#gone leads nowhere",
        "a.html: gone.html leads nowhere",
    ]
