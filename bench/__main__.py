"""The command: ``python -m bench``, or ``make bench``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import click
from rich.console import Console

from bench.clouds_measure import CloudsPlan
from bench.clouds_report import QUICK_CLOUDS, clouds_as_json, print_clouds_tables, run_clouds
from bench.discovery_heartbeats import measure as measure_heartbeats
from bench.discovery_offers import measure_searches
from bench.discovery_report import DiscoveryPlan, DiscoveryReport, discovery_as_json, print_discovery_tables
from bench.dock_measure import DockPlan, measure_dispatch, measure_memory
from bench.dock_report import DockReport, dock_as_json, print_dock_tables
from bench.engine_measure import EnginePlan, measure_work
from bench.engine_report import EngineReport, engine_as_json, print_engine_tables
from bench.engine_starts import measure_orders, measure_starts
from bench.growth_measure import QUICK_GROWTH, GrowthPlan, measure_growth
from bench.growth_picture import draw, growth_as_json, print_growth_tables
from bench.in_process import Steps, measure_steps
from bench.loop_measure import LoopPlan, measure_loops
from bench.loop_report import QUICK_LOOP, LoopReport, loop_as_json, print_loop_table
from bench.measure import CLIENTS, Memory, Plan, Row, measure_size
from bench.node_manager import (
    QUICK_MANAGER,
    ManagerPlan,
    ManagerReport,
    manager_as_json,
    print_manager_tables,
    run_manager,
)
from bench.report import LIMIT, Report, as_json, print_tables
from bench.transport_measure import TransportPlan, measure_transports
from bench.transport_report import QUICK_TRANSPORT, TransportReport, print_transport_tables, transport_as_json
from cloudgraft.certs.authority import create_bundle
from cloudgraft.certs.defaults import DEFAULT_HOSTS

_SIZES = (1000, 5000)
_QUICK = {"rounds": 2, "calls": 20}
_QUICK_ENGINE = EnginePlan(
    machines=50,
    groups=5,
    rounds=2,
    calls=8,
    observe_every=0.5,
    churn=20.0,
    starts=(20, 50),
    rounds_of_starts=1,
    orders=10,
    rounds_of_orders=2,
)
_QUICK_DOCK = DockPlan(drivers=4, in_flight=5, operations=12, rounds=2, rounds_per_process=2, idle=8)
_QUICK_DISCOVERY = DiscoveryPlan(clusters=20, rounds=1, agents=20, connections=2, seconds=0.5)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help="How often to take turns: 50 times, with --loop 3, --transport 5, --dock and --clouds 10, --discovery 20.",
)
@click.option(
    "--calls", type=click.IntRange(min=8), help="Per server, scenario and round: 100, with --transport 4,000."
)
@click.option("--mtls", is_flag=True, help="Both servers with mTLS, ours with a list of allowed clients too.")
@click.option(
    "--client",
    type=click.Choice(sorted(CLIENTS)),
    default="grpc",
    show_default=True,
    help="raw: frames by hand on a socket, which leaves the processor to the server; the strictest ratios.",
)
@click.option(
    "--engine", is_flag=True, help="Measure the engine instead: at work and at rest, its start, large orders."
)
@click.option("--dock", is_flag=True, help="Measure the dock instead: its hub against a bare stream echo.")
@click.option("--discovery", is_flag=True, help="Measure discovery instead: its searches, and its agents' heartbeats.")
@click.option(
    "--manager", is_flag=True, help="Measure a node manager and its front instead, against the engine itself."
)
@click.option(
    "--clouds", is_flag=True, help="Measure the drivers of clouds instead: their lists, and what an engine asks."
)
@click.option(
    "--transport", is_flag=True, help="Measure cloudgraft serve over both transports instead, against a server in Go."
)
@click.option(
    "--loop", is_flag=True, help="Measure the real autoscaler's main loop instead, with cloudgraft and a server in Go."
)
@click.option(
    "--growth",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Measure how the cost of a call grows with nodes, groups and callers instead; the curves go to this SVG file.",
)
@click.option(
    "--nodes", type=click.IntRange(min=20), default=1000, show_default=True, help="With --transport and --loop."
)
@click.option("--quick", is_flag=True, help="Few calls: shows that it works, measures nothing.")
@click.option(
    "--check",
    is_flag=True,
    help=f"Exit with 1 when a p50 ratio is above {LIMIT}, or what else is measured misses its targets.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(  # noqa: PLR0913 - one for each option
    *,
    rounds: int | None,
    calls: int | None,
    mtls: bool,
    client: str,
    engine: bool,
    dock: bool,
    discovery: bool,
    manager: bool,
    clouds: bool,
    transport: bool,
    loop: bool,
    growth: Path | None,
    nodes: int,
    quick: bool,
    check: bool,
    output: str,
) -> None:
    """Measure what cloudgraft adds to a bare gRPC server that answers a constant; or the engine, busy against idle.

    Or the dock, against a bare stream that sends everything back; or a front with its node manager, against the engine.

    \b
    Examples: python -m bench --client raw --check
              python -m bench --engine
              python -m bench --dock
              python -m bench --discovery
              python -m bench --manager
              python -m bench --clouds --check
              python -m bench --transport --nodes 5000 --check
              python -m bench --loop --check
              python -m bench --growth docs/explanation/performance.svg
    """  # noqa: D301 - click wants the character itself
    show = partial(_show, check=check, output=output)
    if transport:
        plan_of_transport = TransportPlan(nodes=nodes, rounds=rounds or 5, calls=calls or 4000)
        show(_transport(QUICK_TRANSPORT if quick else plan_of_transport), transport_as_json, print_transport_tables)
    elif loop:
        plan_of_loop = LoopPlan(nodes=nodes, rounds=rounds or 3)
        show(_loop(QUICK_LOOP if quick else plan_of_loop), loop_as_json, print_loop_table)
    elif growth is not None:
        _growth(QUICK_GROWTH if quick else GrowthPlan(), growth, output)
    elif dock:
        plan_of_dock = DockPlan(rounds=rounds or 10, operations=calls or 100)
        show(_dock(_QUICK_DOCK if quick else plan_of_dock), dock_as_json, print_dock_tables)
    elif discovery:
        plan_of_discovery = DiscoveryPlan(rounds=rounds or 20)
        report = _discovery(_QUICK_DISCOVERY if quick else plan_of_discovery)
        show(report, discovery_as_json, print_discovery_tables)
    elif clouds:
        plan_of_clouds = CloudsPlan(rounds=rounds or 10)
        show(run_clouds(QUICK_CLOUDS if quick else plan_of_clouds), clouds_as_json, print_clouds_tables)
    elif manager:
        plan_of_manager = ManagerPlan(rounds=rounds or 50, calls=calls or 100)
        show(_manager(QUICK_MANAGER if quick else plan_of_manager), manager_as_json, print_manager_tables)
    elif engine:
        plan_of_engine = _QUICK_ENGINE if quick else EnginePlan(rounds=rounds or 50, calls=calls or 100)
        report_of_engine = asyncio.run(_measure_engine(replace(plan_of_engine, client=client)))
        show(report_of_engine, engine_as_json, print_engine_tables)
    else:
        amount = _QUICK if quick else {"rounds": rounds or 50, "calls": calls or 100}
        show(_service(amount, client, mtls=mtls), as_json, print_tables)


class _Judged(Protocol):
    """A report with targets."""

    @property
    def over_limit(self) -> Sequence[object]:
        """Where a target is missed."""


R = TypeVar("R", bound=_Judged)


def _show(
    report: R, as_text: Callable[[R], str], print_tables: Callable[[R, Console], None], *, check: bool, output: str
) -> None:
    if output == "json":
        click.echo(as_text(report))
    else:
        print_tables(report, _console())
    if check and report.over_limit:
        sys.exit(1)


def _service(amount: Mapping[str, int], client: str, *, mtls: bool) -> Report:
    with tempfile.TemporaryDirectory() as scratch:
        certificates = Path(scratch) / "certificates" if mtls else None
        if certificates is not None:
            create_bundle(certificates, hosts=DEFAULT_HOSTS)
        return asyncio.run(_measure(Plan(**amount, client=client, certificates=certificates)))


def _dock(plan: DockPlan) -> DockReport:
    _tell(f"{plan.idle} idle drivers ...")
    memory = measure_memory(plan)
    _tell(f"{plan.drivers} drivers at work ...")
    return DockReport(plan=plan, dispatch=measure_dispatch(plan), memory=memory)


def _discovery(plan: DiscoveryPlan) -> DiscoveryReport:
    _tell(f"{plan.agents:,} agents ...")
    beats = measure_heartbeats(agents=plan.agents, connections=plan.connections, seconds=plan.seconds)
    _tell(f"searches over {plan.clusters:,} clusters ...")
    searches = asyncio.run(measure_searches(clusters=plan.clusters, rounds=plan.rounds))
    return DiscoveryReport(plan=plan, searches=searches, beats=beats)


def _manager(plan: ManagerPlan) -> ManagerReport:
    _tell(f"{plan.nodes:,} nodes behind a node manager ...")
    return run_manager(plan)


def _transport(plan: TransportPlan) -> TransportReport:
    with _scratch() as (directory, certificates):
        settings = asyncio.run(measure_transports(directory, plan, certificates, _tell))
    return TransportReport(plan=plan, settings=settings)


def _loop(plan: LoopPlan) -> LoopReport:
    with _scratch() as (directory, certificates):
        sides = asyncio.run(measure_loops(directory, plan, certificates, _tell))
    return LoopReport(plan=plan, sides=sides)


def _growth(plan: GrowthPlan, picture: Path, output: str) -> None:
    with _scratch() as (directory, certificates):
        growths = asyncio.run(measure_growth(directory, plan, certificates, _tell))
    picture.write_text(draw(growths), "utf-8")
    if output == "json":
        click.echo(growth_as_json(growths))
    else:
        print_growth_tables(growths, _console())


@contextmanager
def _scratch() -> Iterator[tuple[Path, Path]]:
    """A directory, and one in it with certificates."""
    with tempfile.TemporaryDirectory() as name:
        certificates = Path(name) / "certificates"
        create_bundle(certificates, hosts=DEFAULT_HOSTS)
        yield Path(name), certificates


async def _measure_engine(plan: EnginePlan) -> EngineReport:
    with tempfile.TemporaryDirectory() as scratch:
        _tell(f"{plan.machines:,} machines, idle and busy ...")
        work = await measure_work(Path(scratch), plan)
        _tell("large orders ...")
        orders = await measure_orders(Path(scratch), plan)
        _tell("starts ...")
        return EngineReport(work=work, starts=await measure_starts(Path(scratch), plan), orders=orders)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160)


def _tell(what: str) -> None:
    click.echo(what, err=True)


async def _measure(plan: Plan) -> Report:
    rows: list[Row] = []
    memory: list[Memory] = []
    steps: list[Steps] = []
    for nodes in _SIZES:
        _tell(f"{nodes:,} nodes ...")
        steps += await measure_steps(nodes, rounds=plan.rounds, calls=plan.calls)
        more, used = await measure_size(nodes, plan)
        rows += more
        memory.append(used)
    return Report(
        rounds=plan.rounds,
        calls=plan.calls,
        client=plan.client,
        mtls=plan.certificates is not None,
        scenarios=rows,
        memory=memory,
        in_process=steps,
    )


if __name__ == "__main__":
    main()
