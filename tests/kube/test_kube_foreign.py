"""Kubeconfigs that somebody else wrote, and objects of any kind."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect_foreign
from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.kube.objects import custom_kind
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, NotFoundError, UnavailableError
from tests.conditions import until
from tests.kube_api import KubeApi

MAPS = custom_kind("api/v1", "configmaps")
LOOPBACK = AllowedNetworks.of(["127.0.0.0/8"])
BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{one}: &a{one} {{<<: [{', '.join([f'*a{one - 1}'] * 9)}]}}\n" for one in range(1, 12)
)


def _config(user: dict[str, Any], **cluster: Any) -> str:
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": "https://far.example", **cluster}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- a\n- list\n", "it is not a mapping"),
        ("token: 'secret-of-theirs\n", "is not valid YAML"),
        (_config({"tokenFile": "/etc/shadow"}), "it has tokenFile"),
        (_config({"client-certificate": "/etc/x", "client-key": "/etc/y"}), "it has client-certificate"),
        (_config({"exec": {"apiVersion": "v1", "command": "rm"}}), "it has exec"),
        (_config({"token": "secret-of-theirs"}, **{"certificate-authority": "/etc/ca"}), "certificate-authority"),
        (_config({"token": "secret-of-theirs"}, **{"insecure-skip-tls-verify": True}), "insecure-skip-tls-verify"),
        (_config({"token": "secret-of-theirs"}, server="http://far.example"), "no https address"),
        (_config({"token": "secret-of-theirs"}, server="http://127.0.0.1:8080"), "no https address"),
        (_config({"token": "secret-of-theirs"}, server="https://127.0.0.1:6443"), "not in an allowed network"),
        (_config({"token": "secret-of-theirs"}, server="https://[::ffff:127.0.0.1]:6443"), "not in an allowed network"),
        (_config({"token": "secret-of-theirs"}, server="https://169.254.169.254"), "not in an allowed network"),
        (_config({"token": "secret-of-theirs"}, server="https://2130706433"), "not in an allowed network"),
        (_config({"token": "secret-of-theirs"}, server="https://0x7f.1"), "not in an allowed network"),
        (
            _config({"token": "secret-of-theirs"}, server="https://u:secret-of-theirs@far.example"),
            "a user or a password",
        ),
        (_config({"token": "secret-of-theirs"}, server="https://far.example/admin/delete"), "more than an address"),
        (
            _config({"token": "secret-of-theirs"}, server="https://far.example/k8s/clusters/../../x"),
            "more than an addr",
        ),
        (_config({"token": "secret-of-theirs"}, server="https://far.example?x=y"), "more than an address"),
        (_config({"auth-provider": {"name": "gcp", "config": {"cmd-path": "/bin/sh"}}}), "it has auth-provider"),
        ("a: &a {x: 1}\nb: *a\n", "anchors or aliases"),
        (_config({"token": "secret-of-theirs"}, server="garbage"), "no https address"),
        (_config({"token": "secret-of-theirs"}, server="https://h:99999"), "cannot be used: Port out of range"),
        (_config({"token": "secret-of-theirs"}, server="https://h/\x01"), "cannot be used"),
        ("[" * 2000, "nested deeper than"),
    ],
)
async def test_what_would_reach_into_this_computer_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why) as told:
        await connect_foreign(text, name="the kubeconfig of turin")
    assert "secret-of-theirs" not in told.value.message


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[KubeApi]:
    """The API of somebody else."""
    server = KubeApi.secure(tmp_path)
    server.start()
    yield server
    server.stop()


async def test_a_foreign_kubeconfig_works_and_says_which_failures_were_its_own(
    remote: KubeApi, client: KubeClient
) -> None:
    foreign = await connect_foreign(remote.kubeconfig_text(), name="it", networks=LOOPBACK)
    with pytest.raises(NotFoundError) as told:
        await foreign.get(MAPS, "none", namespace="default")
    assert foreign.raised(told.value)
    assert not client.raised(told.value)
    await foreign.close()
    with pytest.raises(UnavailableError, match="closed meanwhile"):
        await foreign.list(MAPS)


async def test_an_object_of_any_kind_is_read_whole(client: KubeClient) -> None:
    labels, annotations = {"a": "b"}, {"c": "d e"}
    meta = {"name": "x", "labels": labels, "annotations": annotations}
    made = await client.create(MAPS, {"metadata": meta, "data": {"k": "v"}}, namespace="default")
    assert (made.labels, made.annotations, made.content["data"]) == (labels, annotations, {"k": "v"})
    assert made.created_at > 0
    selected = custom_kind("api/v1", "configmaps", label_selector="a=b,!z", field_selector="metadata.name=x")
    assert [one.name for one in (await client.list(selected)).items] == ["x"]
    none = custom_kind("api/v1", "configmaps", label_selector="a=other")
    assert (await client.list(none)).items == ()


def _named(remote: KubeApi, host: str) -> str:
    return remote.kubeconfig_text().replace("127.0.0.1", host)


async def test_a_name_that_leads_to_this_host_is_not_connected_to(remote: KubeApi) -> None:
    """The name looks harmless when it is checked; its address is checked when the connection is made."""
    foreign = await connect_foreign(_named(remote, "localhost"), name="it")
    with pytest.raises(UnavailableError, match="not in an allowed network"):
        await foreign.list(MAPS)
    await foreign.close()
    assert remote.requests == []


async def test_the_address_that_was_checked_is_the_one_that_is_used(
    remote: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that resolves to another address a moment later, as in DNS rebinding, is not resolved again."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str, *args: Any, **more: Any) -> Any:
        if host != "far.example":
            return real(host, *args, **more)
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    networks = AllowedNetworks.of(["127.0.0.1/32"])
    foreign = await connect_foreign(_named(remote, "far.example"), name="it", networks=networks)
    with pytest.raises(UnavailableError, match=r"certificate|mismatch"):  # connected, and TLS asks for the name
        await foreign.list(MAPS)
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.2 .* not in an allowed network"):
        await foreign.list(MAPS)
    await foreign.close()
    assert len(asked) == 2


async def test_names_that_never_resolve_take_no_threads_of_others(
    remote: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> list[Any]:
        asked.set()
        answered.wait(30)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    foreign = await connect_foreign(_named(remote, "never.example"), name="it")
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    calls = [asyncio.create_task(foreign.list(MAPS)) for _ in range(50)]
    try:
        await until(asked.is_set, what="names are being resolved")
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "others go on") == "others go on"
    finally:
        answered.set()
        await asyncio.gather(*calls, return_exceptions=True)
        await foreign.close()


async def test_a_redirect_is_not_followed(remote: KubeApi) -> None:
    remote.refuse(lambda _: True, 302, headers={"Location": "https://127.0.0.1:1/secret"})
    foreign = await connect_foreign(remote.kubeconfig_text(), name="it", networks=LOOPBACK)
    with pytest.raises(CloudgraftError):
        await foreign.list(MAPS)
    await foreign.close()
    assert len(remote.requests) == 1


async def test_no_proxy_of_the_environment_stands_between(remote: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would resolve the name by itself."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    foreign = await connect_foreign(remote.kubeconfig_text(), name="it", networks=LOOPBACK)
    assert (await foreign.list(MAPS)).items == ()
    await foreign.close()


async def test_only_what_was_checked_is_handed_on(remote: KubeApi) -> None:
    config = json.loads(remote.kubeconfig_text())
    config["users"].append({"name": "other", "user": {"exec": {"apiVersion": "v1", "command": "rm"}}})
    config["clusters"][0]["cluster"]["proxy-url"] = "http://169.254.169.254"
    foreign = await connect_foreign(json.dumps(config), name="it", networks=LOOPBACK)
    assert "exec" not in foreign.kubeconfig
    assert "proxy-url" not in foreign.kubeconfig
    again = await connect_foreign(foreign.kubeconfig, name="it", networks=LOOPBACK)
    assert (await again.list(MAPS)).items == ()
    for client in (foreign, again):
        await client.close()


async def test_the_event_loop_goes_on_while_a_kubeconfig_is_read() -> None:
    """A bomb is refused; a text that takes as long as one may is read in a thread."""
    turns, worst = 0, "[" + "a: 1, " * 10_000 + "]"

    async def heartbeat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(heartbeat())
    for text in (BOMB, worst):
        with pytest.raises(InvalidArgumentError):
            await connect_foreign(text, name="it")
    beating.cancel()
    assert turns > 10
