"""Tables on terminals of any width: no name is cut in two while a line can hold it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.text import Text

from cloudgraft.cli import dock, status
from cloudgraft.cli.fitting_table import FittingTable
from cloudgraft.cli.terminal import table

GROUP, CLOUD = "general-purpose-production-eu-west-1a", "datacenter-north-west-1"
MACHINE = "prod-4twx2zlhls-general-purpose-844a4ab9-4d42wn7m"
WORDS = st.lists(st.text("abcx-", min_size=1, max_size=30), max_size=5).map(" ".join)


def lines(shown: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@settings(max_examples=40)
@given(rows=st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), min_size=1, max_size=4), width=st.integers(40, 200))
def test_every_word_of_every_cell_is_shown_whole(rows: list[Sequence[str]], width: int) -> None:
    made = FittingTable(["FIRST", "SECOND", "A THIRD", "D"], [[Text(cell) for cell in row] for row in rows])
    found = lines(made, width)
    assert all(len(line) <= width for line in found)
    words = [word for line in found for word in line.split()]
    for word in [word for row in rows for cell in row if cell not in ("", "-") for word in cell.split()]:
        assert word in words
        words.remove(word)


def test_a_table_that_fits_has_one_line_for_each_row() -> None:
    found = lines(table(["NAME", "NOTE"], [["a", "some words"], ["b", "-"]]), 40)
    assert [line.split() for line in found[1:] if line.strip("─ ")] == [
        ["NAME", "NOTE"],
        ["a", "some", "words"],
        ["b", "-"],
    ]


def test_columns_that_do_not_fit_stand_below_their_row_with_their_headings() -> None:
    found = lines(table(["NAME", "ID", "NOTE"], [["a", "x" * 30, "some words"], ["b", "-", ""]]), 40)
    assert [line.rstrip() for line in found if line.strip("─ ")] == [
        "NAME   NOTE",
        "a      some words",
        f"     ID: {'x' * 30}",
        "b",
    ]


def _report(**cloud: Any) -> dict[str, Any]:
    machine = {
        "name": MACHINE,
        "state": "failed",
        "stateAge": 3,
        "age": 3,
        "machineId": "f1229f45-000001",
        "providerId": "simulated://f1229f45-000001",
        "error": {"code": "out_of_stock", "message": "there are no more machines of the shape small"},
    }
    group = {
        "id": GROUP,
        "cloud": CLOUD,
        "target": 2,
        "minSize": 0,
        "maxSize": 3,
        "states": {"running": 1, "failed": 1},
        "hourly": "0.02",
        "currency": "EUR",
        "paused": {"scope": "group", "name": GROUP, "reason": "we look into the invoice of May"},
        "draining": False,
        "leftOut": "",
        "stale": "",
        "machines": [machine],
        "complete": False,
    }
    clouds = {
        "name": CLOUD,
        "driver": "simulated",
        "up": False,
        "error": "connection refused",
        "downSince": "2027-01-15T08:00:00Z",
        "listAge": 75.0,
        "machinesListed": 12,
        "machines": 2,
        "orphans": 1,
        "blocked": "",
        "heldBack": "",
        "paused": None,
        "callsUnderWay": 3,
    }
    quiet = ("leaderTrouble", "journalTrouble", "configTrouble")
    return {
        "cluster": "prod",
        "clusterId": "4twx2zlhls",
        "at": "2027-01-15T08:00:00Z",
        "leader": True,
        "configPending": False,
        **dict.fromkeys(quiet, ""),
        "groups": [group],
        "clouds": [{**clouds, **cloud}, {**clouds, "name": "lab"}],
        "guards": [],
    }


def test_status_at_80_columns_keeps_the_names_of_groups_clouds_and_machines_whole() -> None:
    found = lines(status.view(_report()), 80)
    assert all(len(line) <= 80 for line in found)
    words = {word for line in found for word in line.split()}
    assert {GROUP, CLOUD, MACHINE, "simulated://f1229f45-000001", "f1229f45-000001"} <= words


def test_status_says_what_the_numbers_of_a_cloud_count() -> None:
    shown = " ".join(" ".join(lines(status.view(_report()), 80)).split())
    assert "IN CLOUD: all machines in its latest list, ours or not." in shown
    assert "CALLS NOW: calls to it that have not been answered yet." in shown
    wide = lines(status.view(_report()), 300)
    (heading,) = [line.split("  ") for line in wide if "ORPHANS" in line]
    assert [word.strip() for word in heading if word.strip()][4:8] == ["IN CLOUD", "OURS", "ORPHANS", "CALLS NOW"]


def test_orphans_and_drivers_of_a_dock_keep_their_names_whole_too() -> None:
    orphan = {"kind": "unknown", "cloud": CLOUD, "group": GROUP, "name": MACHINE, "machineId": "f1229f45-000001"}
    orphan |= {"state": "running", "since": "2027-01-15T08:00:00Z"}
    driver: dict[str, Any] = {
        "kind": "SimMachineClass",
        "apiVersion": "sim.example/v1alpha1",
        "name": MACHINE,
        "version": "1.2.3",
    }
    driver |= {"protocol": "v1", "identity": "driver-of-the-north.example", "connectedSeconds": 3.0, "state": "ready"}
    driver |= {"inFlight": 1, "queued": 2, "succeeded": 3, "failed": 4, "lastError": "the cloud is out of stock"}
    headings = ["KIND", "CLOUD", "GROUP", "NAME", "MACHINE ID", "STATE", "SINCE"]
    found = [
        *lines(table(headings, [list(orphan.values())]), 80),
        *lines(table(dock._HEADINGS, [dock._row(driver)]), 80),
    ]
    words = {word for line in found for word in line.split()}
    assert {GROUP, CLOUD, MACHINE, "sim.example/v1alpha1", "driver-of-the-north.example"} <= words
