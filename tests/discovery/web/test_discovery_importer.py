"""The proof of concept's labelled Secrets become clusters, for as long as they are there."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.discovery.importer import Importer, cluster_in
from cloudgraft.discovery.model import ClusterSpec, NetworkMode
from cloudgraft.discovery.service import Discovery
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect
from cloudgraft.kube.objects import SecretObject
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError
from cloudgraft.sdk.quantity import Quantity
from tests.conditions import until
from tests.kube_api import KubeApi

INFO: dict[str, Any] = {"resources": {"cpu": "4", "gpu": 1}, "labels": {"hasGPU": "true"}, "hasNat": True}


def add_secret(
    api: KubeApi, name: str, *, info: Any = None, kubeconfig: str = "kind: Config", label: bool = True
) -> None:
    text = info if isinstance(info, str) else json.dumps(INFO if info is None else info)
    data = {"kubeconfig": kubeconfig, "info": text}
    api.store.create(
        "secrets",
        "default",
        {
            "metadata": {"name": name, "labels": {"autoscaling": "true"} if label else {}},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        },
    )


def remove_secret(api: KubeApi, name: str) -> None:
    api.store.delete(("secrets", "default", name), {})


@pytest.fixture
async def kube(api: KubeApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    client = connect(api.kubeconfig(tmp_path))
    yield client
    await client.close()


@asynccontextmanager
async def importing(kube: KubeClient, core: Discovery) -> AsyncIterator[Importer]:
    importer = Importer(kube, "default", core)
    task = asyncio.create_task(importer.run())
    try:
        yield importer
    finally:
        task.cancel()
        await asyncio.wait({task})


async def ids(core: Discovery) -> set[str]:
    return {cluster.spec.id for cluster in await core.clusters()}


async def test_a_secret_becomes_a_cluster_with_credentials(api: KubeApi, kube: KubeClient, core: Discovery) -> None:
    add_secret(api, "turin")
    add_secret(api, "unlabelled", label=False)
    async with importing(kube, core):
        await until(lambda: has(core, "turin"))
        found = await core.cluster("turin")
        assert found.spec.capacity == {"cpu": Quantity(4), "nvidia.com/gpu": Quantity(1)}
        assert found.spec.labels["hasGPU"] == "true"
        assert found.spec.network.mode is NetworkMode.CONSUMER_GATEWAY
        assert await core.credentials("turin") == "kind: Config"
        assert await ids(core) == {"turin"}


async def has(core: Discovery, id_: str) -> bool:
    try:
        await core.credentials(id_)
    except NotFoundError:
        return False
    return True


async def lacks(core: Discovery, id_: str) -> bool:
    return id_ not in await ids(core)


async def test_bug_8_the_list_is_not_frozen_when_the_api_server_ends_the_watch(
    api: KubeApi, kube: KubeClient, core: Discovery
) -> None:
    """Bug 8 of the original: its watch was opened once; from its first end on, its list never changed again."""
    add_secret(api, "first")
    async with importing(kube, core):
        await until(lambda: has(core, "first"))
        api.end_watches()
        add_secret(api, "second")
        await until(lambda: has(core, "second"))
        api.sever()
        remove_secret(api, "first")
        await until(lambda: lacks(core, "first"))
        api.stop()
        add_secret(api, "third")
        api.store.compact()  # what happened meanwhile is forgotten: only a list tells
        api.start()
        await until(lambda: has(core, "third"))
        assert await ids(core) == {"second", "third"}


async def test_one_bad_secret_is_reported_by_name_and_the_others_are_imported(
    api: KubeApi, kube: KubeClient, core: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    add_secret(api, "bad", info="not json", kubeconfig="token: a-secret-that-nobody-sees")
    add_secret(api, "good")
    async with importing(kube, core) as importer:
        await until(lambda: has(core, "good"))
        assert importer.problems == {"bad": "its key info is not JSON"}
        told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert told == ["ignoring the Secret bad: its key info is not JSON"]
        remove_secret(api, "bad")
        add_secret(api, "bad")
        await until(lambda: has(core, "bad"))
        assert importer.problems == {}


async def test_a_secret_that_is_gone_takes_its_cluster_along_but_not_what_is_reserved_there(
    api: KubeApi, kube: KubeClient, core: Discovery
) -> None:
    add_secret(api, "turin")
    async with importing(kube, core) as importer:
        await until(lambda: has(core, "turin"))
        held = await core.reserve("turin", {"cpu": Quantity(1)}, owner="prod/m", seconds=600)
        remove_secret(api, "turin")

        async def is_cordoned() -> bool:
            return (await core.cluster("turin")).spec.cordoned

        await until(is_cordoned)
        await core.release(held.id)
        assert await importer.sync()
        assert await ids(core) == set()


async def test_a_secret_that_comes_back_uncordons_its_cluster_and_an_operators_cordon_stays(
    api: KubeApi, kube: KubeClient, core: Discovery
) -> None:
    add_secret(api, "turin")
    add_secret(api, "milan")
    async with importing(kube, core) as importer:
        await until(lambda: has(core, "milan"))
        await until(lambda: has(core, "turin"))
        await core.put_cluster(replace((await core.cluster("milan")).spec, cordoned=True))
        await core.reserve("turin", {"cpu": Quantity(1)}, owner="prod/m", seconds=600)
        remove_secret(api, "turin")
        await until(lambda: gone_from(importer, "turin"))
        await importer.sync()
        assert (await core.cluster("turin")).spec.cordoned
        add_secret(api, "turin")

        async def is_open() -> bool:
            return not (await core.cluster("turin")).spec.cordoned

        await until(is_open)
        assert (await core.cluster("milan")).spec.cordoned


def gone_from(importer: Importer, name: str) -> bool:
    return not any(secret.name == name for secret in importer._secrets.objects.values())


async def test_clusters_whose_secret_vanished_are_removed_at_start_and_others_stay(
    api: KubeApi, kube: KubeClient, core: Discovery
) -> None:
    await core.put_cluster(ClusterSpec(id="declared"))
    add_secret(api, "declared")
    add_secret(api, "old")
    async with importing(kube, core) as importer:
        await until(lambda: has(core, "old"))
        assert "declared by others" in importer.problems["declared"]
    remove_secret(api, "old")
    async with importing(kube, core):
        await until(lambda: lacks(core, "old"))
    assert await ids(core) == {"declared"}
    assert (await core.cluster("declared")).spec == ClusterSpec(id="declared")


@pytest.mark.parametrize(
    ("name", "info", "problem"),
    [
        ("Upper", INFO, "no cluster id"),
        ("a", [], "not a JSON object"),
        ("a", {"resources": []}, "resources in its key info is not a JSON object"),
        ("a", {"resources": {"cpu": 1.5}}, "neither text nor a whole number"),
        ("a", {"resources": {"cpu": True}}, "neither text nor a whole number"),
        ("a", {"resources": {"cpu": "many"}}, "not a quantity"),
        ("a", {"resources": {"cpu": "-1"}}, "negative"),
        ("a", {"resources": {"c p u": "1"}}, "breaks the rules for capacity"),
        ("a", {"labels": {"x": "a b"}}, "breaks the rules for labels"),
        ("a", {"hasNat": "yes"}, "hasNat"),
    ],
)
def test_a_secret_that_makes_no_sense_is_refused(name: str, info: Any, problem: str) -> None:
    data = {"kubeconfig": b"kind: Config", "info": json.dumps(info).encode()}
    with pytest.raises(InvalidArgumentError, match=problem):
        cluster_in(SecretObject(name=name, data=data))


def test_a_secret_without_its_keys_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no key kubeconfig"):
        cluster_in(SecretObject(name="a", data={"info": b"{}"}))
    with pytest.raises(InvalidArgumentError, match="not UTF-8"):
        cluster_in(SecretObject(name="a", data={"kubeconfig": b"\xff", "info": b"{}"}))
    with pytest.raises(InvalidArgumentError, match="no key info"):
        cluster_in(SecretObject(name="a", data={"kubeconfig": b"x"}))


async def test_the_clusters_of_another_namespace_are_left_to_its_own_importer(
    api: KubeApi, kube: KubeClient, core: Discovery
) -> None:
    """Two servers on one database may each import from a namespace, or a Kubernetes, of their own."""
    theirs = {"discovery.cloudgraft.dev/imported": "elsewhere"}
    await core.put_cluster(ClusterSpec(id="milan", labels=theirs))
    await core.put_cluster(ClusterSpec(id="rome", labels=theirs))
    add_secret(api, "turin")
    add_secret(api, "rome")
    async with importing(kube, core) as importer:
        await until(lambda: has(core, "turin"))
        await until(lambda: "rome" in importer.problems)
        assert await ids(core) == {"milan", "rome", "turin"}
        assert (await core.cluster("rome")).spec.labels == theirs
