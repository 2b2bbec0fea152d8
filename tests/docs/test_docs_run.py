"""Every command in the documentation is run, page by page, in an empty directory; see :mod:`tests.docs.terminal`.

The ports of the pages are replaced by free ones, so that pages can be run at the same time, and the PostgreSQL that a
page speaks of by one that is started for it. A page that needs a real cluster is followed
by a scenario of ``make e2e``, or by ``make e2e-first-node``.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.anchors import anchors
from tests.docs.terminal import ROOT, File, Terminal, steps
from tests.postgres import PostgresServer, postgres  # noqa: F401 - a fixture

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
ON_A_CLUSTER = {
    ROOT / "docs/tutorial/from-an-empty-cluster-to-the-first-scaled-node.md",  # make e2e-first-node
    ROOT / "docs/tutorial/from-three-scripts-to-nodes.md",
}
PORTS = ("5000", "8086", "8087", "8088", "9009", "9010", "9086", "9087", "9400", "4317")
DATABASE, DATABASE_URL = "127.0.0.1:5432/cloudgraft", "postgresql://cloudgraft@127.0.0.1:5432/cloudgraft"


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def with_database(text: str, server: PostgresServer) -> str:
    """The page with a database that exists, in place of the one that it speaks of."""
    name = server.database().split("/")[3].split("?")[0]
    if not server.execute("SELECT 1 FROM pg_roles WHERE rolname = 'cloudgraft'"):
        server.execute("CREATE ROLE cloudgraft LOGIN")
    server.execute(f'ALTER DATABASE "{name}" OWNER TO cloudgraft')
    url = f"postgresql://cloudgraft@/{name}?host={server.directory}"
    return text.replace(DATABASE_URL, url).replace(DATABASE, f"{server.directory}/{name}")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("page", sorted({*PAGES} - ON_A_CLUSTER), ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.timeout(240)
def test_every_command_of_the_page_works(page: Path, terminal: Terminal, request: pytest.FixtureRequest) -> None:
    text = page.read_text()
    if DATABASE in text:
        text = with_database(text, request.getfixturevalue("postgres"))
    for number, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
        text = re.sub(rf"\b{number}\b", str(port), text)
    terminal.follow(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_every_port_that_is_listened_on(page: Path) -> None:
    """A port that nobody says is the usual one, and two pages are followed at the same time."""
    files: dict[str, str] = {}
    for step in steps(page.read_text()):
        if isinstance(step, File):
            files[step.name] = step.content
        elif found := re.search(r"cloudgraft (?:serve|dock|node-manager) .*--config (\S+).*&$", step.text):
            if "dock connect" in step.text:
                continue  # it listens to nobody
            content = files.get(found[1].strip("'"), "ops: made by a command of the page")
            assert re.search(r"\bops:", content), f"{found[1]}: say `ops`, the port of metrics, or null"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file that is there, and to an anchor that it has. Links to other sites are not checked."""
    missing = []
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)", page.read_text()):
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists() or (heading and heading not in anchors(file.read_text())):
            missing.append(target)
    assert missing == []


def test_the_index_links_every_page() -> None:
    docs = ROOT / "docs"
    linked = {
        (docs / target).resolve() for target in re.findall(r"\]\(([^)#\s]+\.md)", (docs / "index.md").read_text())
    }
    assert sorted({*docs.rglob("*.md")} - {docs / "index.md"} - linked) == []
