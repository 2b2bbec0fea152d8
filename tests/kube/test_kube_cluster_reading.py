"""What is read of nodes, what may be done, and how we get in from a pod."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import pytest

from cloudgraft.certs.issue import Validity, new_authority, server_pair
from cloudgraft.kube.attempts import Attempts
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect, connect_in_cluster
from cloudgraft.kube.errors import refusal
from cloudgraft.kube.objects import LEASES, NODES, SECRETS, Node
from cloudgraft.kube.rights import RIGHTS, Feature, Right
from cloudgraft.kube.watched import Watched
from cloudgraft.sdk.errors import AuthenticationError, NotFoundError, PermissionDeniedError, PreconditionError
from cloudgraft.sdk.quantity import Quantity
from tests.conditions import until
from tests.kube.needed_rights import rights_of
from tests.kube_api import TOKEN, KubeApi

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}


# -- nodes -------------------------------------------------------------------------------------------------------------


async def test_a_node_is_read_with_its_identity_and_capacity(client: KubeClient) -> None:
    status = {
        "conditions": [{"type": "DiskPressure", "status": "False"}, READY],
        "addresses": [
            {"type": "InternalIP", "address": "10.0.0.5"},
            {"type": "Hostname", "address": "n"},
        ],
        "capacity": {"cpu": "4", "memory": "8Gi", "odd": "not a quantity"},
        "allocatable": {"cpu": "3900m"},
        "nodeInfo": {"machineID": "0123", "systemUUID": "ABCD", "kubeletVersion": "v1.34.0"},
    }
    node = await client.create(NODES, {"metadata": {"name": "n"}, "status": status})
    assert (node.ready, node.ready_since) == (True, 1_767_225_610.0)
    assert node.addresses == ("10.0.0.5", "n")
    assert (node.machine_id, node.system_uuid) == ("0123", "ABCD")
    assert node.capacity == {"cpu": Quantity(4), "memory": Quantity("8Gi")}
    assert node.allocatable == {"cpu": Quantity("3.9")}
    assert await client.get(NODES, "n") == node
    with pytest.raises(NotFoundError, match="cannot read nodes/m"):
        await client.get(NODES, "m")


async def test_a_node_without_a_status_is_still_one(client: KubeClient) -> None:
    node = await client.create(NODES, {"metadata": {"name": "n"}})
    assert (node.ready, node.ready_since, node.addresses, node.capacity) == (False, 0.0, (), {})


async def test_heartbeats_are_no_news_but_their_version_is_kept(api: KubeApi, client: KubeClient) -> None:
    """Thousands of nodes say every few minutes that nothing has changed."""
    heard = 0

    def count() -> None:
        nonlocal heard
        heard += 1

    api.store.create("nodes", "", {"metadata": {"name": "n"}, "status": {"conditions": [READY]}})
    watched: Watched[Node] = Watched(client, NODES, on_change=count)
    assert not watched.heard_within(1000)
    running = asyncio.create_task(watched.run())
    await until(lambda: watched.is_synced)
    before = watched.objects["/n"]
    beat = {"status": {"conditions": [READY | {"lastHeartbeatTime": "2026-01-01T00:05:00Z"}]}}
    after = await client.patch(NODES, "n", beat, subresource="status")
    await until(lambda: watched.objects["/n"].version == after.version)
    assert before == after
    assert before.version != after.version
    assert heard == 1
    assert watched.heard_within(1000)
    assert await asyncio.to_thread(watched.heard_within, 1000)  # a scrape of the metrics has no event loop
    assert not watched.heard_within(0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


# -- secrets -----------------------------------------------------------------------------------------------------------


async def test_what_a_secret_holds_is_not_read_back(client: KubeClient) -> None:
    manifest = {"metadata": {"name": "s"}, "stringData": {"password": "swordfish"}}
    created = await client.create(SECRETS, manifest, namespace="kube-system")
    assert created.name == "s"
    assert "swordfish" not in repr(created)
    await client.delete(SECRETS, "s", namespace="kube-system")


# -- rights ------------------------------------------------------------------------------------------------------------


async def test_it_can_ask_what_it_may_do(api: KubeApi, client: KubeClient) -> None:
    api.denied = {("patch", "nodes")}
    assert await client.may(Right(verb="list", resource="nodes"))
    assert not await client.may(Right(verb="patch", resource="nodes"))
    assert await client.release() == "v1.34.1"


async def test_a_refusal_names_the_right_that_is_missing(api: KubeApi, client: KubeClient) -> None:
    api.denied = {("list", "nodes"), ("create", "secrets"), ("list", "leases")}
    with pytest.raises(PermissionDeniedError, match=r"the account may not list nodes: grant it .*rbac\.md"):
        await client.list(NODES)
    with pytest.raises(PermissionDeniedError, match="may not create secrets in the namespace kube-system: grant it"):
        await client.create(SECRETS, {"metadata": {"name": "s"}}, namespace="kube-system")
    with pytest.raises(PermissionDeniedError, match=r"may not list leases\.coordination\.k8s\.io: grant it"):
        await client.list(LEASES)


def test_what_admission_refuses_is_not_taken_for_a_missing_right() -> None:
    body = json.dumps({"message": "secrets is forbidden: exceeded quota"}).encode()
    error = refusal("cannot create", 403, body, right=Right(verb="create", resource="secrets"))
    assert str(error) == "cannot create: the Kubernetes API answered 403: secrets is forbidden: exceeded quota"


def test_rights_are_few() -> None:
    """Neither reading secrets, nor anything on all resources, nor more than is done."""
    everything = {right for rights in RIGHTS.values() for right in rights}
    assert {right.verb for right in everything if right.resource == "secrets"} == {"create", "delete"}
    assert all(right.namespace == "kube-system" for right in everything if right.resource == "secrets")
    assert not any("*" in f"{right.verb}{right.resource}{right.group}" for right in everything)
    assert set(RIGHTS) == set(Feature)
    assert rights_of([Feature.PROVIDER_ID, Feature.LABELS]) == (Right(verb="patch", resource="nodes"),)


# -- from a pod --------------------------------------------------------------------------------------------------------


@pytest.fixture
def account(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A service account as a pod has it, and what its API server shows."""
    ca = new_authority(Validity.days(2))
    pair = server_pair(ca, [ip_address("127.0.0.1")], Validity.days(1))
    (tmp_path / "server.pem").write_bytes(pair.key_pem + pair.certificate_pem)
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "ca.crt").write_bytes(ca.certificate_pem)
    (directory / "token").write_text(TOKEN)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    return directory, context


@pytest.fixture
def tls_api(account: tuple[Path, ssl.SSLContext]) -> Iterator[KubeApi]:
    server = KubeApi(account[1])
    server.start()
    yield server
    server.stop()


async def test_a_pod_gets_in_by_its_account_and_keeps_up_with_its_token(
    tls_api: KubeApi, account: tuple[Path, ssl.SSLContext]
) -> None:
    directory = account[0]
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(tls_api.port)}
    client = connect_in_cluster(directory, environment=environment)
    assert (await client.list(NODES)).items == ()
    assert client.server == f"https://127.0.0.1:{tls_api.port}"
    assert client.authority == (directory / "ca.crt").read_text()
    tls_api.token = "rotated-token"
    with pytest.raises(AuthenticationError):
        await client.list(NODES)
    (directory / "token").write_text("rotated-token\n")
    assert (await client.list(NODES)).items == ()
    (directory / "token").unlink()
    tls_api.token = "rotated again"
    with pytest.raises(AuthenticationError, match="cannot get the credentials"):
        await client.list(NODES)
    await client.close()


@pytest.mark.parametrize(
    ("environment", "told"),
    [({}, "KUBERNETES_SERVICE_HOST"), ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, "token")],
)
def test_outside_of_a_pod_it_says_so(tmp_path: Path, environment: dict[str, str], told: str) -> None:
    if not environment:
        (tmp_path / "token").write_text("t")
        (tmp_path / "ca.crt").write_text("c")
    with pytest.raises(PreconditionError, match=rf"works only in a pod.*{told}.*kubeconfig"):
        connect_in_cluster(tmp_path, environment=environment)


async def test_the_token_file_of_a_kubeconfig_is_beside_it(api: KubeApi, tmp_path: Path) -> None:
    path = api.kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"tokenFile": "my-token"}
    path.write_text(json.dumps(config))
    (tmp_path / "my-token").write_text(TOKEN)
    client = connect(path)
    assert (await client.list(NODES)).items == ()
    assert client.authority == ""
    await client.close()


# -- attempts ----------------------------------------------------------------------------------------------------------


def test_what_fails_is_tried_again_later_and_later() -> None:
    attempts = Attempts()
    assert attempts.is_due("a", 0.0)
    assert [attempts.failed("a", 0.0) for _ in range(3)] == [1, 2, 3]
    assert not attempts.is_due("a", 3.9)
    assert attempts.is_due("a", 4.0)
    attempts.succeeded("a", 10.0)
    assert not attempts.is_due("a", 10.9)
    attempts.keep_only(["b"])
    assert attempts.is_due("a", 10.0)
