"""`cloudgraft discovery clusters`, `put`, `delete`, `prices` and `credentials`: shows and changes the register."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from cloudgraft.cli.discovery_remote import Remote, options
from cloudgraft.cli.terminal import ago, output_option, print_json, print_table
from cloudgraft.config.document import MAX_BYTES, decode, read_file, read_yaml
from cloudgraft.config.explain import explain
from cloudgraft.config.problems import ConfigError
from cloudgraft.discovery.api.schemas import ClusterBody, ClusterView, PricesView
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import Cluster, ClusterSpec, ClusterState, PriceList, Resources

_HEADINGS = ("CLUSTER", "STATE", "FREE", "RESERVED", "NODES", "HEARTBEAT", "LABELS")


@click.command(
    "clusters",
    epilog="\b\nExamples:\n  cloudgraft discovery clusters\n"
    "  cloudgraft discovery clusters --selector country=italy --state Ready -o json",
)
@options
@output_option
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="A label selector, as kubectl has it.")
@click.option("--state", type=click.Choice([state.value for state in ClusterState]), help="Only those in this state.")
def clusters(remote: Remote, output: str, selector: str, state: str | None) -> None:
    """Show the clusters that a server knows: free and reserved resources, and whether they still report."""
    found = remote.call(lambda client: client.clusters(selector=selector, state=state or ""))
    if output == "json":
        print_json([ClusterView.of(cluster).model_dump(mode="json", by_alias=True) for cluster in found])
    elif not found:
        click.echo("No cluster is known.")
    else:
        print_table(_HEADINGS, [_row(cluster) for cluster in found])


def _row(cluster: Cluster) -> list[object]:
    seen = cluster.last_heartbeat
    limit = "" if cluster.spec.max_nodes is None else f" of {cluster.spec.max_nodes}"
    return [
        cluster.spec.id,
        cluster.state.value,
        _amounts(cluster.free),
        _amounts({name: amount for name, amount in cluster.reserved.items() if amount.value}),
        f"{cluster.nodes}{limit}",
        "-" if seen is None else f"{ago(max(0.0, (datetime.now(UTC) - seen).total_seconds()))} ago",
        " ".join(f"{key}={value}" for key, value in sorted(cluster.spec.labels.items())) or "-",
    ]


def _amounts(resources: Resources) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(resources.items())) or "-"


@click.command(
    "put",
    epilog="\b\nThe file:\n  displayName: Turin\n  labels: {country: italy}\n"
    "  capacity: {cpu: 16, memory: 64Gi, pods: 110}\n  maxNodes: 4\n\n\b\nExamples:\n"
    "  cloudgraft discovery put turin --file turin.yaml\n"
    "  cloudgraft discovery put turin --cordon",
)
@options
@click.argument("cluster")
@click.option("--file", "path", type=click.Path(path_type=Path), help="YAML with what is declared; - is stdin.")
@click.option("--cordon/--uncordon", "cordoned", default=None, help="Whether nothing new is wanted there.")
def put(remote: Remote, cluster: str, path: Path | None, *, cordoned: bool | None) -> None:
    """Declare a cluster, or change what is declared of it.

    --file replaces all of it; --cordon or --uncordon alone change only that. An agent announces its cluster again
    whenever it changes.
    """
    if path is None and cordoned is None:
        raise click.UsageError("say what: --file FILE, --cordon or --uncordon")
    spec = None if path is None else _spec(cluster, path)

    async def declare(client: DiscoveryClient) -> Cluster:
        if spec is not None:
            return await client.put_cluster(spec if cordoned is None else replace(spec, cordoned=cordoned))
        known = await client.cluster(cluster)
        wanted = replace(known.spec, cordoned=cordoned is True)
        return await client.put_cluster(wanted, revision=known.revision)

    done = remote.call(declare)
    click.echo(f"{done.spec.id}: {done.state.value}, revision {done.revision}")


def _spec(cluster: str, path: Path) -> ClusterSpec:
    document = read_yaml(_read(path), str(path))
    try:
        if document.problems:
            raise ConfigError(document.problems)
        return ClusterBody.model_validate(_plain(document.root.value)).spec(cluster)
    except ValidationError as error:
        raise ConfigError(explain(error.errors(include_url=False), document, ClusterBody)) from None


def _plain(value: Any) -> Any:
    """YAML reads `cpu: 4` as a number; quantities and labels are text."""
    if not isinstance(value, dict):
        return value
    texts = {
        key: {name: str(one) if type(one) is int else one for name, one in held.items()}
        for key, held in value.items()
        if key in {"capacity", "labels"} and isinstance(held, dict)
    }
    return {**value, **texts}


def _read(path: Path) -> str:
    return decode(sys.stdin.buffer.read(MAX_BYTES), "-") if str(path) == "-" else read_file(path)


@click.command(
    "delete", epilog="\b\nExamples:\n  cloudgraft discovery delete turin\n  cloudgraft discovery delete turin --force"
)
@options
@click.argument("cluster")
@click.option("--force", is_flag=True, help="Also while something is reserved there.")
def delete(remote: Remote, cluster: str, *, force: bool) -> None:
    """Forget a cluster. Its agent, if it still runs, announces it again."""
    remote.call(lambda client: client.delete_cluster(cluster, force=force))
    click.echo(f"{cluster}: gone")


# -- prices ------------------------------------------------------------------------------------------------------------


@click.group("prices")
def prices() -> None:
    """Show or set the prices of a cluster."""


@prices.command("show", epilog="\b\nExample:\n  cloudgraft discovery prices show turin -o json")
@options
@output_option
@click.argument("cluster")
def _show(remote: Remote, cluster: str, output: str) -> None:
    """Show all prices of a cluster, current and scheduled."""
    found = remote.call(lambda client: client.prices(cluster))
    if output == "json":
        print_json([PricesView.of(one).model_dump(mode="json", by_alias=True) for one in found])
    elif not found:
        click.echo(f"{cluster} tells no price.")
    else:
        print_table(("CURRENCY", "PER HOUR", "PER NODE", "PEERING", "FROM", "TO"), map(_price_row, found))


def _price_row(prices_: PriceList) -> list[object]:
    units = [f"{name}/GiB {price}" if name == "memory" else f"{name} {price}" for name, price in prices_.unit.items()]
    span = [when.isoformat() if when else "-" for when in (prices_.valid_from, prices_.valid_to)]
    return [prices_.currency, ", ".join(units) or "-", prices_.fixed_per_node, prices_.peering_fee, *span]


@prices.command(
    "set",
    epilog="\b\nExamples:\n  cloudgraft discovery prices set turin --currency EUR --unit cpu=0.02 --unit memory=0.004\n"
    "  cloudgraft discovery prices set turin --currency EUR --node 0.10 --until 2027-01-01T00:00:00Z --add",
)
@options
@click.argument("cluster")
@click.option("--currency", required=True, metavar="CODE", help="Its three letters, such as EUR.")
@click.option("--unit", "units", multiple=True, metavar="NAME=PRICE", help="Per hour; memory per GiB. Repeatable.")
@click.option("--node", "fixed", default="0", metavar="PRICE", help="For each virtual node, per hour.")
@click.option("--peering", "fee", default="0", metavar="PRICE", help="Once, for a cluster that is not peered yet.")
@click.option("--from", "since", metavar="TIME", help="Valid from; such as 2026-12-01T00:00:00Z.")
@click.option("--until", "until", metavar="TIME", help="Valid until.")
@click.option("--add", is_flag=True, help="Lay it over the prices that are there, instead of replacing them.")
def _set(
    remote: Remote,
    cluster: str,
    *,
    currency: str,
    units: tuple[str, ...],
    fixed: str,
    fee: str,
    since: str | None,
    until: str | None,
    add: bool,
) -> None:
    """Set the prices of a cluster. They apply from the next search on."""
    wanted = PriceList(
        currency=currency,
        unit={name: _money(price) for name, price in _pairs(units).items()},
        fixed_per_node=_money(fixed),
        peering_fee=_money(fee),
        valid_from=_time(since),
        valid_to=_time(until),
    )

    remote.call(lambda client: client.add_prices(cluster, wanted) if add else client.set_prices(cluster, [wanted]))
    click.echo(f"{cluster}: prices set")


def _pairs(texts: tuple[str, ...]) -> Mapping[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise click.BadParameter(f"{text!r} is not NAME=PRICE, such as cpu=0.02")
        found[name] = value
    return found


def _money(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise click.BadParameter(f"{text!r} is no amount of money, such as 0.05") from None
    if not amount.is_finite() or amount < 0:
        raise click.BadParameter(f"{text!r} is no amount of money, such as 0.05")
    return amount


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time, such as 2026-12-01T00:00:00Z") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


# -- credentials -------------------------------------------------------------------------------------------------------


@click.group("credentials")
def credentials() -> None:
    """Hand in the kubeconfig with which others peer with a cluster."""


@credentials.command(
    "set",
    epilog="\b\nExamples:\n  cloudgraft discovery credentials set turin --file peering-user.kubeconfig\n"
    "  liqoctl generate peering-user --consumer-cluster-id ID | cloudgraft discovery credentials set turin --file -",
)
@options
@click.argument("cluster")
@click.option("--file", "path", type=click.Path(path_type=Path), required=True, help="The kubeconfig; - is stdin.")
def _hand_in(remote: Remote, cluster: str, path: Path) -> None:
    """Hand in a kubeconfig. The server keeps it encrypted, and shows it to a node manager only."""
    content = _read(path)
    remote.call(lambda client: client.set_credentials(cluster, content))
    click.echo(f"{cluster}: credentials set")
