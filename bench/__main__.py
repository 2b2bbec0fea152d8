"""The command: ``python -m bench``, or ``make bench``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

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
from bench.in_process import Steps, measure_steps
from bench.measure import CLIENTS, Memory, Plan, Row, measure_size
from bench.node_manager import QUICK_MANAGER, ManagerPlan, manager_as_json, print_manager_tables, run_manager
from bench.report import LIMIT, Report, as_json, print_tables
from bench.transport_measure import TransportPlan, measure_transports
from bench.transport_report import QUICK_TRANSPORT, TransportReport, print_transport_tables, transport_as_json
from cloudgraft.certs.authority import DEFAULT_HOSTS, create_bundle

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
    help="How often to take turns: 50 times, with --dock, --clouds and --transport 10, --discovery 20 times.",
)
@click.option(
    "--calls", type=click.IntRange(min=8), help="Per server, scenario and round: 100, with --transport 1,000."
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
    "--nodes", type=click.IntRange(min=20), default=1000, show_default=True, help="With --transport: machines."
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
    """  # noqa: D301 - click wants the character itself
    if transport:
        plan_of_transport = TransportPlan(nodes=nodes, rounds=rounds or 10, calls=calls or 1000)
        _transport(QUICK_TRANSPORT if quick else plan_of_transport, check=check, output=output)
        return
    calls = calls or 100
    if dock:
        _dock(_QUICK_DOCK if quick else DockPlan(rounds=rounds or 10, operations=calls), check=check, output=output)
        return
    if discovery:
        _discovery(_QUICK_DISCOVERY if quick else DiscoveryPlan(rounds=rounds or 20), check=check, output=output)
        return
    if clouds:
        _clouds(QUICK_CLOUDS if quick else CloudsPlan(rounds=rounds or 10), check=check, output=output)
        return
    rounds = rounds or 50
    if manager:
        _manager(QUICK_MANAGER if quick else ManagerPlan(rounds=rounds, calls=calls), check=check, output=output)
        return
    if engine:
        plan = _QUICK_ENGINE if quick else EnginePlan(rounds=rounds, calls=calls, client=client)
        _engine(replace(plan, client=client), check=check, output=output)
        return
    amount = _QUICK if quick else {"rounds": rounds, "calls": calls}
    with tempfile.TemporaryDirectory() as scratch:
        certificates = Path(scratch) / "certificates" if mtls else None
        if certificates is not None:
            create_bundle(certificates, hosts=DEFAULT_HOSTS)
        report = asyncio.run(_measure(Plan(**amount, client=client, certificates=certificates)))
    if output == "json":
        click.echo(as_json(report))
    else:
        print_tables(report, _console())
    if check and report.over_limit:
        sys.exit(1)


def _engine(plan: EnginePlan, *, check: bool, output: str) -> None:
    report = asyncio.run(_measure_engine(plan))
    if output == "json":
        click.echo(engine_as_json(report))
    else:
        print_engine_tables(report, _console())
    if check and report.over_limit:
        sys.exit(1)


def _dock(plan: DockPlan, *, check: bool, output: str) -> None:
    click.echo(f"{plan.idle} idle drivers ...", err=True)
    memory = measure_memory(plan)
    click.echo(f"{plan.drivers} drivers at work ...", err=True)
    report = DockReport(plan=plan, dispatch=measure_dispatch(plan), memory=memory)
    if output == "json":
        click.echo(dock_as_json(report))
    else:
        print_dock_tables(report, _console())
    if check and report.over_limit:
        sys.exit(1)


def _discovery(plan: DiscoveryPlan, *, check: bool, output: str) -> None:
    click.echo(f"{plan.agents:,} agents ...", err=True)
    beats = measure_heartbeats(agents=plan.agents, connections=plan.connections, seconds=plan.seconds)
    click.echo(f"searches over {plan.clusters:,} clusters ...", err=True)
    searches = asyncio.run(measure_searches(clusters=plan.clusters, rounds=plan.rounds))
    report = DiscoveryReport(plan=plan, searches=searches, beats=beats)
    if output == "json":
        click.echo(discovery_as_json(report))
    else:
        print_discovery_tables(report, _console())
    if check and report.over_limit:
        sys.exit(1)


def _manager(plan: ManagerPlan, *, check: bool, output: str) -> None:
    click.echo(f"{plan.nodes:,} nodes behind a node manager ...", err=True)
    report = run_manager(plan)
    if output == "json":
        click.echo(manager_as_json(report))
    else:
        print_manager_tables(report, _console())
    if check and report.over_limit:
        sys.exit(1)


def _clouds(plan: CloudsPlan, *, check: bool, output: str) -> None:
    report = run_clouds(plan)
    if output == "json":
        click.echo(clouds_as_json(report))
    else:
        print_clouds_tables(report, _console())
    if check and report.over_limit:
        sys.exit(1)


def _transport(plan: TransportPlan, *, check: bool, output: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        certificates = Path(scratch) / "certificates"
        create_bundle(certificates, hosts=DEFAULT_HOSTS)
        told = measure_transports(Path(scratch), plan, certificates, lambda text: click.echo(text, err=True))
        report = TransportReport(plan=plan, settings=asyncio.run(told))
    if output == "json":
        click.echo(transport_as_json(report))
    else:
        print_transport_tables(report, _console())
    if check and report.over_limit:
        sys.exit(1)


async def _measure_engine(plan: EnginePlan) -> EngineReport:
    with tempfile.TemporaryDirectory() as scratch:
        click.echo(f"{plan.machines:,} machines, idle and busy ...", err=True)
        work = await measure_work(Path(scratch), plan)
        click.echo("large orders ...", err=True)
        orders = await measure_orders(Path(scratch), plan)
        click.echo("starts ...", err=True)
        return EngineReport(work=work, starts=await measure_starts(Path(scratch), plan), orders=orders)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160)


async def _measure(plan: Plan) -> Report:
    rows: list[Row] = []
    memory: list[Memory] = []
    steps: list[Steps] = []
    for nodes in _SIZES:
        click.echo(f"{nodes:,} nodes ...", err=True)
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
