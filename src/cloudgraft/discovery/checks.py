"""Validates everything that is written to discovery, and redacts the secrets of kubeconfigs."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from cloudgraft.discovery.model import CLUSTER_ID, ClusterSpec, Heartbeat, NetworkMode, PriceList, Resources
from cloudgraft.discovery.search.prices import seconds_of
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.secrecy import hide, unhide

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}")
_VALUE: Final = re.compile(rf"({_NAME})?")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_LONGEST: Final = 253
_MOST_ENTRIES: Final = 128
_MOST_LISTS: Final = 100
_MOST_MONEY: Final = Decimal(10) ** 18
_FINEST: Final = -18
_MOST_SECRET: Final = 1 << 20
_HIGHEST_PORT: Final = 65535


def check_cluster_id(id_: str) -> None:
    """Checks an id by Liqo's own rule."""
    if not CLUSTER_ID.fullmatch(id_):
        raise InvalidArgumentError(f"{id_[:80]!r} is no cluster id: lower-case letters, digits and '-', at most 63")


def check_spec(spec: ClusterSpec) -> None:
    """Checks the declaration of a cluster."""
    check_cluster_id(spec.id)
    check_text(spec.display_name, "a display name")
    if len(spec.labels) > _MOST_ENTRIES:
        raise InvalidArgumentError(f"a cluster has at most {_MOST_ENTRIES} labels")
    for key, value in spec.labels.items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise InvalidArgumentError(f"{f'{key}={value}'[:120]!r} is no label that Kubernetes would take")
    check_resources(spec.capacity, "the capacity")
    if spec.max_nodes is not None and spec.max_nodes < 0:
        raise InvalidArgumentError("a cluster cannot have less than 0 nodes")
    check_text(spec.resource_slice_class, "a resource slice class", is_needed=True)
    network = spec.network
    check_text(network.address, "the address of a gateway", is_needed=network.mode is NetworkMode.ADDRESS_OVERRIDE)
    if not (0 <= network.port <= _HIGHEST_PORT and 0 <= network.node_port <= _HIGHEST_PORT):
        raise InvalidArgumentError(f"a port is from 0 to {_HIGHEST_PORT}")


def check_heartbeat(beat: Heartbeat) -> None:
    """Checks an agent's measurement."""
    check_resources(beat.allocatable, "what is allocatable")
    check_resources(beat.free, "what is free")
    check_resources(beat.offloaded, "what is offloaded")
    for id_, taken in beat.offloaded_by.items():
        check_cluster_id(id_)
        check_resources(taken, "what is offloaded")
    check_text(beat.agent_version, "an agent's version")


def check_resources(resources: Resources, what: str, *, is_needed: bool = False) -> None:
    """Checks amounts of resources: none below 0."""
    if is_needed and not resources:
        raise InvalidArgumentError(f"{what}: say which resources, such as cpu and memory")
    if len(resources) > _MOST_ENTRIES:
        raise InvalidArgumentError(f"{what}: at most {_MOST_ENTRIES} resources")
    for name, quantity in resources.items():
        if not _KEY.fullmatch(name):
            raise InvalidArgumentError(f"{what}: {name[:80]!r} is no name of a resource")
        if quantity.value < 0:
            raise InvalidArgumentError(f"{what}: {name} cannot be less than 0")


def check_kubeconfig(kubeconfig: str) -> None:
    """Checks that it is text. The message contains none of it."""
    try:
        size = len(kubeconfig.encode())
    except UnicodeEncodeError:
        size = -1
    if not kubeconfig.strip() or not 0 < size <= _MOST_SECRET or "\0" in kubeconfig:
        raise InvalidArgumentError("the credentials are no kubeconfig: they are empty, too long, or not text")


def check_prices(lists: Sequence[PriceList]) -> None:
    """Checks the price lists of a cluster."""
    if len(lists) > _MOST_LISTS:
        raise InvalidArgumentError(f"a cluster has at most {_MOST_LISTS} price lists: leave out those that have ended")
    for prices in lists:
        if not _CURRENCY.fullmatch(prices.currency):
            raise InvalidArgumentError(f"{prices.currency[:20]!r} is no currency: three capitals, such as EUR")
        if len(prices.unit) > _MOST_ENTRIES:
            raise InvalidArgumentError(f"a price list has at most {_MOST_ENTRIES} resources")
        for name, price in prices.unit.items():
            if not _KEY.fullmatch(name):
                raise InvalidArgumentError(f"{name[:80]!r} is no name of a resource")
            _check_money(price, f"the price of {name}")
        _check_money(prices.fixed_per_node, "the price per node")
        _check_money(prices.peering_fee, "the peering fee")
        begin, end = seconds_of(prices.valid_from, float("-inf")), seconds_of(prices.valid_to, float("inf"))
        if begin >= end:
            raise InvalidArgumentError("a price list must end after it begins")


def _check_money(amount: Decimal, what: str) -> None:
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int) or not 0 <= amount <= _MOST_MONEY or exponent < _FINEST:
        raise InvalidArgumentError(f"{what} must be from 0 to {_MOST_MONEY:f}, with at most {-_FINEST} decimals")


def check_text(text: str, what: str, *, is_needed: bool = False) -> None:
    """Checks a text that people read, or the form of an id."""
    if is_needed and not text:
        raise InvalidArgumentError(f"{what} must not be empty")
    if len(text) > _LONGEST or not text.isprintable():
        raise InvalidArgumentError(f"{what} has at most {_LONGEST} characters, all of them printable")


# -- Redaction of kubeconfigs ------------------------------------------------------------------------------------------


_KEYS: Final = r"""["']?(?:token|password|client-key-data)["']?\s*:\s*"""
_ONE_LINE: Final = re.compile(rf"""{_KEYS}["']?([^\s"',}}|>][^\s"',}}]*)""")
_BLOCK: Final = re.compile(rf"""{_KEYS}[|>][-+0-9]*[ \t]*\n((?:[ \t]+\S+[ \t]*(?:\n|$))+)""")
_MOST: Final = 256  # kubeconfigs; every secret costs time in every log line, and tokens are renewed for ever
_MOST_SECRETS: Final = 128  # lines of one kubeconfig: a private key of 4,096 bits has about 60

_hidden: OrderedDict[tuple[str, ...], None] = OrderedDict()  # the latest, oldest first


def hide_kubeconfig(text: str) -> None:
    """Redacts tokens, passwords and private keys of a kubeconfig in every log line and error of this process.

    Keeps only the latest kubeconfigs: an older one is no longer in use when it is dropped. Raises InvalidArgumentError
    for one with too many secrets: each would slow every log line.
    """
    lines = [line for block in _BLOCK.findall(text) for line in block.split()]
    secrets = tuple(sorted({*_ONE_LINE.findall(text), *lines}))
    if len(secrets) > _MOST_SECRETS:
        raise InvalidArgumentError(
            f"the kubeconfig holds more than {_MOST_SECRETS} lines of secrets: one user is enough"
        )
    if not secrets:
        return
    if secrets not in _hidden:
        hide(*secrets)
    _hidden[secrets] = None
    _hidden.move_to_end(secrets)
    while len(_hidden) > _MOST:
        unhide(*_hidden.popitem(last=False)[0])
