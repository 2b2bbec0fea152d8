"""The parts of the end-to-end runs that need neither Go nor a cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from e2e import audit
from e2e.__main__ import main
from e2e.autoscaler import flags_for, loops_in
from e2e.build import CannotBuildError, build, go_mod, recipes_for, replacements
from e2e.command_line import exit_code
from e2e.config import node_group
from e2e.journal import Call, Journal, LogReader, read_calls, read_journal, split_into_loops
from e2e.kubernetes import GROUP_LABEL
from e2e.matrix import BEGIN, END, Cell, State, cells, table, with_table
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE, NEWEST_RELEASE, minor
from e2e.processes import Program, ProgramError
from e2e.runner import Outcome, Result
from e2e.scenarios import SCENARIOS
from e2e.scenarios.crowd import calls_of_a_quiet_loop
from e2e.scenarios.mutual_tls import printed_files
from e2e.waiting import UnmetError, eventually

NOW = datetime(2027, 1, 15, tzinfo=UTC)


# -- what is built -----------------------------------------------------------------------------------------------------


def test_there_is_one_release_of_every_minor_from_1_25_to_1_37() -> None:
    assert {minor(name) for name in AUTOSCALERS} == {(1, number) for number in range(25, 38)}
    assert NEWEST_RELEASE in AUTOSCALERS
    assert NEWEST_CONTROL_PLANE in CONTROL_PLANES


def test_replaced_directories_become_modules_of_their_own() -> None:
    lines = [
        {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "k8s.io/api", "Version": "v0.36.2"}},
        {"Old": {"Path": "k8s.io/autoscaler/cluster-autoscaler/apis"}, "New": {"Path": "./apis"}},
        {"Old": {"Path": "a.example/b", "Version": "v1.0.0"}, "New": {"Path": "a.example/c", "Version": "v1.0.1"}},
    ]
    assert replacements(lines, "v0.0.0-1") == {
        "k8s.io/api": "k8s.io/api v0.36.2",
        "k8s.io/autoscaler/cluster-autoscaler/apis": "k8s.io/autoscaler/cluster-autoscaler/apis v0.0.0-1",
        "a.example/b v1.0.0": "a.example/c v1.0.1",
    }


def test_without_a_version_for_it_a_directory_is_not_replaced() -> None:
    """The modules of etcd require each other by version."""
    lines = [{"Old": {"Path": "go.etcd.io/etcd/api/v3"}, "New": {"Path": "../api"}}]
    assert replacements(lines, "") == {}


def test_the_building_module_requires_the_exact_version() -> None:
    (recipe,) = recipes_for(AUTOSCALERS["1.28"])
    text = go_mod(recipe, "1.20", {"k8s.io/api": "k8s.io/api v0.28.4"})
    assert f"require {recipe.module} {recipe.version}\n" in text
    assert "replace (\n\tk8s.io/api => k8s.io/api v0.28.4\n)\n" in text


def test_without_go_there_is_one_line_and_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (recipe,) = recipes_for(AUTOSCALERS[NEWEST_RELEASE])
    with pytest.raises(CannotBuildError, match="there is no Go toolchain") as caught:
        build(recipe, lambda _: None, cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_what_was_built_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # it could not be
    (recipe,) = recipes_for(AUTOSCALERS[NEWEST_RELEASE])
    binary = tmp_path / "bin" / recipe.key / "cluster-autoscaler"
    binary.parent.mkdir(parents=True)
    binary.touch()
    assert build(recipe, lambda _: None, cache=tmp_path) == {"cluster-autoscaler": binary}


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([Outcome.PASSED], 0),
        ([Outcome.PASSED, Outcome.NOT_RUN], 3),
        ([Outcome.PASSED, Outcome.NOT_RUN, Outcome.FAILED], 1),
    ],
)
def test_not_run_is_neither_passed_nor_failed(outcomes: Sequence[Outcome], code: int) -> None:
    assert exit_code([result(outcome) for outcome in outcomes]) == code


def test_a_release_that_cannot_be_built_is_named_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = CliRunner().invoke(main, ["--scenario", "3,8"])
    assert done.exit_code == 3
    assert "not run" in done.output
    assert done.stderr.count("there is no Go toolchain") == 1, "in one line, however many scenarios there are"


@pytest.mark.parametrize(
    "options", [("--scenario", "99"), ("--scenario", "one"), ("--binary", "1.31"), ("--release", "2.0")]
)
def test_wrong_usage_is_refused(options: tuple[str, ...]) -> None:
    assert CliRunner().invoke(main, options).exit_code == 2


def test_all_scenarios_are_listed() -> None:
    assert sorted(SCENARIOS) == list(range(1, len(SCENARIOS) + 1))
    listed = CliRunner().invoke(main, ["--list"]).output
    assert all(release.version in listed for release in AUTOSCALERS.values())


# -- what the programs say ---------------------------------------------------------------------------------------------


def test_a_release_gets_only_flags_that_it_knows() -> None:
    assert "leader-elect" not in flags_for(AUTOSCALERS["1.25"], {})
    assert flags_for(AUTOSCALERS["1.26"], {})["leader-elect"] == "false"
    assert flags_for(AUTOSCALERS["1.37"], {"expander": "price"})["expander"] == "price"


def test_loops_are_counted_by_the_metric_of_the_main_function() -> None:
    name = "cluster_autoscaler_function_duration_seconds_count"
    assert loops_in(f'{name}{{function="filterOutSchedulable"}} 9\n{name}{{function="main"}} 7\n') == 7
    assert loops_in("") == 0


def test_calls_are_read_from_the_log_through_a_kill(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = LogReader(log)
    assert read_calls(reader.entries()) == []
    first = json.dumps({"event": "call", "rpc": "Refresh", "code": "OK"})
    second = json.dumps({"event": "call", "rpc": "NodeGroupIncreaseSize", "code": "OK", "group": "a", "delta": 2})
    log.write_text(f'{first}\n{{"event": "ca', "utf-8")
    assert [call.rpc for call in read_calls(reader.entries())] == ["Refresh"]
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{second}\nno JSON\n")
    expected = Call(rpc="NodeGroupIncreaseSize", code="OK", group="a", delta=2)
    assert read_calls(reader.entries())[1:] == [expected]


def test_a_loop_begins_with_refresh() -> None:
    names = ["NodeGroupForNode", "Refresh", "NodeGroups", "Refresh"]
    loops = split_into_loops([Call(rpc=name, code="OK") for name in names])
    assert [[call.rpc for call in loop] for loop in loops] == [["Refresh", "NodeGroups"], ["Refresh"]]


@pytest.mark.parametrize(("release", "options"), [("1.25", 10), ("1.28", 20), ("1.34", 20), ("1.35", 40)])
def test_the_calls_of_a_quiet_loop_follow_the_contract(release: str, options: int) -> None:
    calls = calls_of_a_quiet_loop(AUTOSCALERS[release], nodes=10, groups=2)
    assert calls == {"Refresh": 1, "NodeGroupForNode": 10, "NodeGroupGetOptions": options, "NodeGroupTargetSize": 6}


def test_the_files_that_certs_prints_are_found() -> None:
    text = (
        "Made ca: all is well.\n\n# cloudgraft.yaml\nserver:\n  tls: {cert: a}\n\n"
        "# cloud-config.yaml, for the autoscaler\naddress: localhost:8086\ncacert: c\n\n# flags\n--cloud-config=c\n"
    )
    assert printed_files(text) == ({"server": {"tls": {"cert": "a"}}}, {"address": "localhost:8086", "cacert": "c"})


def test_nodes_of_a_group_look_like_its_template() -> None:
    group = node_group("a", "small", labels={"disk": "fast"})
    assert group["template"]["labels"] == group["machine"]["labels"] == {GROUP_LABEL: "a", "disk": "fast"}


# -- the books ---------------------------------------------------------------------------------------------------------


class Books:
    def __init__(self, *machines: dict[str, Any]) -> None:
        self._machines = list(machines)

    def ledger(self) -> list[dict[str, Any]]:
        return self._machines


def machine(name: str, *, gone: bool = False) -> dict[str, Any]:
    return {"name": name, "providerId": f"simulated://{name}", "goneAt": 1.0 if gone else None}


def journal(**states: str) -> Journal:
    rows = [{"table": "machines", "row": {"name": name, "state": state}} for name, state in states.items()]
    return read_journal("\n".join(json.dumps(row) for row in [{"cloudgraft": "journal"}, *rows]))


def test_books_that_agree_are_fine() -> None:
    audit.compare(
        journal(a="running", b="gone", c="failed"), [Books(machine("a"), machine("b", gone=True))], {"simulated://a"}
    )


@pytest.mark.parametrize(
    ("books", "states", "nodes", "complaint"),
    [
        ([machine("a"), machine("a", gone=True)], {"a": "running"}, {"simulated://a"}, "made twice"),
        ([machine("a")], {}, {"simulated://a"}, "not in the journal"),
        ([machine("a")], {"a": "gone"}, {"simulated://a"}, "in a cloud only"),
        ([], {"a": "running"}, set(), "in the journal only"),
        ([machine("a")], {"a": "running"}, set(), "machines without a node"),
        ([machine("a", gone=True)], {"a": "gone"}, {"simulated://a"}, "nodes without a machine"),
    ],
)
def test_books_that_disagree_are_told(
    books: list[dict[str, Any]], states: dict[str, str], nodes: set[str], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        audit.compare(journal(**states), [Books(*books)], nodes)


# -- processes and waiting ---------------------------------------------------------------------------------------------


def test_a_program_that_ends_by_itself_is_told_with_its_log(tmp_path: Path) -> None:
    program = Program("it", [sys.executable, "-c", "print('why'); raise SystemExit(4)"], tmp_path / "log")
    program.start()
    eventually(lambda: program.is_running, lambda up: not up, "it ends", seconds=20.0)
    with pytest.raises(ProgramError, match="ended with code 4") as caught:
        program.check()
    assert "why" in str(caught.value)


def test_a_program_that_ignores_its_end_is_killed_and_may_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("e2e.processes._SECONDS_TO_STOP", 0.1)
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    program = Program("it", [sys.executable, "-c", code], tmp_path / "log")
    assert starts(program) == 1
    program.stop()
    assert not program.is_running
    assert starts(program) == 2
    program.kill()
    assert not program.is_running


def starts(program: Program) -> int:
    before = program.tail().count("up")
    program.start()
    return eventually(lambda: program.tail().count("up"), lambda count: count > before, "it is up", seconds=20.0)


def test_what_does_not_happen_is_told_with_what_was_seen() -> None:
    with pytest.raises(UnmetError, match="three; seen last: 2"):
        eventually(lambda: 2, lambda seen: seen == 3, "three", seconds=0.0)


# -- the matrix --------------------------------------------------------------------------------------------------------


def result(outcome: Outcome) -> Result:
    return Result(release="1.28", scenario=1, control_plane="1.31", outcome=outcome, seconds=3.0)


def test_three_releases_are_judged_in_full_and_the_others_in_four_scenarios() -> None:
    planned: dict[str, set[int]] = {}
    for cell in cells():
        planned.setdefault(cell.release, set()).add(cell.scenario)
    full = {release for release, scenarios in planned.items() if scenarios == set(range(1, 13))}
    assert full == {"1.28", "1.31", NEWEST_RELEASE}
    assert {frozenset(planned[release]) for release in planned.keys() - full} == {frozenset({1, 2, 3, 8})}


def test_a_later_sitting_knows_what_an_earlier_one_has_judged(tmp_path: Path) -> None:
    cell = Cell(control_plane="1.31", release="1.28", scenario=1)
    State(tmp_path / "state.json").note(cell, result(Outcome.PASSED), NOW)
    later = State(tmp_path / "state.json")
    assert later.outcome(cell) is Outcome.PASSED
    assert later.date(cell) == "2027-01-15"
    assert later.outcome(Cell(control_plane="1.31", release="1.28", scenario=2)) is None


def test_another_version_of_a_release_is_judged_anew(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    cell = Cell(control_plane="1.31", release="1.28", scenario=1)
    State(path).note(cell, result(Outcome.PASSED), NOW)
    path.write_text(path.read_text().replace(AUTOSCALERS["1.28"].version, "v0.0.0-0"), "utf-8")
    assert State(path).outcome(cell) is None


def test_the_table_names_what_passed_failed_and_was_not_built(tmp_path: Path) -> None:
    state = State(tmp_path / "state.json")
    for scenario, outcome in enumerate((Outcome.PASSED, Outcome.FAILED, Outcome.NOT_RUN), start=1):
        state.note(Cell(control_plane="1.31", release="1.28", scenario=scenario), result(outcome), NOW)
    line = next(line for line in table(state).splitlines() if line.startswith("| 1.28.2"))
    assert line.startswith("| 1.28.2 | 1.31.4 | passed | **failed** | not built |  |")
    assert line.endswith("| 2027-01-15 |")


@pytest.mark.thorough
def test_scenarios_side_by_side_are_reported_in_order_and_a_lost_one_has_failed(tmp_path: Path) -> None:
    """Each process is given something that is no program: its control plane does not start."""
    cache = tmp_path / "cache" / "cloudgraft" / "e2e" / "bin"
    for wanted in (CONTROL_PLANES[NEWEST_CONTROL_PLANE], AUTOSCALERS[NEWEST_RELEASE]):
        for recipe in recipes_for(wanted):
            for name in recipe.programs:
                path = cache / recipe.key / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("#!/bin/sh\nexit 7\n")
                path.chmod(0o755)
    command = [sys.executable, "-m", "e2e", "--scenario", "2,1,3", "--at-once", "2"]
    done = subprocess.run(
        command,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "ended with code 7" in done.stderr
    rows = [line for line in done.stdout.splitlines() if "failed" in line]
    assert [re.findall(r"│ +(\d+) +│", row)[0] for row in rows] == ["2", "1", "3"]


def test_two_sittings_side_by_side_keep_what_the_other_has_judged(tmp_path: Path) -> None:
    one, two = (State(tmp_path / "state.json") for _ in range(2))
    first, second = (Cell(control_plane=plane, release="1.28", scenario=1) for plane in ("1.31", "1.36"))
    one.note(first, result(Outcome.PASSED), NOW)
    two.note(second, result(Outcome.FAILED), NOW)
    later = State(tmp_path / "state.json")
    assert (later.outcome(first), later.outcome(second)) == (Outcome.PASSED, Outcome.FAILED)


def test_the_table_marks_a_release_whose_binary_was_given(tmp_path: Path) -> None:
    state = State(tmp_path / "state.json")
    state.note(Cell(control_plane="1.31", release="1.28", scenario=1), result(Outcome.PASSED), NOW, is_given=True)
    assert "| 1.28.2 \\* | 1.31.4 | passed |" in table(state)


def test_the_table_takes_the_place_of_the_old_one() -> None:
    page = with_table("# Compatibility\n\nWords.\n", "old")
    assert page == f"# Compatibility\n\nWords.\n\n{BEGIN}\n\nold\n{END}\n"
    again = with_table(page + "\nMore.\n", "new")
    assert again == f"# Compatibility\n\nWords.\n\n{BEGIN}\n\nnew\n{END}\n\nMore.\n"
