"""The client against a small API server over real HTTP, through a real kubeconfig file."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.kube import api as api_module
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect
from cloudgraft.kube.errors import ExpiredError, refusal
from cloudgraft.kube.objects import (
    BOUND_PODS,
    LEASES,
    NODES,
    ChangeType,
    ContainerRef,
    Node,
    PatchStyle,
    Pod,
)
from cloudgraft.sdk.common.extras import install_command
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    RateLimitedError,
    Retry,
    UnavailableError,
)
from cloudgraft.sdk.types import Taint
from tests.conditions import until
from tests.kube_api import TOKEN, KubeApi, Request


def node(name: str, **spec: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


def pod(name: str, **spec: object) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def any_call(_: Request) -> bool:
    return True


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_a_list_follows_all_pages(api: KubeApi, client: KubeClient) -> None:
    api.page_limit = 3
    for number in range(8):
        api.store.create("nodes", "", node(f"n{number}"))
    listing = await client.list(NODES)
    assert [item.name for item in listing.items] == [f"n{number}" for number in range(8)]
    assert listing.version == str(api.store.version)


async def test_a_list_that_expires_between_two_pages_says_so(api: KubeApi, client: KubeClient) -> None:
    api.page_limit = 1
    for number in range(2):
        api.store.create("nodes", "", node(f"n{number}"))
    api.refuse(lambda request: "continue" in request.query, 410, {"kind": "Status", "reason": "Expired"})
    with pytest.raises(ExpiredError):
        await client.list(NODES)


async def test_a_node_is_read_as_far_as_it_matters(api: KubeApi, client: KubeClient) -> None:
    manifest = node(
        "n", providerID="sim://1", unschedulable=True, taints=[{"key": "a", "value": "b", "effect": "NoExecute"}]
    )
    manifest["metadata"]["labels"] = {"pool": "x"}
    manifest["status"] = {"conditions": [{"type": "Ready", "status": "True"}], "somethingNew": {"in": ["1.99"]}}
    created = await client.create(NODES, manifest)
    assert created == Node(
        name="n",
        uid=api.store.items("nodes")[0]["metadata"]["uid"],
        provider_id="sim://1",
        labels={"pool": "x"},
        taints=(
            Taint(key="a", value="b", effect="NoExecute"),
            Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),
        ),
        ready=True,
        unschedulable=True,
        created_at=created.created_at,
    )
    assert created.created_at > 0


@pytest.mark.parametrize("status", ["False", "Unknown"])
async def test_a_node_is_ready_only_when_it_says_so(api: KubeApi, client: KubeClient, status: str) -> None:
    created = await client.create(NODES, node("n") | {"status": {"conditions": [{"type": "Ready", "status": status}]}})
    assert not created.ready
    assert not (await client.create(NODES, node("m"))).ready


async def test_only_bound_pods_are_listed(api: KubeApi, client: KubeClient) -> None:
    api.store.create("pods", "a", pod("waiting"))
    init = [{"name": "i", "image": "x"}, {"name": "s", "restartPolicy": "Always"}]
    api.store.create("pods", "b", pod("bound", nodeName="n", hostNetwork=True, initContainers=init))
    listing = await client.list(BOUND_PODS)
    assert listing.items == (
        Pod(
            name="bound",
            namespace="b",
            uid=listing.items[0].uid,
            node="n",
            host_network=True,
            containers=(ContainerRef(name="c", image="i"),),
            init_containers=(ContainerRef(name="i", image="x"), ContainerRef(name="s", is_sidecar=True)),
        ),
    )


async def test_a_list_can_be_of_one_namespace(api: KubeApi, client: KubeClient) -> None:
    for namespace in ("default", "kube-system"):
        manifest = {"metadata": {"name": "x"}, "spec": {"renewTime": "2026-01-02T03:04:05.000006Z"}}
        await client.create(LEASES, manifest, namespace=namespace)
    (lease,) = (await client.list(LEASES, namespace="kube-system")).items
    assert (lease.namespace, lease.renewed_at) == ("kube-system", 1767323045.000006)


async def test_a_watch_yields_changes_after_a_version(api: KubeApi, client: KubeClient) -> None:
    api.store.create("nodes", "", node("before"))
    version = (await client.list(NODES)).version
    created = api.store.create("nodes", "", node("after"))
    api.store.delete(("nodes", "", "before"), {})
    async with aclosing(client.watch(NODES, version=version)) as changes:
        told = [(await anext(changes)) for _ in range(2)]
    assert [(change.type, change.object and change.object.name) for change in told] == [
        (ChangeType.ADDED, "after"),
        (ChangeType.DELETED, "before"),
    ]
    assert [change.version for change in told] == [created["metadata"]["resourceVersion"], str(api.store.version)]


async def test_a_watch_ends_with_a_bookmark_from_which_the_next_goes_on(api: KubeApi, client: KubeClient) -> None:
    """The object in a bookmark is a stump: a pod without containers."""
    version = (await client.list(BOUND_PODS)).version
    async with aclosing(client.watch(BOUND_PODS, version=version)) as changes:
        api.store.create("nodes", "", node("n"))  # moves the version on, and is nothing for this watch
        reading = asyncio.ensure_future(anext(changes))
        await until(lambda: bool(api.watches("pods")))
        api.end_watches()
        bookmark = await reading
        assert [change async for change in changes] == []
    assert (bookmark.type, bookmark.object) == (ChangeType.BOOKMARK, None)
    assert int(bookmark.version) > int(version)


async def test_a_watch_from_a_forgotten_version_says_so(api: KubeApi, client: KubeClient) -> None:
    version = (await client.list(NODES)).version
    api.store.create("nodes", "", node("n"))
    api.store.compact()
    with pytest.raises(ExpiredError):
        await anext(client.watch(NODES, version=version))
    api.refuse(any_call, 410, {"kind": "Status", "code": 410, "reason": "Gone"})  # the other way to say it
    with pytest.raises(ExpiredError):
        await anext(client.watch(NODES, version=version))


# -- writing -----------------------------------------------------------------------------------------------------------


async def test_a_name_is_given_once(client: KubeClient) -> None:
    await client.create(NODES, node("n"))
    with pytest.raises(AlreadyExistsError, match="already exists"):
        await client.create(NODES, node("n"))


async def test_a_strategic_patch_of_the_status_leaves_all_else(api: KubeApi, client: KubeClient) -> None:
    await client.create(
        NODES, node("n", providerID="p") | {"status": {"conditions": [{"type": "Other", "status": "True"}]}}
    )
    patch = {"spec": {"providerID": "q"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    patched = await client.patch(NODES, "n", patch, subresource="status")
    assert (patched.ready, patched.provider_id) == (True, "p")
    stored = api.store.find("nodes", "n")
    assert stored is not None
    assert [condition["type"] for condition in stored["status"]["conditions"]] == ["Other", "Ready"]


async def test_a_json_patch_changes_nothing_when_its_test_fails(api: KubeApi, client: KubeClient) -> None:
    await client.create(NODES, node("n", taints=[{"key": "mine", "effect": "NoSchedule"}]))
    remove = {"op": "remove", "path": "/spec/taints/0"}
    test = {"op": "test", "path": "/spec/taints/0/key", "value": "other"}
    with pytest.raises(InvalidArgumentError):
        await client.patch(NODES, "n", [test, remove], style=PatchStyle.JSON)
    patched = await client.patch(NODES, "n", [{**test, "value": "mine"}, remove], style=PatchStyle.JSON)
    assert [taint.key for taint in patched.taints] == ["node.kubernetes.io/not-ready"]


async def test_what_is_not_there_cannot_be_changed_or_deleted(client: KubeClient) -> None:
    with pytest.raises(NotFoundError):
        await client.patch(NODES, "n", {})
    with pytest.raises(NotFoundError):
        await client.delete(NODES, "n")


async def test_with_a_uid_only_that_very_object_is_deleted(api: KubeApi, client: KubeClient) -> None:
    created = await client.create(NODES, node("n"))
    with pytest.raises(ConflictError):
        await client.delete(NODES, "n", uid="that of an earlier one")
    await client.delete(NODES, "n", uid=created.uid)
    assert api.store.items("nodes") == []


async def test_a_bound_pod_gets_the_grace_it_is_given(api: KubeApi, client: KubeClient) -> None:
    api.store.create("pods", "ns", pod("p", nodeName="n"))
    await client.delete(BOUND_PODS, "p", namespace="ns")
    (waiting,) = (await client.list(BOUND_PODS)).items
    assert waiting.deleting
    await client.delete(BOUND_PODS, "p", namespace="ns", grace_seconds=0)
    assert (await client.list(BOUND_PODS)).items == ()


async def test_a_hostile_name_stays_one_part_of_the_path(api: KubeApi, client: KubeClient) -> None:
    with pytest.raises(NotFoundError):
        await client.delete(NODES, "../namespaces/default/pods/p")
    (request,) = api.requests
    assert (request.plural, request.name) == ("nodes", "../namespaces/default/pods/p")


# -- trouble -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", InvalidArgumentError),
        (401, "Unauthorized", AuthenticationError),
        (403, "Forbidden", PermissionDeniedError),
        (404, "NotFound", NotFoundError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (410, "Expired", ExpiredError),
        (422, "Invalid", InvalidArgumentError),
        (429, "TooManyRequests", RateLimitedError),
        (500, "InternalError", InternalError),
        (503, "ServiceUnavailable", UnavailableError),
        (504, "Timeout", DeadlineError),
    ],
)
def test_every_refusal_has_its_error(code: int, reason: str, expected: type[CloudgraftError]) -> None:
    body = json.dumps({"kind": "Status", "reason": reason, "message": "because"}).encode()
    error = refusal("cannot list nodes", code, body)
    assert type(error) is expected
    assert str(error) == f"cannot list nodes: the Kubernetes API answered {code}: because"


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_a_create_answered_with_5xx_may_have_been_done(api: KubeApi, client: KubeClient, code: int) -> None:
    api.refuse(any_call, code, b"a page of a proxy")
    with pytest.raises(CloudgraftError) as told:
        await client.create(NODES, {"metadata": {"name": "a"}})
    assert told.value.retry is Retry.SETTLE_FIRST


async def test_a_create_whose_answer_is_unreadable_may_have_been_done(api: KubeApi, client: KubeClient) -> None:
    api.refuse(any_call, 200, b"hello")
    with pytest.raises(DeadlineError):
        await client.create(NODES, {"metadata": {"name": "a"}})


async def test_a_refusal_has_a_retry_after(api: KubeApi, client: KubeClient) -> None:
    api.refuse(any_call, 429, {"kind": "Status", "details": {"retryAfterSeconds": 7}})
    with pytest.raises(RateLimitedError) as told:
        await client.list(NODES)
    assert told.value.retry_after == 7
    api.refuse(any_call, 429, b"slow down", headers={"Retry-After": "3"})
    with pytest.raises(RateLimitedError, match="slow down") as told:
        await client.list(NODES)
    assert told.value.retry_after == 3


async def test_the_page_of_a_proxy_is_shortened_in_the_error(api: KubeApi, client: KubeClient) -> None:
    api.refuse(any_call, 502, b"<html>" + b"x" * 100_000)
    with pytest.raises(UnavailableError, match="<html>") as told:
        await client.list(NODES)
    assert len(str(told.value)) <= 500


@pytest.mark.parametrize("body", [b"hello", b"[]", b'{"items": 3}', b'{"kind": "NodeList"}'])
async def test_an_answer_of_something_else_is_not_taken_for_a_list(
    api: KubeApi, client: KubeClient, body: bytes
) -> None:
    api.refuse(any_call, 200, body)
    with pytest.raises(UnavailableError, match="not one of a Kubernetes API"):
        await client.list(NODES)


@pytest.mark.parametrize("code", [200, 500])
async def test_an_answer_without_end_does_not_fill_the_memory(
    api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(api_module, "_MOST_BYTES", 1000)
    client = connect(api.kubeconfig(tmp_path))
    api.refuse(any_call, code, b" " * 1001)
    with pytest.raises(DeadlineError, match="more than") as told:
        await client.list(NODES)
    assert client.raised(told.value)
    await client.close()


async def test_a_list_without_end_does_not_fill_the_memory(
    api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "_MOST_LISTED", 10_000)
    client = connect(api.kubeconfig(tmp_path))
    api.refuse(any_call, 200, {"metadata": {"resourceVersion": "1", "continue": "on"}, "items": []}, times=1_000_000)
    with pytest.raises(DeadlineError, match="the list has more than"):
        await client.list(NODES)
    await client.close()


async def test_a_watch_that_talks_nonsense_is_trouble(api: KubeApi, client: KubeClient) -> None:
    api.refuse(any_call, 200, b'{"type": "EXPLODED", "object": {"metadata": {}}}\n')
    with pytest.raises(UnavailableError, match="not one of a Kubernetes API"):
        await anext(client.watch(NODES, version="1"))


async def test_a_server_that_is_not_there_has_done_nothing(api: KubeApi, client: KubeClient) -> None:
    api.stop()
    with pytest.raises(UnavailableError, match="cannot be reached"):
        await client.create(NODES, node("n"))
    with pytest.raises(UnavailableError, match="cannot be reached"):
        await anext(client.watch(NODES, version="1"))


async def test_a_server_that_hangs_leaves_the_outcome_unknown(api: KubeApi, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        path = api.kubeconfig(tmp_path)
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        path.write_text(json.dumps(config))
        client = connect(path, timeout=0.05)
        with pytest.raises(DeadlineError, match="in time"):
            await client.create(NODES, node("n"))
        with pytest.raises(DeadlineError, match="in time"):
            await anext(client.watch(NODES, version="1"))
        await client.close()


async def test_a_connection_that_breaks_leaves_the_outcome_unknown(api: KubeApi, client: KubeClient) -> None:
    version = (await client.list(NODES)).version
    reading = asyncio.ensure_future(anext(client.watch(NODES, version=version)))
    await until(lambda: bool(api.watches("nodes")))
    api.sever()
    with pytest.raises(DeadlineError, match="broke"):
        await reading


# -- the way in --------------------------------------------------------------------------------------------------------


async def test_the_token_is_sent_and_never_shown(api: KubeApi, tmp_path: Path) -> None:
    path = api.kubeconfig(tmp_path)
    path.write_text(path.read_text().replace(TOKEN, "my-password"))
    client = connect(path)
    with pytest.raises(AuthenticationError) as told:
        await client.list(NODES)
    assert "my-password" not in f"{told.value} {told.value!r} {client!r}"
    await client.close()


async def test_a_context_without_a_user_is_anonymous(api: KubeApi, tmp_path: Path) -> None:
    path = api.kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    del config["contexts"][0]["context"]["user"]
    path.write_text(json.dumps(config))
    client = connect(path)
    with pytest.raises(AuthenticationError):
        await client.list(NODES)
    await client.close()


_CLUSTER = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
_CONTEXT = {"name": "x", "context": {"cluster": "c", "user": "u"}}
_USER: dict[str, Any] = {"name": "u", "user": {"token": "secret-token"}}
_GOOD: dict[str, Any] = {"clusters": [_CLUSTER], "contexts": [_CONTEXT], "users": [_USER], "current-context": "x"}


@pytest.mark.parametrize(
    "config",
    [
        "",
        "just a text",
        "- a\n- list",
        "users: [{name: u, user: {token: secret-token\n",
        {key: value for key, value in _GOOD.items() if key != "clusters"},
        {key: value for key, value in _GOOD.items() if key != "current-context"},
        _GOOD | {"current-context": "other"},
        _GOOD | {"users": []},
        _GOOD | {"users": [{"name": "u", "user": {"token": ["secret-token"]}}]},
        _GOOD | {"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority": "none.crt"}}]},
        _GOOD | {"users": [{"name": "u", "user": {"client-certificate": "kubeconfig", "client-key": "kubeconfig"}}]},
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused_by_name_and_without_its_secrets(
    tmp_path: Path, config: str | dict[str, Any]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(InvalidArgumentError) as told:
        connect(path)
    assert str(path) in str(told.value)
    assert "secret-token" not in str(told.value)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"no-such-file.*not found"):
        connect(tmp_path / "no-such-file")


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightkube", None)
    with pytest.raises(PreconditionError) as told:
        connect(tmp_path / "kubeconfig")
    assert f"needs lightkube, which is not installed: {install_command('kubernetes')}" in str(told.value)


def test_nothing_of_the_extra_is_imported_before_a_client_is_made() -> None:
    modules = "cloudgraft.simcloud.kubelets.kubelet, cloudgraft.kube.connect, cloudgraft.kube.watched"
    found = "sorted({'lightkube', 'httpx2', 'msgspec'} & set(sys.modules))"
    program = f"import sys, {modules}; print({found})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
