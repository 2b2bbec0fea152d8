"""The walk through five flows: a real server is walked through once, in a process of its own."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from scripts.walk.recorder import Recorder
from scripts.walk.result import Flow, walk_of

ROOT = Path(__file__).resolve().parents[2]
FLOW = Flow(key="any", title="Any", what="")


# The server is started once, and that takes its time where others are at work.
pytestmark = [pytest.mark.xdist_group("walk"), pytest.mark.timeout(120)]

# -- a walk through a real server --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("walk") / "walks.md"


@pytest.fixture(scope="module")
def walks(page: Path) -> Mapping[str, Mapping[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.walk", "--rounds", "1", "-o", "json", "--page", str(page)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return {walk["flow"]: walk for walk in json.loads(done.stdout)}


def test_there_are_five_flows_and_each_passes_modules(walks: Mapping[str, Mapping[str, Any]]) -> None:
    assert len(walks) == 5
    assert all(walk["modules"] for walk in walks.values())


def test_counts_agree_with_lists(walks: Mapping[str, Mapping[str, Any]]) -> None:
    for walk in walks.values():
        names = [module["name"] for module in walk["modules"]]
        assert len(set(names)) == len(names) == walk["moduleCount"]
        assert list(dict.fromkeys(module["package"] for module in walk["modules"])) == walk["packages"]
        assert len(walk["packages"]) == walk["packageCount"]
        # Every change of module leads to one that is new, or back.
        assert walk["changes"] == len(names) - 1 + walk["backs"]
        assert walk["entries"] > walk["changes"]


def test_every_module_is_a_file_that_says_what_it_is_for(walks: Mapping[str, Mapping[str, Any]]) -> None:
    for walk in walks.values():
        for module in walk["modules"]:
            assert (ROOT / "src" / module["path"]).is_file()
            assert module["lines"] > 0
            assert module["about"]


def test_a_call_that_reads_passes_fewer_modules_than_one_that_creates(walks: Mapping[str, Mapping[str, Any]]) -> None:
    assert walks["forNode"]["moduleCount"] < walks["increase"]["moduleCount"]


def test_the_page_and_its_picture_show_every_flow(walks: Mapping[str, Mapping[str, Any]], page: Path) -> None:
    text = page.read_text()
    drawn = "".join(ET.parse(page.with_suffix(".svg")).getroot().itertext())
    for walk in walks.values():
        assert f"\n## {walk['title']}\n" in text
        assert walk["title"] in drawn
        assert all(package in drawn for package in walk["packages"])
        for number, module in enumerate(walk["modules"], 1):
            assert f"\n{number}. [`{module['name']}`]" in text


# -- what is counted ---------------------------------------------------------------------------------------------------

MAIN = """
from walked.helper import TABLE, plain, paused

class Body:
    made = plain()

def run():
    return [plain() for _ in TABLE]

async def run_slowly():
    await paused()
    await paused()
"""
HELPER = """
import asyncio

def plain():
    return 1

TABLE = [plain(), plain()]

async def paused():
    await asyncio.sleep(0)
    await asyncio.sleep(0)
"""


@pytest.fixture
def walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "walked"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "main.py").write_text(MAIN)
    (package / "helper.py").write_text(HELPER)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "walked"]:
        del sys.modules[name]


def recorded(walked: Path, code: str, *, apart: str = "") -> list[str]:
    """What is noted while the code runs, in a thread of its own."""
    recorder = Recorder(walked, apart=apart)
    thread = threading.Thread(target=lambda: exec(code, {}))
    recorder.start()
    try:
        thread.start()
        thread.join()
    finally:
        recorder.stop()
    return list(recorder.since(0))


def test_what_an_import_runs_is_not_counted(walked: Path) -> None:
    assert recorded(walked, "import walked.main") == []


def test_functions_are_counted_and_comprehensions_are_not(walked: Path) -> None:
    entered = recorded(walked, "from walked import main; main.run()")
    assert entered == ["walked.main", "walked.helper", "walked.helper"]


def test_a_coroutine_is_counted_when_it_begins_and_not_when_it_goes_on(walked: Path) -> None:
    entered = recorded(walked, "import asyncio; from walked import main; asyncio.run(main.run_slowly())")
    assert entered == ["walked.main", "walked.helper", "walked.helper"]


def test_what_a_package_that_is_counted_apart_calls_counts_as_its_own(walked: Path) -> None:
    (walked / "sky").mkdir()
    (walked / "sky" / "cloud.py").write_text("from walked import main\ndef call():\n    main.run()\n")
    entered = recorded(
        walked, "from walked.sky import cloud; from walked import main; cloud.call(); main.run()", apart="walked.sky"
    )
    assert entered == ["walked.sky.cloud"] * 4 + ["walked.main", "walked.helper", "walked.helper"]


def test_what_the_main_thread_does_by_itself_is_not_counted_and_the_same_for_a_reason_is(walked: Path) -> None:
    recorder = Recorder(walked)
    recorder.start()
    try:
        main = importlib.import_module("walked.main")
        with recorder.learning_chores():
            asyncio.run(main.run_slowly())
        mark = recorder.mark()
        asyncio.run(main.run_slowly())
        chores = recorder.since(mark)
        asyncio.run(sys.modules["walked.helper"].paused())
    finally:
        recorder.stop()
    assert chores == []
    assert recorder.since(mark) == ["walked.helper"]


def test_nothing_is_counted_after_the_end(walked: Path) -> None:
    recorder = Recorder(walked)
    recorder.start()
    recorder.stop()
    exec("from walked import main; main.run()", {})
    assert recorder.mark() == 0


# -- how rounds become one way -----------------------------------------------------------------------------------------


def test_the_way_back_is_counted_whenever_a_module_was_left_before() -> None:
    walk = walk_of(FLOW, [["p.a", "p.a", "p.b", "p.a", "p.c", "p.b"]], cloud="p.sky")
    assert [module.name for module in walk.modules] == ["a", "b", "c"]
    assert (walk.entries, walk.changes, walk.backs) == (6, 4, 2)


def test_what_is_not_in_every_round_is_left_out_and_the_quietest_round_is_told() -> None:
    walk = walk_of(FLOW, [["p.a", "p.b", "p.a", "p.b"], ["p.chore", "p.a", "p.b", "p.chore"]], cloud="p.sky")
    assert [module.name for module in walk.modules] == ["a", "b"]
    assert (walk.changes, walk.backs) == (1, 0)


def test_the_simulated_cloud_is_counted_apart() -> None:
    walk = walk_of(FLOW, [["p.a", "p.sky.one", "p.a", "p.sky.two", "p.skylight"]], cloud="p.sky")
    assert [module.name for module in walk.modules] == ["a", "skylight"]
    assert (walk.entries, walk.changes, walk.cloud_modules) == (3, 1, 2)
