"""A consumer and two providers on small API servers, with the fake Liqo between them, and peerings made by hand."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from cloudgraft.demo.fake_liqo import Member, playing, settle
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect
from e2e.scripted_liqo import ScriptedLiqo
from tests.kube_api import Json, KubeApi

REMOTE = "liqo.io/remote-cluster-id"
HOME = "home"


class LiqoWorld:
    def __init__(self, apis: dict[str, KubeApi], clients: dict[str, KubeClient], fake: ScriptedLiqo) -> None:
        self.apis = apis
        self.clients = clients
        self.fake = fake
        self.home = apis[HOME].store

    def peer(self, provider: str, *, kubeconfig: str | None = None) -> None:
        """All objects of a declarative peering, as a driver would make them."""
        there, api = self.apis[provider].store, self.apis[provider]
        for store, other in ((self.home, provider), (there, HOME)):
            labels = {REMOTE: other, "liqo.io/tenant-namespace": "true"}
            store.create("namespaces", "", {"metadata": {"name": f"liqo-tenant-{other}", "labels": labels}})
        space = f"liqo-tenant-{HOME}"
        there.create("serviceaccounts", space, {"metadata": {"name": "guest"}})
        subject = {"kind": "ServiceAccount", "name": "guest", "namespace": space}
        there.create("rolebindings", space, {"metadata": {"name": "guest"}, "subjects": [subject]})
        spec = {"clusterID": HOME, "authzPolicy": "TolerateNoHandshake"}
        there.create("tenants", space, {"metadata": {"name": HOME, "labels": {REMOTE: HOME}}, "spec": spec})
        text = api.kubeconfig_text(api.users.of_account(space, "guest")) if kubeconfig is None else kubeconfig
        meta = {
            "name": "cplane",
            "labels": {REMOTE: provider, "liqo.io/identity-type": "ControlPlane"},
            "annotations": {"liqo.io/remote-tenant-namespace": space},
        }
        data = {"kubeconfig": base64.b64encode(text.encode()).decode()}
        self.home.create("secrets", f"liqo-tenant-{provider}", {"metadata": meta, "data": data})

    def ask(self, name: str, provider: str, **resources: str) -> None:
        labels = {REMOTE: provider, "liqo.io/remoteID": provider, "liqo.io/replication": "true"}
        meta = {"name": name, "labels": labels, "annotations": {"liqo.io/create-virtual-node": "true"}}
        spec = {"providerClusterID": provider, "class": "default", "resources": resources}
        self.home.create("resourceslices", f"liqo-tenant-{provider}", {"metadata": meta, "spec": spec})

    def give_back(self, name: str, provider: str) -> None:
        self.home.delete(("resourceslices", f"liqo-tenant-{provider}", name), {})

    def condition(self, name: str, provider: str, kind: str) -> Json:
        found = self.home.find("resourceslices", name, f"liqo-tenant-{provider}") or {}
        return next((each for each in conditions(found) if each["type"] == kind), {})

    def node(self, name: str) -> Json | None:
        return self.home.find("nodes", name)

    def readiness(self, name: str) -> str:
        return next((each["status"] for each in conditions(self.node(name)) if each["type"] == "Ready"), "")

    def nothing_left(self, name: str, provider: str) -> bool:
        space = f"liqo-tenant-{provider}"
        kept = (("resourceslices", name), ("virtualnodes", name), ("identities", f"resourceslice-{name}"))
        here = [self.home.find(kind, each, space) for kind, each in kept]
        here += [self.node(name), self.home.find("secrets", f"kubeconfig-resourceslice-{name}", space)]
        return not any(here)


def conditions(found: Json | None) -> list[Any]:
    return list(((found or {}).get("status") or {}).get("conditions") or ())


@asynccontextmanager
async def liqo_world(directory: Path, *providers: str, script_file: Path | None = None) -> AsyncIterator[LiqoWorld]:
    async with AsyncExitStack() as stack:
        apis, clients = dict[str, KubeApi](), dict[str, KubeClient]()
        for name in (HOME, *providers):
            (directory / f"tls-{name}").mkdir()
            apis[name] = KubeApi.secure(directory / f"tls-{name}")
            apis[name].start()
            stack.callback(apis[name].stop)
            clients[name] = connect(apis[name].kubeconfig(directory, name=f"{name}.kubeconfig"))
            stack.push_async_callback(clients[name].close)
            await settle(clients[name], name)
        members = [Member(id=name, client=clients[name]) for name in (HOME, *providers)]
        fake = ScriptedLiqo(members[0], members[1:], script_file=script_file, dead_after=0.8)
        await stack.enter_async_context(playing(fake))
        yield LiqoWorld(apis, clients, fake)
