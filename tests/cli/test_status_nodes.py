"""What `cloudgraft status` shows of nodes."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from cloudgraft.cli.status import view
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.engine.reporting.report_json import as_json_in_slices
from tests.engine.clusters import MemoryCluster
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, stepped


async def _shown(case: Case, group_id: str = "g") -> str:
    console = Console(width=250)
    with console.capture() as captured:
        console.print(view(await as_json_in_slices(await make_report(case.engine, group=group_id))))
    return captured.get()


async def test_each_machine_is_shown_with_its_node(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    async with stepped(tmp_path, desired_state({"a": Cloud()}, group()), cluster=cluster) as case:
        ready, ill, left, _ = await case.grow(4)
        cluster.join(ready, ill, left)
        await case.turns(1)
        cluster.leave(left)
        cluster.fall_ill(case.clock.now() - 110, ill)
        await case.turns(1)
        shown = await _shown(case)
        assert "NODE" in shown
        lines = {line.split()[0]: line for line in shown.splitlines() if line.split()}
        assert " ready " in lines[ready]
        assert "not ready for 2m" in lines[ill]
        assert " left " in lines[left]
        assert shown.count("not joined") == 1
        assert "1 of 2 nodes not ready" in shown


async def test_without_a_cluster_there_is_no_column_for_nodes(tmp_path: Path) -> None:
    async with stepped(tmp_path, desired_state({"a": Cloud()}, group())) as case:
        await case.grow(1)
        assert " NODE " not in await _shown(case)


async def test_drift_is_noted_and_leads_to_explain(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    async with stepped(tmp_path, desired_state({"a": Cloud()}, group()), cluster=cluster) as case:
        (name,) = await case.grow(1)
        cluster.join(name)
        await case.turns(1)
        await case.engine.refresh()
        await case.turns(1)
        shown = await _shown(case)
        assert "nodes are not as promised" in shown
        assert "Why: cloudgraft explain g" in shown
