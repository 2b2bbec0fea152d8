"""The fake Liqo plays what the real one does, on commands misbehaves, and leaves nothing behind."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.demo.fake_liqo import guard_names
from cloudgraft.demo.fake_liqo.words import FOREIGN_CLUSTERS, SECRETS, SLICES
from cloudgraft.kube.objects import PatchStyle
from cloudgraft.sdk.errors import InvalidArgumentError, PermissionDeniedError
from e2e.scripted_liqo import JsonScript, install
from tests.conditions import until
from tests.demo.fake_liqo.fakeliqo_world import HOME, REMOTE, LiqoWorld, conditions, liqo_world

# The tests of the driver play with it as well: those are in `make test`.
pytestmark = pytest.mark.thorough

A, B = "cluster-a", "cluster-b"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[LiqoWorld]:
    async with liqo_world(tmp_path, A, B) as made:
        yield made


async def test_a_slice_becomes_a_node_exactly_as_liqo_makes_it(world: LiqoWorld) -> None:
    world.peer(A)
    world.ask("s1", A, cpu="2", memory="3Gi")
    await until(lambda: world.readiness("s1") == "True")
    node = world.node("s1") or {}
    assert "providerID" not in node["spec"]  # Liqo sets none
    assert node["metadata"]["labels"]["liqo.io/type"] == "virtual-node"
    assert node["metadata"]["labels"][REMOTE] == A
    await until(lambda: len((world.node("s1") or {})["spec"]["taints"]) == 1)
    taint = {"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}
    assert (world.node("s1") or {})["spec"]["taints"] == [taint]
    granted = {"cpu": "2", "memory": "3Gi", "pods": "110", "ephemeral-storage": "20Gi"}  # with defaults
    assert node["status"]["capacity"] == node["status"]["allocatable"] == granted
    copy = world.apis[A].store.find("resourceslices", "s1", f"liqo-tenant-{HOME}") or {}
    assert copy["metadata"]["labels"][REMOTE] == copy["metadata"]["labels"]["liqo.io/originID"] == HOME
    assert copy["spec"]["consumerClusterID"] == HOME
    assert world.apis[B].store.items("resourceslices") == []
    virtual = world.home.find("virtualnodes", "s1", f"liqo-tenant-{A}") or {}
    assert virtual["spec"]["resourceQuota"]["hard"] == granted
    await until(lambda: ((world.home.find("foreignclusters", A) or {}).get("status") or {}).get("role") == "Provider")


async def test_a_slice_that_is_deleted_takes_everything_with_it(world: LiqoWorld) -> None:
    world.peer(A)
    world.fake.script.say(delays={"delete": 3600})
    for name in ("s1", "s2"):
        world.ask(name, A, cpu="1")
    await until(lambda: world.readiness("s1") == world.readiness("s2") == "True")
    world.give_back("s1", A)
    await until(lambda: world.home.find("resourceslices", "s1", f"liqo-tenant-{A}") is None)
    assert world.node("s1") is not None  # it is being emptied: a slice that is gone is no node that is gone
    world.fake.script.say(delays={"delete": 0})
    await until(lambda: world.nothing_left("s1", A))
    there = world.apis[A].store
    assert [each["metadata"]["name"] for each in there.items("resourceslices")] == ["s2"]
    await until(lambda: [each["metadata"]["name"].rpartition("-")[0] for each in there.items("quotas")] == ["s2"])
    assert world.readiness("s2") == "True"


async def test_the_provider_denies_or_grants_less_as_scripted(world: LiqoWorld) -> None:
    world.peer(A)
    world.fake.script.say(slice_name="no", deny="Full", deny_message="come back later")
    world.fake.script.say(slice_name="who", deny_authentication=True)
    world.fake.script.say(slice_name="less", grant={"cpu": "1"})
    for name in ("no", "who", "less"):
        world.ask(name, A, cpu="4")
    await until(lambda: world.condition("no", A, "Resources").get("status") == "Denied")
    denied = world.condition("no", A, "Resources")
    assert (denied["reason"], denied["message"]) == ("Full", "come back later")
    await until(lambda: world.condition("who", A, "Authentication").get("status") == "Denied")
    await until(lambda: world.readiness("less") == "True")
    assert (world.node("less") or {})["status"]["capacity"]["cpu"] == "1"
    assert world.node("no") is None
    assert world.node("who") is None


async def test_a_tenant_that_is_cordoned_gets_nothing_new(world: LiqoWorld) -> None:
    world.peer(A)
    world.ask("before", A, cpu="1")
    await until(lambda: world.readiness("before") == "True")
    key = ("tenants", f"liqo-tenant-{HOME}", HOME)
    world.apis[A].store.patch(key, lambda old: {**old, "spec": {**old["spec"], "tenantCondition": "Cordoned"}})
    world.ask("after", A, cpu="1")
    await until(lambda: world.condition("after", A, "Resources").get("status") == "Denied")
    assert world.condition("before", A, "Resources")["status"] == "Accepted"


async def test_garbage_for_a_kubeconfig_carries_nothing(world: LiqoWorld) -> None:
    world.peer(A, kubeconfig="clusters: [1")
    world.peer(B)
    world.ask("s1", A, cpu="1")
    world.ask("s2", B, cpu="1")
    await until(lambda: world.readiness("s2") == "True")
    assert world.condition("s1", A, "Authentication") == {}
    world.give_back("s1", A)
    await until(lambda: world.nothing_left("s1", A))


async def test_without_rights_at_the_provider_nothing_is_carried(world: LiqoWorld) -> None:
    world.peer(A)
    world.apis[A].store.delete(("rolebindings", f"liqo-tenant-{HOME}", "guest"), {})
    world.ask("s1", A, cpu="1")
    await until(lambda: any(request.user.endswith(":guest") for request in world.apis[A].requests))
    assert world.apis[A].store.items("resourceslices") == []


async def test_a_provider_that_dies_makes_its_nodes_not_ready_and_holds_its_slices(world: LiqoWorld) -> None:
    """Liqo waits for it, unless a person says that it never comes back."""
    world.peer(A)
    world.ask("s1", A, cpu="1")
    await until(lambda: world.readiness("s1") == "True")
    world.apis[A].stop()
    await until(lambda: world.readiness("s1") == "Unknown")
    world.give_back("s1", A)
    mark = {"metadata": {"annotations": {"liqo.io/foreign-cluster-permanently-unreachable": "true"}}}
    assert world.home.find("resourceslices", "s1", f"liqo-tenant-{A}") is not None
    await world.clients[HOME].patch(FOREIGN_CLUSTERS, A, mark, style=PatchStyle.MERGE)
    await until(lambda: world.nothing_left("s1", A))


async def test_credentials_that_are_replaced_are_not_seen_until_liqo_looks_again(world: LiqoWorld) -> None:
    """As with Liqo 1.2: it looks when it sees that there are none, and nothing but a label makes it look."""
    world.peer(A)
    world.ask("s1", A, cpu="1")
    await until(lambda: world.readiness("s1") == "True")
    client, space = world.clients[HOME], f"liqo-tenant-{A}"
    account = world.apis[A].users.of_account(f"liqo-tenant-{HOME}", "guest")
    text = base64.b64encode(world.apis[A].kubeconfig_text(account).encode()).decode()
    await client.patch(SECRETS, "cplane", {"data": {"kubeconfig": text}}, namespace=space, style=PatchStyle.MERGE)
    await until(lambda: world.readiness("s1") == "Unknown")
    await _identify(world, None)
    await until(lambda: not conditions(world.home.find("foreignclusters", A)))
    await _identify(world, "ControlPlane")
    await until(
        lambda: [each["status"] for each in conditions(world.home.find("foreignclusters", A))] == ["Established"]
    )
    await until(lambda: world.readiness("s1") == "True")


async def _identify(world: LiqoWorld, value: str | None) -> None:
    client, labels = world.clients[HOME], {"metadata": {"labels": {"liqo.io/identity-type": value}}}
    await client.patch(SECRETS, "cplane", labels, namespace=f"liqo-tenant-{A}", style=PatchStyle.MERGE)
    await client.patch(FOREIGN_CLUSTERS, A, {"metadata": {"labels": {"look": str(value)}}}, style=PatchStyle.MERGE)


async def test_a_map_of_namespaces_goes_along_and_holds_the_identity_too(world: LiqoWorld) -> None:
    world.peer(A)
    world.ask("s1", A, cpu="1")
    there = world.apis[A].store
    await until(lambda: there.find("namespacemaps", A, f"liqo-tenant-{HOME}") is not None)
    assert there.find("tenants", HOME, f"liqo-tenant-{HOME}") is not None
    world.give_back("s1", A)
    await until(lambda: not there.items("namespacemaps") and not world.home.items("namespacemaps"))
    await until(lambda: world.nothing_left("s1", A))


async def test_commands_come_from_a_file_or_an_object_too(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"clusters": {A: {"dead": True}}, "slices": {"slow": {"neverReady": True}}}))
    async with liqo_world(tmp_path, A, B, script_file=path) as world:
        world.peer(A)
        world.peer(B)
        world.ask("s1", A, cpu="1")
        world.ask("slow", B, cpu="1")
        await until(lambda: world.readiness("slow") == "Unknown")
        assert world.condition("s1", A, "Resources") == {}
        path.unlink()
        data = {"script.json": json.dumps({"default": {"grant": {"pods": "7"}}})}
        world.home.create("configmaps", "liqo", {"metadata": {"name": "fakeliqo"}, "data": data})
        await until(lambda: world.readiness("s1") == world.readiness("slow") == "True")
        assert (world.node("s1") or {})["status"]["capacity"]["pods"] == "7"


async def test_a_network_that_is_asked_for_must_be_connected_before_a_node_is_ready(world: LiqoWorld) -> None:
    world.peer(A)
    space, labels = f"liqo-tenant-{A}", {REMOTE: A}
    spec = {"remote": {"cidr": {"pod": ["10.9.0.0/16"]}}}
    world.home.create("configurations", space, {"metadata": {"name": A, "labels": labels}, "spec": spec})
    world.ask("s1", A, cpu="1")
    await until(lambda: world.readiness("s1") == "Unknown")
    world.home.create("gatewayclients", space, {"metadata": {"name": A, "labels": labels}, "spec": {}})
    key = {"metadata": {"name": A, "labels": labels}, "spec": {"publicKey": "x"}}
    world.home.create("publickeies", space, key)
    await until(lambda: world.readiness("s1") == "True")
    (connection,) = world.home.items("connections")
    assert connection["status"]["value"] == "Connected"
    client = world.home.find("gatewayclients", A, space) or {}
    assert world.home.find("secrets", client["status"]["secretRef"]["name"], space)
    server = {"metadata": {"name": "s", "labels": labels}, "spec": {"endpoint": {"port": 51840, "nodePort": 30742}}}
    world.home.create("gatewayservers", space, server)
    await until(lambda: "status" in (world.home.find("gatewayservers", "s", space) or {}))
    told = (world.home.find("gatewayservers", "s", space) or {})["status"]["endpoint"]
    assert (told["port"], told["protocol"]) == (30742, "UDP")


async def test_the_identity_secret_stays_until_its_slices_are_gone(world: LiqoWorld) -> None:
    """So that a peering that is taken down in the wrong order does not leave copies at the provider."""
    world.peer(A)
    world.ask("s1", A, cpu="1")
    await until(lambda: world.readiness("s1") == "True")
    world.home.delete(("secrets", f"liqo-tenant-{A}", "cplane"), {})
    world.give_back("s1", A)
    await until(lambda: world.home.find("secrets", "cplane", f"liqo-tenant-{A}") is None)
    assert world.apis[A].store.items("resourceslices") == []


async def test_the_secret_of_an_account_is_filled_with_a_token_that_works(world: LiqoWorld) -> None:
    world.peer(A)
    space, there = f"liqo-tenant-{HOME}", world.apis[A].store
    annotations = {"kubernetes.io/service-account.name": "guest"}
    made = {"metadata": {"name": "t", "annotations": annotations}, "type": "kubernetes.io/service-account-token"}
    there.create("secrets", space, made)
    await until(lambda: "token" in ((there.find("secrets", "t", space) or {}).get("data") or {}))


async def test_one_name_is_one_node(world: LiqoWorld) -> None:
    guard_names(world.apis[HOME])
    world.peer(A)
    world.peer(B)
    world.ask("s1", A, cpu="1")
    again = {"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": "s1"}}
    with pytest.raises(PermissionDeniedError, match="admission webhook"):
        await world.clients[HOME].create(SLICES, again, namespace=f"liqo-tenant-{B}")


async def test_the_definitions_make_a_server_serve_the_kinds(world: LiqoWorld) -> None:
    await install(world.clients[HOME])
    made = world.home.items("customresourcedefinitions")
    assert "publickeies.networking.liqo.io" in {each["metadata"]["name"] for each in made}
    assert all(conditions(each) for each in made)


@pytest.mark.parametrize(
    "text", ["[", "[]", '{"x": {}}', '{"default": {"x": 1}}', '{"default": {"delays": {"x": 1}}}', '{"default": 1}']
)
def test_a_script_that_makes_no_sense_is_refused_and_changes_nothing(text: str) -> None:
    script = JsonScript('{"default": {"deny": "Full"}}')
    with pytest.raises(InvalidArgumentError):
        script.load(text)
    assert script.rules("any").deny == "Full"


def test_the_narrowest_rule_counts() -> None:
    script = JsonScript()
    script.say(delays={"node": 1.0, "ready": 1.0})
    script.say(cluster=A, delays={"node": 2.0}, deny="Full")
    script.say(slice_name="s", deny="")
    assert script.rules(A).deny == "Full"
    assert script.rules(A, "s").deny == ""
    assert script.rules(A, "s").delays == {"node": 2.0, "ready": 1.0}
    assert JsonScript(script.text()).rules(A, "s") == script.rules(A, "s")
