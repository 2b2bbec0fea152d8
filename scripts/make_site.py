"""Makes a site of docs/, with search and without a single file from elsewhere: ``make docs-site``.

The pages are in the order of docs/index.md. What they link to outside of docs/, such as a manifest, becomes a page too.
Afterwards every link of every page is followed, with its anchor.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["flaws", "order", "stage"]

_TREE: Final = Path(__file__).resolve().parent.parent
_DOCS: Final = _TREE / "docs"
_SITE: Final = _TREE / "site"
_LINK: Final = re.compile(r"(\]\()(?!https?://|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=[)\s])")
_LANGUAGES: Final = {".yaml": "yaml", ".yml": "yaml", ".py": "python", ".json": "json", ".toml": "toml", ".js": "js"}
_LOADED: Final = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
_SETTINGS: Final = """\
[project]
site_name = "cloudgraft"
site_description = "Grafts any cloud onto the Kubernetes Cluster Autoscaler"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
nav = {nav}

[project.theme]
font = false
features = ["navigation.indexes", "navigation.sections", "navigation.top", "content.code.copy", "search.highlight"]

[project.extra]
generator = false

[project.markdown_extensions.attr_list]
[project.markdown_extensions.tables]
[project.markdown_extensions.toc]
permalink = true
slugify = {{ object = "pymdownx.slugs.slugify", kwds = {{ case = "lower" }} }}
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.superfences]
"""


def main() -> None:
    zensical = Path(sys.argv[1]).absolute() / "bin/zensical"
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        stage(work / "pages")
        (work / "zensical.toml").write_text(_SETTINGS.format(nav=_navigation()), "utf-8")
        subprocess.run([zensical, "build", "--strict"], cwd=work, check=True)
        shutil.rmtree(_SITE, ignore_errors=True)
        shutil.copytree(work / "site", _SITE)
    found = list(flaws(_SITE))
    pages = sum(1 for _ in _SITE.rglob("*.html"))
    if found:
        sys.exit("\n".join([*found, f"{len(found)} flaws in {pages} pages"]))
    print(f"{pages} pages in {_SITE.relative_to(_TREE)}/; every link and anchor leads somewhere, and nothing is loaded")


# -- what the site is made of ------------------------------------------------------------------------------------------


def order(index: str) -> dict[str, list[str]]:
    """The sections of the index, and the pages that each links to, in its order."""
    sections: dict[str, list[str]] = {}
    for title, text in re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", index, re.MULTILINE | re.DOTALL):
        pages = [target for _, target, _ in _LINK.findall(text) if target.endswith(".md")]
        if pages:
            sections[title] = list(dict.fromkeys(pages))
    return sections


def _navigation() -> str:
    sections = order((_DOCS / "index.md").read_text("utf-8"))
    listed = ['"index.md"']
    listed += [f"{{ {json.dumps(title)} = {json.dumps(pages)} }}" for title, pages in sections.items()]
    return "[" + ", ".join(listed) + "]"


def stage(target: Path) -> None:
    """Writes the pages as the generator wants them: all in one directory, with links that stay inside."""
    waiting = [path for path in sorted(_DOCS.rglob("*")) if path.is_file()]
    done: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        place = target / _place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text, linked = _relinked(path)
            place.write_text(text, "utf-8")
            waiting += linked
        elif path.is_dir() or _DOCS not in path.parents:
            place.write_text(_shown(path), "utf-8")
        else:
            shutil.copyfile(path, place)


def _place(path: Path) -> PurePosixPath:
    """Where a file of the tree is in the site; what is no page and outside of docs/ becomes one."""
    if _DOCS in path.parents:
        return PurePosixPath(path.relative_to(_DOCS))
    place = PurePosixPath("tree", path.relative_to(_TREE))
    if path.is_dir():
        return place / "index.md"
    return place if place.suffix == ".md" else place.with_name(f"{place.name}.md")


def _relinked(page: Path) -> tuple[str, list[Path]]:
    """The text with links to where the files are in the site, and those files. A link that leads nowhere stays."""
    linked: list[Path] = []

    def relink(found: re.Match[str]) -> str:
        file = Path(os.path.normpath(page.parent / found[2]))
        if not file.exists() or _TREE not in file.parents:
            return found[0]
        linked.append(file)
        return f"{found[1]}{os.path.relpath(_place(file), _place(page).parent)}{found[3] or ''}"

    return _LINK.sub(relink, page.read_text("utf-8")), linked


def _shown(path: Path) -> str:
    title = f"# {path.relative_to(_TREE)}\n\n"
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir() if not one.name.startswith((".", "__pycache__")))
        return title + "".join(f"- `{name}`\n" for name in names)
    return f"{title}`````{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text('utf-8')}\n`````\n"


# -- what it has become ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Page:
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = _Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        if about.get("rel") == "canonical":
            return
        for name, value in attrs:
            if name in {"id", "name"} and value:
                self.page.anchors.add(value)
            elif (tag, name) in _LOADED and value:
                self.page.loaded.append(value)
            elif (tag, name) == ("a", "href") and value is not None:
                self.page.links.append(value)


def flaws(site: Path) -> Iterator[str]:
    """Links that lead nowhere, and what a browser would load from elsewhere."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links start at the root, wherever the site will be
        for url in page.loaded:
            if urlsplit(url).netloc:
                yield f"{path.relative_to(site)}: loads {url}"
        for url in (*page.links, *page.loaded):
            if not urlsplit(url).scheme and not urlsplit(url).netloc and not _leads_somewhere(path, url, pages):
                yield f"{path.relative_to(site)}: {url} leads nowhere"


def _read(path: Path) -> _Page:
    reader = _Reader()
    reader.feed(path.read_text("utf-8"))
    return reader.page


def _leads_somewhere(path: Path, url: str, pages: dict[Path, _Page]) -> bool:
    target = urlsplit(url)
    file = Path(os.path.normpath(path.parent / unquote(target.path))) if target.path else path
    file = file / "index.html" if file.is_dir() else file
    anchor = unquote(target.fragment)
    return file.exists() and (not anchor or file not in pages or anchor in pages[file].anchors)


if __name__ == "__main__":
    main()
