"""Replicas on a real PostgreSQL under faults, with a history checker: `make test-replicas`.

Exit code 0 when every answer of every run is explained by some order of the changes.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
from pathlib import Path

import click

import tests.replicas.no_fork_handlers  # noqa: F401 - before gRPC is loaded
from tests.replicas.child import FAULTS as PLANTED
from tests.replicas.disturbances import FAULTS
from tests.replicas.trial import Trial


@click.command()
@click.option("--seed", default=1, show_default=True, help="Of the first run; it chooses the faults.")
@click.option("--runs", default=5, show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="For how long faults are injected in each run.")
@click.option("--lease", default=4.0, show_default=True, help="Its length in seconds; more on a busy machine.")
@click.option("--fault", "faults", multiple=True, type=click.Choice(list(FAULTS)), help="Only this kind; repeatable.")
@click.option("--plant", default="", type=click.Choice(["", *PLANTED]), help="Plants a fault in the replicas.")
def main(*, seed: int, runs: int, seconds: float, lease: float, faults: tuple[str, ...], plant: str) -> None:
    """Runs replicas, clients and faults, and checks what the clients were answered."""
    logging.getLogger("cloudgraft").setLevel(logging.CRITICAL)  # calls that fail are what is asked for
    failed = 0
    for number in range(seed, seed + runs):
        record = Path(tempfile.gettempdir()) / f"replicas-{number}.json"
        trial = Trial(
            seed=number, seconds=seconds, lease=lease, faults=faults or tuple(FAULTS), planted=plant, record=record
        )
        directory = Path(tempfile.mkdtemp(prefix="replicas-"))
        try:
            result = asyncio.run(trial.run(directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        click.echo(str(result))
        if not result.wrong:
            record.unlink()
        for wrong in result.wrong:
            click.echo(f"  {wrong}", err=True)
        if result.wrong:
            failed += 1
            click.echo(f"  the history is in {trial.record}", err=True)
    sys.exit(1 if failed else 0)


main()
