"""`cloudgraft discovery offers`: searches clusters for a node, with prices, and reasons for those that do not fit."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import click

from cloudgraft.cli.discovery_remote import Remote, options
from cloudgraft.cli.terminal import clean, output_option, print_json, print_table
from cloudgraft.discovery.api.schemas import OfferView
from cloudgraft.discovery.model import Need, Offer, Strategy
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity


@click.command(
    "offers",
    epilog="\b\nExamples:\n  cloudgraft discovery offers --cpu 2 --memory 4Gi\n"
    "  cloudgraft discovery offers --cpu 8 --resource nvidia.com/gpu=1 -l country=italy --strategy mostHeadroom",
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
    need = Need(
        resources=_resources(cpu, memory, more),
        label_selector=selector,
        strategy=Strategy(strategy),
        price_cap=None if price_cap is None else _price(price_cap),
        currency=currency,
        peered=peered,
    )
    found, why_not = remote.call(lambda client: client.explained(need))
    if output == "json":
        told = [OfferView.of(offer).model_dump(mode="json", by_alias=True) for offer in found]
        print_json({"offers": told, "whyNot": dict(why_not)})
        return
    if found:
        headings = ("CLUSTER", "PER HOUR", "PEERED", "HEADROOM", "REASONS")
        print_table(headings, [_row(offer) for offer in found])
    else:
        click.echo("No cluster can meet this.")
    for cluster, reason in sorted(why_not.items()):
        click.echo(f"not {clean(cluster)}: {clean(reason)}")


def _row(offer: Offer) -> list[object]:
    price = "-" if offer.price_per_hour is None else f"{offer.price_per_hour.normalize():f} {offer.currency}"
    peered = "yes" if offer.peered else "no"
    return [offer.cluster, price, peered, f"{offer.headroom:.0%}", "; ".join(offer.reasons) or "-"]


def _resources(cpu: str | None, memory: str | None, more: tuple[str, ...]) -> dict[str, Quantity]:
    texts = {"cpu": cpu, "memory": memory}
    for text in more:
        name, equals, amount = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not NAME=QUANTITY, such as nvidia.com/gpu=1")
        texts[name] = amount
    try:
        found = {name: Quantity(text) for name, text in texts.items() if text is not None}
    except InvalidQuantityError as error:
        raise click.BadParameter(error.message) from error
    if not found:
        raise click.UsageError("say what is needed: --cpu, --memory or --resource")
    return found


def _price(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise click.BadParameter(f"{text!r} is no amount of money, such as 0.05") from None
