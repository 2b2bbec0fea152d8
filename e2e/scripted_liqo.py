"""Plays Liqo by a script, with networks and leases: for tests, and as a process of its own until a signal ends it.

    python -m e2e.scripted_liqo --consumer kubeconfig --provider cluster-a=kubeconfig-a --script script.json

The script says which steps are slow, denied, granted in part or never done. The same words work from three sides: a
:class:`JsonScript` in this process, a JSON file, and a ConfigMap ``fakeliqo`` in the namespace ``liqo`` of the consumer
with the JSON under ``script.json``::

    {"default": {"delays": {"ready": 2}}, "clusters": {"cluster-a": {"dead": true}}, "slices": {"x": {"deny": "Full"}}}
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import logging
import secrets
import signal
import sys
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cloudgraft.demo.fake_kubernetes.resources import LIQO as KINDS
from cloudgraft.demo.fake_kubernetes.resources import Resource
from cloudgraft.demo.fake_liqo import FakeLiqo, Member, Rules, settle
from cloudgraft.demo.fake_liqo.cluster import Cluster, Controller, Pace, Script
from cloudgraft.demo.fake_liqo.fake import Part
from cloudgraft.demo.fake_liqo.words import (
    CONFIGURATIONS,
    CONNECTIONS,
    NODES,
    REMOTE,
    SECRETS,
    owner,
    spec_of,
    status_of,
    with_condition,
)
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect
from cloudgraft.kube.objects import LEASES, CustomObject, Kind, PatchStyle, custom_kind
from cloudgraft.sdk.errors import AlreadyExistsError, CloudgraftError, InvalidArgumentError, NotFoundError

_LOG = logging.getLogger("cloudgraft.fakeliqo")
_NETWORKING: Final = "apis/networking.liqo.io/v1beta1"

# -- script ------------------------------------------------------------------------------------------------------------

STEPS: Final = (
    "request",  # the consumer completes the slice
    "authentication",  # the provider accepts who asks
    "resources",  # the provider grants
    "identity",  # the consumer has the provider's credentials
    "virtualNode",
    "node",
    "ready",
    "connection",  # of the networks
    "delete",  # of the virtual node: evictions
)

_KEYS: Final = {
    "".join(part.title() if number else part for number, part in enumerate(entry.name.split("_"))): entry.name
    for entry in fields(Rules)
}


class JsonScript(Script):
    """Rules for everything, for clusters, and for slices by name: the narrowest counts. It may change at any time."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._layers: dict[str, Any] = {}
        self._text = ""
        if text:
            self.load(text)

    def load(self, text: str) -> None:
        """Replaces all rules. On InvalidArgumentError the old ones stay."""
        if text == self._text:
            return
        try:
            layers = json.loads(text)
        except ValueError:
            raise InvalidArgumentError("the script of the fake Liqo is not JSON") from None
        if not isinstance(layers, dict) or layers.keys() - {"default", "clusters", "slices"}:
            raise InvalidArgumentError("the script of the fake Liqo has the keys default, clusters and slices only")
        for said in (
            layers.get("default", {}),
            *layers.get("clusters", {}).values(),
            *layers.get("slices", {}).values(),
        ):
            _check(said)
        self._layers, self._text = layers, text
        self.on_change()

    def say(self, *, cluster: str = "", slice_name: str = "", **rules: object) -> None:
        """Adds to the rules of a slice, of a cluster, or of everything, by the names that :class:`Rules` has."""
        names = {python: key for key, python in _KEYS.items()}
        said = {names[name]: value for name, value in rules.items()}
        layers: dict[str, Any] = json.loads(json.dumps(self._layers))
        if slice_name:
            layers.setdefault("slices", {}).setdefault(slice_name, {}).update(said)
        elif cluster:
            layers.setdefault("clusters", {}).setdefault(cluster, {}).update(said)
        else:
            layers.setdefault("default", {}).update(said)
        self.load(json.dumps(layers))

    def text(self) -> str:
        """All of it, as it can be loaded."""
        return json.dumps(self._layers)

    def rules(self, cluster: str, slice_name: str = "") -> Rules:
        """The rules for a cluster, or for a slice of it."""
        merged: dict[str, Any] = {}
        for layer in (
            self._layers.get("default", {}),
            self._layers.get("clusters", {}).get(cluster, {}),
            self._layers.get("slices", {}).get(slice_name, {}),
        ):
            delays = {**merged.get("delays", {}), **layer.get("delays", {})}
            merged = {**merged, **layer, "delays": delays}
        return Rules(**{_KEYS[key]: value for key, value in merged.items()})


def _check(said: object) -> None:
    if not isinstance(said, dict):
        raise InvalidArgumentError("rules of the fake Liqo are a mapping")
    for key in said.keys() - _KEYS.keys():
        raise InvalidArgumentError(f"the fake Liqo has no rule {key!r}; it has {', '.join(_KEYS)}")
    for step in said.get("delays", {}).keys() - set(STEPS):
        raise InvalidArgumentError(f"the fake Liqo has no step {step!r}; it has {', '.join(STEPS)}")


# -- networks ----------------------------------------------------------------------------------------------------------
# Objects only: no packet ever flows.


GATEWAY_SERVERS: Final = custom_kind(_NETWORKING, "gatewayservers")
GATEWAY_CLIENTS: Final = custom_kind(_NETWORKING, "gatewayclients")
PUBLIC_KEYS: Final = custom_kind(_NETWORKING, "publickeies")  # Liqo's own plural
_GATEWAYS: Final = ((GATEWAY_SERVERS, "Server"), (GATEWAY_CLIENTS, "Client"))
_GATEWAY_RESOURCE: Final = "networking.liqo.io/gateway-resource"
_ADDRESS: Final = "192.0.2.1"  # of every gateway; reserved for documents


class Network(Controller):
    """Plays the network controllers of one cluster, and its gateways."""

    async def turn(self) -> None:
        """Does what is due."""
        for found in self._cluster.all(CONFIGURATIONS):
            await self._configure(found)
        for kind, role in _GATEWAYS:
            for gateway in self._cluster.all(kind):
                await self._open(kind, gateway)
                await self._connect(gateway, role)
        await self._disconnect()

    async def _configure(self, found: CustomObject) -> None:
        conditions = with_condition(found, "NetworkCIDRsConfigured", "True", "Configured", "the ranges are remapped")
        remote = spec_of(found).get("remote") or {}
        await self._cluster.report(CONFIGURATIONS, found, {"remote": remote, "conditions": conditions})

    async def _open(self, kind: Kind[CustomObject], gateway: CustomObject) -> None:
        spec = spec_of(gateway)
        secret = (spec.get("secretRef") or {}).get("name") or f"gw-{gateway.name}"
        if not spec.get("secretRef") and not status_of(gateway).get("secretRef"):
            await self._cluster.create(SECRETS, _keys(secret, gateway), gateway.namespace)
        status: dict[str, Any] = {"secretRef": {"name": secret, "namespace": gateway.namespace}}
        if kind is GATEWAY_SERVERS:
            asked = spec.get("endpoint") or {}
            port = asked.get("nodePort") or asked.get("port") or 51840
            address = asked.get("loadBalancerIP") or _ADDRESS
            status["endpoint"] = {"addresses": [address], "port": port, "protocol": "UDP"}
        await self._cluster.report(kind, gateway, status)

    async def _connect(self, gateway: CustomObject, role: str) -> None:
        """There is a connection once keys are exchanged, and it is up when the ranges are known too."""
        remote = gateway.labels.get(REMOTE, "")
        if not self._cluster.all(PUBLIC_KEYS, remote=remote):
            return
        found = self._cluster.find(CONNECTIONS, gateway.name, gateway.namespace)
        if found is None:
            await self._cluster.create(CONNECTIONS, _connection(gateway, role), gateway.namespace)
            return
        rules = self._script.rules(remote)
        is_up = bool(self._cluster.all(CONFIGURATIONS, remote=remote)) and not rules.dead
        if is_up and self._pace.due((found.uid, "connection"), rules.delay("connection")):
            await self._cluster.report(CONNECTIONS, found, {"value": "Connected", "latency": {"value": "1ms"}})
        else:
            value = "Error" if status_of(found).get("value") in {"Connected", "Error"} else "Connecting"
            await self._cluster.report(CONNECTIONS, found, {"value": value})

    async def _disconnect(self) -> None:
        present = {each.key for kind, _ in _GATEWAYS for each in self._cluster.all(kind)}
        for found in self._cluster.all(CONNECTIONS):
            if found.key not in present:
                await self._cluster.delete(CONNECTIONS, found)


def _connection(gateway: CustomObject, role: str) -> dict[str, object]:
    kind = f"Gateway{role}"
    reference = {"kind": kind, "name": gateway.name, "namespace": gateway.namespace}
    return {
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "Connection",
        "metadata": {
            "name": gateway.name,
            "labels": {REMOTE: gateway.labels.get(REMOTE, "")},
            "ownerReferences": [owner(gateway, kind, "networking.liqo.io/v1beta1")],
        },
        "spec": {"type": role, "gatewayRef": reference},
    }


def _keys(name: str, gateway: CustomObject) -> dict[str, object]:
    keys = {key: base64.b64encode(secrets.token_bytes(32)).decode() for key in ("privateKey", "publicKey")}
    labels = {REMOTE: gateway.labels.get(REMOTE, ""), _GATEWAY_RESOURCE: "true"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": keys}


# -- the whole ---------------------------------------------------------------------------------------------------------


SCRIPTS: Final = custom_kind("api/v1", "configmaps", field_selector="metadata.name=fakeliqo")
_BETWEEN_READS: Final = 0.2
_LEASE_PERIOD: Final = 10.0


class ScriptedLiqo(FakeLiqo):
    """Plays Liqo by a script. Changes of the script's file and of the ConfigMap are noticed."""

    consumer_kinds = (*FakeLiqo.consumer_kinds, GATEWAY_SERVERS, GATEWAY_CLIENTS, PUBLIC_KEYS, SCRIPTS)
    provider_kinds = (
        *FakeLiqo.provider_kinds,
        CONFIGURATIONS,
        CONNECTIONS,
        GATEWAY_SERVERS,
        GATEWAY_CLIENTS,
        PUBLIC_KEYS,
    )

    def __init__(
        self,
        consumer: Member,
        providers: Sequence[Member] = (),
        *,
        script: JsonScript | None = None,
        script_file: Path | None = None,
        renew_leases: bool = False,
        dead_after: float = 2.0,
    ) -> None:
        self.script = script or JsonScript()
        self._file = script_file
        self._renews = renew_leases
        super().__init__(consumer, providers, script=self.script, dead_after=dead_after)

    def consumer_parts(self, pace: Pace) -> Sequence[Part]:
        """Reads the ConfigMap first; networks come before slices."""
        return (_ScriptMap(self), Network(self.consumer, self.script, pace), *super().consumer_parts(pace))

    def provider_parts(self, cluster: Cluster, pace: Pace) -> Sequence[Part]:
        """Networks come before slices."""
        return (Network(cluster, self.script, pace), *super().provider_parts(cluster, pace))

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Reads the file, and renews leases where that is wanted."""
        if self._renews:
            yield self._renew()
        if self._file is not None:
            yield self._read(self._file)

    def load(self, text: str) -> None:
        """Replaces the script; one that cannot be read is logged, and the old one stays."""
        try:
            self.script.load(text)
        except InvalidArgumentError as error:
            _LOG.warning("%s", error)

    async def _read(self, path: Path) -> None:
        while True:
            with suppress(FileNotFoundError):
                self.load(await asyncio.to_thread(path.read_text))
            await asyncio.sleep(_BETWEEN_READS)

    async def _renew(self) -> None:
        """Renews the nodes' leases, as kubelets do, for a cluster that takes silence for death."""
        while True:
            try:
                for node in self.consumer.all(NODES):
                    await _renew_lease(self.consumer.client, node.name)
            except CloudgraftError as error:
                _LOG.debug("leases: %s", error)
            await asyncio.sleep(_LEASE_PERIOD)


class _ScriptMap:
    """Reads the script in the ConfigMap."""

    def __init__(self, liqo: ScriptedLiqo) -> None:
        self._liqo = liqo

    async def turn(self) -> None:
        for found in self._liqo.consumer.all(SCRIPTS):
            data: Any = found.content.get("data") or {}
            if "script.json" in data:
                self._liqo.load(data["script.json"])


async def _renew_lease(client: KubeClient, name: str) -> None:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": moment}
    patch: Mapping[str, Any] = {"spec": spec}
    try:
        await client.patch(LEASES, name, patch, namespace="kube-node-lease", style=PatchStyle.MERGE)
    except NotFoundError:
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        with suppress(AlreadyExistsError):
            await client.create(LEASES, lease, namespace="kube-node-lease")


# -- definitions of kinds ----------------------------------------------------------------------------------------------
# They accept every field, and have Liqo's names, scopes and status subresources: enough for a real API server to serve
# these kinds where Liqo's chart cannot be had.


DEFINITIONS: Final = custom_kind("apis/apiextensions.k8s.io/v1", "customresourcedefinitions")
_PATIENCE: Final = 30.0
_OPEN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(resource: Resource) -> Mapping[str, Any]:
    """The definition of one kind."""
    version: dict[str, Any] = {
        "name": resource.base.rpartition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}},
    }
    if resource.has_status:
        version["subresources"] = {"status": {}}
    singular = resource.kind.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": singular,
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
            },
            "versions": [version],
        },
    }


def definitions() -> list[Mapping[str, Any]]:
    """All of them."""
    return [definition(resource) for resource in KINDS]


async def install(client: KubeClient) -> None:
    """Makes an API server serve Liqo's kinds. Existing definitions, such as those of Liqo's chart, are not changed."""
    for manifest in definitions():
        with suppress(AlreadyExistsError):
            await client.create(DEFINITIONS, manifest)
    async with asyncio.timeout(_PATIENCE):
        for resource in KINDS:
            await _is_served(client, custom_kind(resource.base, resource.plural))


async def _is_served(client: KubeClient, kind: Kind[CustomObject]) -> None:
    while True:
        with suppress(NotFoundError):
            await client.list(kind)
            return
        await asyncio.sleep(0.1)


# -- the process -------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Runs it; the exit code is 1 when an API cannot be used at the start."""
    options = _options().parse_args(arguments)
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.WARNING)
    try:
        asyncio.run(_play(options))
    except CloudgraftError as error:
        print(f"fake Liqo: {error}", file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.scripted_liqo", description="Plays Liqo.")
    parser.add_argument("--consumer", type=Path, required=True, help="kubeconfig of the cluster that gets nodes")
    parser.add_argument("--consumer-id", default="consumer", help="its Liqo cluster id")
    parser.add_argument("--provider", action="append", default=[], metavar="ID=KUBECONFIG", help="may be repeated")
    parser.add_argument("--script", type=Path, help="a JSON file with delays, refusals and so on; may change")
    parser.add_argument("--renew-leases", action="store_true", help="where a controller manager watches leases")
    parser.add_argument("--dead-after", type=float, default=2.0, help="seconds of silence that mean a dead provider")
    parser.add_argument("--verbose", action="store_true")
    return parser


async def _play(options: argparse.Namespace) -> None:
    members = [Member(id=options.consumer_id, client=connect(options.consumer))]
    for pair in options.provider:
        name, _, path = pair.partition("=")
        members.append(Member(id=name, client=connect(Path(path))))
    try:
        for member in members:
            await install(member.client)
            await settle(member.client, member.id)
        fake = ScriptedLiqo(
            members[0],
            members[1:],
            script_file=options.script,
            renew_leases=options.renew_leases,
            dead_after=options.dead_after,
        )
        await _until_signal(fake)
    finally:
        for member in members:
            await member.client.close()


async def _until_signal(fake: ScriptedLiqo) -> None:
    task = asyncio.create_task(fake.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    print("playing Liqo", flush=True)
    with suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    sys.exit(main())
