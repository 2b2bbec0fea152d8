"""Imports clusters from the labelled Secrets of the first proof of concept, by list and watch.

A Secret with the label ``autoscaling=true`` is a cluster: its name is the cluster's id, ``kubeconfig`` its credentials,
and ``info`` a JSON object of ``resources``, ``labels`` and ``hasNat``. Its watch resumes for ever, and everything is
compared again after every change, so that a missed event causes no lasting error.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import ValidationError

from cloudgraft.discovery.api.schemas import ClusterBody
from cloudgraft.discovery.checks import hide_kubeconfig
from cloudgraft.discovery.model import CLUSTER_ID, Cluster, ClusterSpec, Network, NetworkMode
from cloudgraft.discovery.service import Discovery
from cloudgraft.documents import ForeignDocumentError, parse_json
from cloudgraft.kube.objects import SECRET_CONTENTS, Kind, SecretObject
from cloudgraft.kube.watched import Source, Watched
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity

LABELLED_SECRETS: Final[Kind[SecretObject]] = replace(SECRET_CONTENTS, label_selector="autoscaling=true")
_LOG = logging.getLogger("cloudgraft.discovery")
# a label with the namespace; only clusters with it may be removed again
_ORIGIN: Final = "discovery.cloudgraft.dev/imported"
_LEAVING: Final = "discovery.cloudgraft.dev/secret-gone"  # while such a cluster waits for its last reservation to end
_MOST_INFO: Final = 256 * 1024  # characters
_SETTLING: Final = 0.2  # seconds in which several changes are handled together
_RETRY: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The content of a Secret."""

    spec: ClusterSpec
    kubeconfig: str = field(repr=False)


def cluster_in(secret: SecretObject) -> Imported:
    """Parses the cluster that a Secret declares. Raises InvalidArgumentError, which contains no value of it."""
    if not CLUSTER_ID.fullmatch(secret.name):
        raise InvalidArgumentError("its name is no cluster id: lower-case letters, digits and hyphens, at most 63")
    kubeconfig = _text(secret, "kubeconfig")
    try:
        info = parse_json(_text(secret, "info"), most_bytes=_MOST_INFO)
    except (ValueError, RecursionError, ForeignDocumentError):
        raise InvalidArgumentError("its key info is not JSON") from None
    if not isinstance(info, dict):
        raise InvalidArgumentError("its key info is not a JSON object")
    has_nat = info.get("hasNat", False)
    if not isinstance(has_nat, bool):
        raise InvalidArgumentError("hasNat in its key info is neither true nor false")
    mode = NetworkMode.CONSUMER_GATEWAY if has_nat else NetworkMode.DIRECT
    spec = ClusterSpec(
        id=secret.name,
        labels=_texts(info, "labels"),
        capacity=_amounts(_texts(info, "resources")),
        network=Network(mode=mode),
    )
    try:
        ClusterBody.of(spec)  # the same rules as for clusters that are declared over HTTP
    except ValidationError as error:
        where = ", ".join(sorted({str(each["loc"][0]) for each in error.errors()}))
        raise InvalidArgumentError(f"its key info breaks the rules for {where}") from None
    return Imported(spec=spec, kubeconfig=kubeconfig)


def _text(secret: SecretObject, key: str) -> str:
    try:
        text = secret.data.get(key, b"").decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"its key {key} is not UTF-8") from None
    if not text.strip():
        raise InvalidArgumentError(f"it has no key {key}")
    return text


def _texts(info: Mapping[str, object], key: str) -> dict[str, str]:
    found = {} if info.get(key) is None else info[key]
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"{key} in its key info is not a JSON object")
    if not all(isinstance(value, str) or type(value) is int for value in found.values()):
        raise InvalidArgumentError(f"a value of {key} in its key info is neither text nor a whole number")
    return {name: str(value) for name, value in found.items()}


def _amounts(texts: Mapping[str, str]) -> dict[str, Quantity]:
    try:
        amounts = {name: Quantity(text) for name, text in texts.items()}
    except InvalidQuantityError:
        raise InvalidArgumentError("an amount of resources in its key info is not a quantity") from None
    if any(amount < Quantity(0) for amount in amounts.values()):
        raise InvalidArgumentError("an amount of resources in its key info is negative")
    # The proof of concept wrote "gpu", which no pod requests.
    return {"nvidia.com/gpu" if name == "gpu" else name: amount for name, amount in amounts.items()}


class Importer:
    """Keeps discovery's clusters equal to the Secrets of one namespace, until cancelled."""

    def __init__(self, source: Source, namespace: str, discovery: Discovery) -> None:
        self._discovery = discovery
        self._namespace = namespace
        self._changed = asyncio.Event()
        secrets = replace(LABELLED_SECRETS, namespace=namespace)
        self._secrets = Watched(source, secrets, on_change=self._changed.set)
        self._reported: dict[str, str] = {}  # errors by the Secret's name, so that each is logged once
        self._handed_in: dict[str, str] = {}  # a digest of the credentials, by cluster

    @property
    def problems(self) -> Mapping[str, str]:
        """Errors of ignored Secrets, by name."""
        return self._reported

    async def run(self) -> None:
        """Watches the Secrets until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._secrets.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SETTLING)
            self._changed.clear()
            if not await self.sync():
                with suppress(TimeoutError):  # retry soon, or at the next change
                    async with asyncio.timeout(_RETRY):
                        await self._changed.wait()
                self._changed.set()

    async def sync(self) -> bool:
        """Compares all Secrets with all clusters once. False when something must be retried."""
        try:
            known = {cluster.spec.id: cluster for cluster in await self._discovery.clusters()}
        except CloudgraftError as error:
            _LOG.warning("cannot import Secrets now: %s", error.message)
            return False
        is_done = True
        secrets = {secret.name: secret for secret in self._secrets.objects.values() if not secret.deleting}
        for name, secret in sorted(secrets.items()):
            is_done &= await self._attempt(name, self._take(secret, known.get(name)))
        gone = [id_ for id_, cluster in known.items() if id_ not in secrets and self._is_ours(cluster)]
        for id_ in sorted(gone):
            is_done &= await self._attempt(id_, self._remove(known[id_]))
        self._reported = {name: problem for name, problem in self._reported.items() if name in secrets}
        return is_done

    async def _attempt(self, name: str, step: Coroutine[None, None, bool]) -> bool:
        """Handles one Secret, so that a bad one does not stop the others (law 6)."""
        try:
            is_done = await step
        except InvalidArgumentError as error:
            self._report(name, error.message)
            return True  # nothing to retry until it is changed
        except CloudgraftError as error:
            self._report(name, error.message)
            return False
        self._reported.pop(name, None)
        return is_done

    async def _take(self, secret: SecretObject, known: Cluster | None) -> bool:
        found = cluster_in(secret)
        hide_kubeconfig(found.kubeconfig)
        if known is not None and not self._is_ours(known):
            raise InvalidArgumentError("a cluster of that id was declared by others, and is left to them")
        was_gone = known is not None and _LEAVING in known.spec.labels
        spec = replace(
            found.spec,
            labels={**found.spec.labels, _ORIGIN: self._namespace},
            cordoned=known is not None and known.spec.cordoned and not was_gone,  # keeps an operator's cordon
        )
        if known is None or known.spec != spec:
            await self._discovery.put_cluster(spec, revision=None if known is None else known.revision)
        digest = hashlib.sha256(found.kubeconfig.encode()).hexdigest()
        if known is None or self._handed_in.get(spec.id) != digest:
            await self._discovery.set_credentials(spec.id, found.kubeconfig)
            self._handed_in[spec.id] = digest
        return True

    async def _remove(self, known: Cluster) -> bool:
        """Removes a cluster whose Secret is gone; only cordons it while it has reservations."""
        self._handed_in.pop(known.spec.id, None)
        try:
            await self._discovery.delete_cluster(known.spec.id)
        except NotFoundError:
            return True
        except PreconditionError:
            if _LEAVING not in known.spec.labels:
                spec = replace(known.spec, cordoned=True, labels={**known.spec.labels, _LEAVING: "true"})
                await self._discovery.put_cluster(spec, revision=known.revision)
                _LOG.info("the Secret of a cluster is gone: it is cordoned", extra={"cluster": known.spec.id})
            return False
        _LOG.info("the Secret of a cluster is gone, and so is the cluster", extra={"cluster": known.spec.id})
        return True

    def _is_ours(self, cluster: Cluster) -> bool:
        """False for one that was declared over HTTP, or by another namespace's importer."""
        return cluster.spec.labels.get(_ORIGIN) == self._namespace

    def _report(self, name: str, problem: str) -> None:
        if self._reported.get(name) != problem:
            _LOG.warning("ignoring the Secret %s: %s", name, problem)
        self._reported[name] = problem
