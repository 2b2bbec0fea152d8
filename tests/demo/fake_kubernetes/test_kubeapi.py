"""The small API server keeps to the real one's rules where our code could notice."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect, connect_foreign
from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.kube.objects import SECRET_CONTENTS, ChangeType, Manifest, PatchStyle, custom_kind
from cloudgraft.kube.rights import Right
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from tests.kube_api import Json, KubeApi, Resource, Resources, User

THINGS = custom_kind("apis/example.org/v1", "things")
SPACES = custom_kind("api/v1", "namespaces")
SECRETS = custom_kind("api/v1", "secrets")


@pytest.fixture
async def api() -> AsyncIterator[KubeApi]:
    server = KubeApi()
    server.register(Resource("apis/example.org/v1", "things", "Thing"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def client(api: KubeApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    connected = connect(api.kubeconfig(tmp_path))
    yield connected
    await connected.close()


def thing(name: str, **more: object) -> Manifest:
    labels = more.pop("labels", {})
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": meta, **more}


async def names(client: KubeClient, *, labels: str = "", fields: str = "", namespace: str = "") -> list[str]:
    kind = replace(THINGS, label_selector=labels, field_selector=fields)
    return [item.name for item in (await client.list(kind, namespace=namespace)).items]


async def test_a_kind_of_any_group_can_be_served(api: KubeApi, client: KubeClient) -> None:
    made = await client.create(THINGS, thing("a", spec={"x": 1}, status={"y": 2}), namespace="default")
    assert "status" not in made.content  # only its subresource changes it
    assert _generation(api) == 1
    patch = {"status": {"y": 3}, "spec": {"x": 9}}
    told = await client.patch(THINGS, "a", patch, namespace="default", subresource="status", style=PatchStyle.MERGE)
    assert (told.content["spec"], told.content["status"]) == ({"x": 1}, {"y": 3})
    assert _generation(api) == 1  # a status says nothing new of what is wanted
    await client.patch(THINGS, "a", {"spec": {"x": 2}}, namespace="default", style=PatchStyle.MERGE)
    assert _generation(api) == 2
    with pytest.raises(CloudgraftError, match="415"):
        await client.patch(THINGS, "a", {"spec": {}}, namespace="default", style=PatchStyle.STRATEGIC)
    with pytest.raises(AlreadyExistsError):
        await client.create(THINGS, thing("a"), namespace="default")
    with pytest.raises(NotFoundError):
        await client.list(custom_kind("apis/example.org/v2", "things"))


def _generation(api: KubeApi) -> int:
    return int((api.store.find("things", "a", "default") or {})["metadata"]["generation"])


async def test_a_definition_makes_a_kind(client: KubeClient) -> None:
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    spec = {
        "group": "more.example.org",
        "scope": "Cluster",
        "names": {"plural": "wholes", "kind": "Whole"},
        "versions": [version],
    }
    definitions = custom_kind("apis/apiextensions.k8s.io/v1", "customresourcedefinitions")
    await client.create(definitions, {"metadata": {"name": "wholes.more.example.org"}, "spec": spec})
    wholes = custom_kind("apis/more.example.org/v1", "wholes")
    manifest = {"apiVersion": "more.example.org/v1", "kind": "Whole", "metadata": {"name": "w"}}
    assert (await client.create(wholes, manifest)).namespace == ""


async def test_selectors_choose_by_labels_and_fields(api: KubeApi, client: KubeClient) -> None:
    for name, labels in (("a", {"tier": "x"}), ("b", {"tier": "y", "old": ""}), ("c", {})):
        api.store.create("things", "default", dict(thing(name, labels=labels)))
    assert await names(client, labels="tier=x") == ["a"]
    assert await names(client, labels="tier!=x") == ["b", "c"]
    assert await names(client, labels="tier in (x, y),!old") == ["a"]
    assert await names(client, labels="tier notin (x)") == ["b", "c"]
    assert await names(client, labels="tier") == ["a", "b"]
    assert await names(client, fields="metadata.name=b") == ["b"]
    assert await names(client, namespace="kube-system") == []
    for wrong in ({"labels": "a b"}, {"fields": "spec.x=1"}, {"fields": "x"}):
        with pytest.raises(InvalidArgumentError):
            await names(client, **wrong)


async def test_a_watch_with_a_selector_reports_what_comes_and_goes(api: KubeApi, client: KubeClient) -> None:
    kind = replace(THINGS, label_selector="in=yes")
    version = (await client.list(kind)).version
    key = ("things", "default", "a")
    api.store.create("things", "default", dict(thing("a")))
    for labels in ({"in": "yes"}, {"in": "yes", "more": "1"}, dict[str, str]()):
        api.store.patch(key, partial(_labelled, labels))
    told: list[ChangeType] = []
    async with asyncio.timeout(20), aclosing(client.watch(kind, version=version)) as changes:
        async for change in changes:
            told.append(change.type)
            if change.type is ChangeType.DELETED:
                break
    assert told == [ChangeType.ADDED, ChangeType.MODIFIED, ChangeType.DELETED]


def _labelled(labels: dict[str, str], old: Json) -> Json:
    return {**old, "metadata": {**old["metadata"], "labels": labels}}


async def test_finalizers_hold_what_is_deleted(api: KubeApi, client: KubeClient) -> None:
    made: Json = dict(thing("a"))
    made["metadata"]["finalizers"] = ["x/y"]
    await client.create(THINGS, made, namespace="default")
    await client.delete(THINGS, "a", namespace="default")
    assert (await client.get(THINGS, "a", namespace="default")).deleting
    more = {"metadata": {"finalizers": ["x/y", "x/z"]}}
    with pytest.raises(InvalidArgumentError, match="finalizers"):
        await client.patch(THINGS, "a", more, namespace="default", style=PatchStyle.MERGE)
    none: Json = {"metadata": {"finalizers": []}}
    await client.patch(THINGS, "a", none, namespace="default", style=PatchStyle.MERGE)
    assert api.store.find("things", "a", "default") is None


async def test_a_change_to_an_old_version_is_a_conflict(client: KubeClient) -> None:
    made = await client.create(THINGS, thing("a"), namespace="default")
    await client.patch(THINGS, "a", {"spec": {"x": 1}}, namespace="default", style=PatchStyle.MERGE)
    late = {"metadata": {"resourceVersion": made.version}, "spec": {"x": 2}}
    with pytest.raises(ConflictError):
        await client.patch(THINGS, "a", late, namespace="default", style=PatchStyle.MERGE)


async def test_json_patches_add_replace_test_and_remove(client: KubeClient) -> None:
    await client.create(THINGS, thing("a", spec={"list": [1], "x": 1}), namespace="default")
    operations: list[Manifest] = [
        {"op": "test", "path": "/spec/x", "value": 1},
        {"op": "replace", "path": "/spec/x", "value": 2},
        {"op": "add", "path": "/spec/list/-", "value": 2},
        {"op": "remove", "path": "/spec/list/0"},
        {"op": "add", "path": "/spec/a~1b", "value": 3},
    ]
    told = await client.patch(THINGS, "a", operations, namespace="default", style=PatchStyle.JSON)
    assert told.content["spec"] == {"list": [2], "x": 2, "a/b": 3}
    with pytest.raises(InvalidArgumentError):
        await client.patch(THINGS, "a", operations, namespace="default", style=PatchStyle.JSON)


async def test_a_namespace_must_exist_and_takes_all_with_it(api: KubeApi, client: KubeClient) -> None:
    with pytest.raises(NotFoundError):
        await client.create(THINGS, thing("a"), namespace="new")
    await client.create(SPACES, {"metadata": {"name": "new"}})
    held: Json = dict(thing("held"))
    held["metadata"]["finalizers"] = ["x/y"]
    for manifest in (thing("a"), held):
        await client.create(THINGS, manifest, namespace="new")
    await client.delete(SPACES, "new")
    assert await names(client, namespace="new") == ["held"]
    with pytest.raises(PermissionDeniedError, match="being terminated"):
        await client.create(THINGS, thing("b"), namespace="new")
    none: Json = {"metadata": {"finalizers": []}}
    await client.patch(THINGS, "held", none, namespace="new", style=PatchStyle.MERGE)
    assert api.store.find("namespaces", "new") is None


@pytest.mark.parametrize(
    "meta", [{"name": "Upper"}, {"name": "a", "labels": {"k": "a b"}}, {"name": "a", "labels": {"k": "x" * 64}}, {}]
)
async def test_names_and_labels_that_are_not_allowed_are_refused(client: KubeClient, meta: Json) -> None:
    with pytest.raises(InvalidArgumentError):
        await client.create(THINGS, {**thing("x"), "metadata": meta}, namespace="default")


async def test_what_is_sent_as_text_is_kept_as_bytes(client: KubeClient) -> None:
    data = {"a": base64.b64encode(b"1").decode()}
    await client.create(
        SECRETS, {"metadata": {"name": "s"}, "data": data, "stringData": {"b": "2"}}, namespace="default"
    )
    assert (await client.get(SECRET_CONTENTS, "s", namespace="default")).data == {"a": b"1", "b": b"2"}


async def test_users_differ_in_what_they_may_do(api: KubeApi, tmp_path: Path) -> None:
    reader = api.users.add(User("reader", denied={("create", "things")}, namespaces=frozenset({"default"})))
    client = connect(api.kubeconfig(tmp_path, user=reader, name="reader"))
    assert await names(client, namespace="default") == []
    with pytest.raises(PermissionDeniedError, match="create things"):
        await client.create(THINGS, thing("a"), namespace="default")
    with pytest.raises(PermissionDeniedError):
        await names(client)
    assert not await client.may(Right(verb="create", resource="things", group="example.org", namespace="default"))
    assert {request.user for request in api.requests} == {"reader"}
    reader.token = "another"
    with pytest.raises(AuthenticationError):
        await names(client, namespace="default")
    await client.close()


async def test_an_account_gets_in_by_its_token_where_a_binding_lets_it(
    api: KubeApi, client: KubeClient, tmp_path: Path
) -> None:
    api.store.create("serviceaccounts", "default", {"metadata": {"name": "guest"}})
    tokens = custom_kind("api/v1", "serviceaccounts/guest/token")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    made: Json = dict((await client.create(tokens, request, namespace="default")).content)
    config = tmp_path / "guest.kubeconfig"
    config.write_text(api.kubeconfig_text(User("guest", made["status"]["token"])))
    guest = connect(config)
    with pytest.raises(PermissionDeniedError):
        await names(guest, namespace="default")
    subject = {"kind": "ServiceAccount", "name": "guest", "namespace": "default"}
    api.store.create("rolebindings", "default", {"metadata": {"name": "b"}, "subjects": [subject]})
    assert await names(guest, namespace="default") == []
    with pytest.raises(PermissionDeniedError):
        await names(guest, namespace="kube-system")
    api.store.delete(("serviceaccounts", "default", "guest"), {})
    with pytest.raises(AuthenticationError):
        await names(guest, namespace="default")
    await guest.close()


async def test_several_servers_with_tls_of_their_own_run_at_a_time(tmp_path: Path) -> None:
    servers = []
    for number in range(2):
        directory = tmp_path / str(number)
        directory.mkdir()
        servers.append(KubeApi.secure(directory))
        servers[-1].start()
    networks = AllowedNetworks.of(["127.0.0.0/8"])
    first, second = [await connect_foreign(one.kubeconfig_text(), name="it", networks=networks) for one in servers]
    await first.create(SPACES, {"metadata": {"name": "only-here"}})
    assert len((await first.list(SPACES)).items) == len((await second.list(SPACES)).items) + 1
    for client, server in ((first, servers[0]), (second, servers[1])):
        await client.close()
        server.stop()


def test_a_plural_of_two_groups_is_named_in_full() -> None:
    resources = Resources()
    resources.add(Resource("apis/resource.k8s.io/v1", "resourceslices", "ResourceSlice", namespaced=False))
    with pytest.raises(KeyError):
        resources.named("resourceslices")
    assert resources.named("resourceslices.resource.k8s.io").group == "resource.k8s.io"
