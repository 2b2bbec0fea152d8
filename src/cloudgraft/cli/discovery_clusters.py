"""`cloudgraft discovery clusters`, `offers`, `put`, `delete`, `prices` and `credentials`: uses the register."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cloudgraft.cli.groups import Commands
from cloudgraft.cli.progress import working
from cloudgraft.cli.server_file import reachable
from cloudgraft.cli.terminal import ago, clean, examples, fail, output_option, print_json, print_table
from cloudgraft.discovery.model import Cluster, ClusterSpec, ClusterState, Need, Offer, PriceList, Resources, Strategy
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity

if TYPE_CHECKING:
    from cloudgraft.discovery.client import DiscoveryClient
    from cloudgraft.web.client import ClientTls

# -- connection --------------------------------------------------------------------------------------------------------


T = TypeVar("T")
_file: Final = click.Path(path_type=Path, dir_okay=False)
_FILE: Final = Path("discovery.yaml")
_LISTEN: Final = "127.0.0.1:9010"
_OPTIONS: Final = (
    click.option(
        "--server",
        default="",
        envvar="CLOUDGRAFT_DISCOVERY",
        metavar="URL",
        help="The discovery server, such as https://discovery.example:9010; also from $CLOUDGRAFT_DISCOVERY. Default: "
        "where ./discovery.yaml says that it listens, else http://127.0.0.1:9010.",
    ),
    click.option("--cacert", type=_file, metavar="FILE", help="The authority that signed its certificate."),
    click.option("--cert", type=_file, metavar="FILE", help="Your certificate."),
    click.option("--key", type=_file, metavar="FILE", help="Its private key."),
    click.option("--token-file", type=_file, metavar="FILE", help="A file with your token, instead or beside."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """The server that a command calls, and the client's credentials."""

    server: str
    tls: ClientTls
    token_file: Path | None

    def call(self, ask: Callable[[DiscoveryClient], Awaitable[T]]) -> T:
        """Makes one or more calls; raises CloudgraftError."""
        from cloudgraft.discovery.client import DiscoveryClient

        async def run() -> T:
            async with DiscoveryClient(self.server, tls=self.tls, token_file=self.token_file, timeout=15.0) as client:
                return await ask(client)

        with working("waiting for the discovery server"):
            return asyncio.run(run())


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that select a server; the command gets ``remote``. An error is one line, and exit code 1."""

    @functools.wraps(command)
    def run(
        *args: Any,
        server: str,
        cacert: Path | None,
        cert: Path | None,
        key: Path | None,
        token_file: Path | None,
        **kwargs: Any,
    ) -> None:
        from cloudgraft.web.client import ClientTls

        if (cert is None) != (key is None):
            raise click.UsageError("--cert and --key go together: give both, or none")
        remote = Remote(
            server=server or _default(), tls=ClientTls(ca=cacert, cert=cert, key=key), token_file=token_file
        )
        try:
            command(*args, remote=remote, **kwargs)
        except CloudgraftError as error:
            fail(error.message)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def _default() -> str:
    """The server of the file in this directory. Reads only the keys needed for its address."""
    import yaml

    try:
        data = yaml.safe_load(_FILE.read_text("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        data = None
    said = data if isinstance(data, dict) else {}
    listen = said.get("listen")
    address = reachable(listen if isinstance(listen, str) else _LISTEN)
    scheme = "https" if said.get("tls") else "http"
    return f"{scheme}://{address}"


# -- clusters ----------------------------------------------------------------------------------------------------------


_HEADINGS = ("CLUSTER", "STATE", "FREE", "RESERVED", "NODES", "HEARTBEAT", "LABELS")


@click.command(
    "clusters",
    epilog=examples("discovery clusters", "discovery clusters --selector country=italy --state Ready -o json"),
)
@options
@output_option
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="A label selector, as kubectl has it.")
@click.option("--state", type=click.Choice([state.value for state in ClusterState]), help="Only those in this state.")
def clusters(remote: Remote, output: str, selector: str, state: str | None) -> None:
    """Show the clusters that a server knows: free and reserved resources, and whether they still report."""
    from cloudgraft.discovery.api.schemas import ClusterView

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
    from pydantic import ValidationError

    from cloudgraft.discovery.api.schemas import ClusterBody
    from cloudgraft.validation.document import read_yaml
    from cloudgraft.validation.explain import explain
    from cloudgraft.validation.problems import ConfigError

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
    from cloudgraft.validation.document import MAX_BYTES, decode, read_file

    return decode(sys.stdin.buffer.read(MAX_BYTES), "-") if str(path) == "-" else read_file(path)


@click.command("delete", epilog=examples("discovery delete turin", "discovery delete turin --force"))
@options
@click.argument("cluster")
@click.option("--force", is_flag=True, help="Also while something is reserved there.")
def delete(remote: Remote, cluster: str, *, force: bool) -> None:
    """Forget a cluster. Its agent, if it still runs, announces it again."""
    remote.call(lambda client: client.delete_cluster(cluster, force=force))
    click.echo(f"{cluster}: gone")


# -- prices ------------------------------------------------------------------------------------------------------------


@click.group("prices", cls=Commands)
def prices() -> None:
    """Show or set the prices of a cluster."""


@prices.command("show", epilog=examples("discovery prices show turin -o json", title="Example"))
@options
@output_option
@click.argument("cluster")
def _show(remote: Remote, cluster: str, output: str) -> None:
    """Show all prices of a cluster, current and scheduled."""
    from cloudgraft.discovery.api.schemas import PricesView

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
    epilog=examples(
        "discovery prices set turin --currency EUR --unit cpu=0.02 --unit memory=0.004",
        "discovery prices set turin --currency EUR --node 0.10 --until 2027-01-01T00:00:00Z --add",
    ),
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
        unit={name: _money(price) for name, price in _pairs(units, "NAME=PRICE, such as cpu=0.02").items()},
        fixed_per_node=_money(fixed),
        peering_fee=_money(fee),
        valid_from=_time(since),
        valid_to=_time(until),
    )

    remote.call(lambda client: client.add_prices(cluster, wanted) if add else client.set_prices(cluster, [wanted]))
    click.echo(f"{cluster}: prices set")


def _pairs(texts: tuple[str, ...], form: str) -> Mapping[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise click.BadParameter(f"{text!r} is not {form}")
        found[name] = value
    return found


def _money(text: str) -> Decimal:
    with contextlib.suppress(InvalidOperation):
        amount = Decimal(text)
        if amount.is_finite() and amount >= 0:
            return amount
    raise click.BadParameter(f"{text!r} is no amount of money, such as 0.05")


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time, such as 2026-12-01T00:00:00Z") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


# -- credentials -------------------------------------------------------------------------------------------------------


@click.group("credentials", cls=Commands)
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


# -- offers ------------------------------------------------------------------------------------------------------------


@click.command(
    "offers",
    epilog=examples(
        "discovery offers --cpu 2 --memory 4Gi",
        "discovery offers --cpu 8 --resource nvidia.com/gpu=1 -l country=italy --strategy mostHeadroom",
    ),
)
@options
@output_option
@click.option("--cpu", metavar="QUANTITY", help="Such as 2 or 500m.")
@click.option("--memory", metavar="QUANTITY", help="Such as 4Gi.")
@click.option("--resource", "more", multiple=True, metavar="NAME=QUANTITY", help="Any other resource. Repeatable.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="A label selector, as kubectl has it.")
@click.option("--strategy", type=click.Choice([one.value for one in Strategy]), default="cheapest", show_default=True)
@click.option("--price-cap", metavar="PRICE", help="At most so much per hour.")
@click.option("--currency", default="", metavar="CODE", help="Only clusters that ask in this currency.")
@click.option("--peered", multiple=True, metavar="CLUSTER", help="Peered already. Repeatable.")
def offers(
    remote: Remote,
    output: str,
    *,
    cpu: str | None,
    memory: str | None,
    more: tuple[str, ...],
    selector: str,
    strategy: str,
    price_cap: str | None,
    currency: str,
    peered: tuple[str, ...],
) -> None:
    """Search for clusters that could hold a node, as the Liqo driver does, with reasons. Nothing is reserved."""
    from cloudgraft.discovery.api.schemas import OfferView

    need = Need(
        resources=_resources(cpu, memory, more),
        label_selector=selector,
        strategy=Strategy(strategy),
        price_cap=None if price_cap is None else _money(price_cap),
        currency=currency,
        peered=peered,
    )
    found, why_not = remote.call(lambda client: client.explained(need))
    if output == "json":
        shown = [OfferView.of(offer).model_dump(mode="json", by_alias=True) for offer in found]
        print_json({"offers": shown, "whyNot": dict(why_not)})
        return
    if found:
        headings = ("CLUSTER", "PER HOUR", "PEERED", "HEADROOM", "REASONS")
        print_table(headings, [_offer_row(offer) for offer in found])
    else:
        click.echo("No cluster can meet this.")
    for cluster, reason in sorted(why_not.items()):
        click.echo(f"not {clean(cluster)}: {clean(reason)}")


def _offer_row(offer: Offer) -> list[object]:
    price = "-" if offer.price_per_hour is None else f"{offer.price_per_hour.normalize():f} {offer.currency}"
    peered = "yes" if offer.peered else "no"
    return [offer.cluster, price, peered, f"{offer.headroom:.0%}", "; ".join(offer.reasons) or "-"]


def _resources(cpu: str | None, memory: str | None, more: tuple[str, ...]) -> dict[str, Quantity]:
    texts = {"cpu": cpu, "memory": memory, **_pairs(more, "NAME=QUANTITY, such as nvidia.com/gpu=1")}
    try:
        found = {name: Quantity(text) for name, text in texts.items() if text is not None}
    except InvalidQuantityError as error:
        raise click.BadParameter(error.message) from error
    if not found:
        raise click.UsageError("say what is needed: --cpu, --memory or --resource")
    return found
