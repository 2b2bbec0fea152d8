"""Machine classes and Secrets that are objects of a cluster, over real HTTP."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cloudgraft.config.sections.dock import Dock
from cloudgraft.dock.classes.feed import ClassFeed
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.objects import MACHINE_CLASSES, SECRET_CONTENTS, SECRETS
from cloudgraft.sdk.errors import NotFoundError, PreconditionError, UnavailableError
from cloudgraft.sdk.secrecy import redacted
from tests.conditions import until
from tests.kube_api import KubeApi

ACME = Key(kind="AcmeMachineClass", api_version="machine.sapcloud.io/v1alpha1")
SECRET = "correct-horse-battery"
HERE = "machines"
DOCK = Dock.model_validate({"kubernetes": {"namespace": HERE}})


def add_class(api: KubeApi, name: str = "small", *, namespace: str = HERE, **more: Any) -> None:
    api.store.create(
        "machineclasses",
        namespace,
        {
            "metadata": {"name": name, "managedFields": [{"manager": "x"}]},
            "provider": "Acme",
            "providerSpec": {"size": "s"},
            "nodeTemplate": {"capacity": {"cpu": 2}},
            "credentialsSecretRef": {"name": "cloud", "namespace": namespace},
            "secretRef": {"name": name, "namespace": namespace},
            **more,
        },
    )


def add_secret(api: KubeApi, name: str, *, namespace: str = HERE, **data: str) -> None:
    api.store.create("secrets", namespace, {"metadata": {"name": name}, "stringData": data})


def change(api: KubeApi, plural: str, name: str, **new: object) -> None:
    api.store.patch((plural, HERE, name), lambda old: {**old, **new}, status_only=False)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
async def store(api: KubeApi, client: KubeClient) -> AsyncIterator[MachineClasses]:
    add_class(api)
    add_secret(api, "small", userData="boot", token="none")
    add_secret(api, "cloud", token=SECRET)
    feed = ClassFeed(DOCK, client=client, every=60)
    async with feed.running():
        await until(lambda: len(feed.store.classes()) == 1)
        yield feed.store


async def test_a_class_of_the_cluster_is_of_the_kind_that_its_provider_says(store: MachineClasses) -> None:
    found = store.get("small", ACME)
    assert (found.provider_spec, found.namespace, found.secret) == ({"size": "s"}, HERE, "cloud")
    assert '"kind":"MachineClass"' in found.json
    assert "managedFields" not in found.json
    secret = store.secret(found)
    assert secret is not None
    assert secret.data == {"userData": b"boot", "token": SECRET.encode()}  # the credentials lie over the rest
    assert redacted(SECRET) == "[secret]"


async def test_what_is_changed_there_arrives_by_watches_that_go_on(api: KubeApi, store: MachineClasses) -> None:
    changes: list[tuple[object, ...]] = []
    store.on_changed(lambda *told: changes.append(told))
    before = store.ref("small", ACME)
    change(api, "machineclasses", "small", providerSpec={"size": "m"})
    await until(lambda: store.get("small", ACME).provider_spec == {"size": "m"})
    api.sever()
    change(api, "secrets", "cloud", data={"token": encoded("another-long-secret")})
    await until(lambda: store.ref("small", ACME).secret_revision > before.secret_revision)
    assert changes == [(ACME, ["small"], []), (ACME, [], ["cloud"])]


async def test_changes_that_drivers_cannot_see_are_not_announced(api: KubeApi, store: MachineClasses) -> None:
    before = store.ref("small", ACME)
    change(api, "machineclasses", "small", metadata={**_metadata(api), "finalizers": ["x"]})
    add_class(api, "later", secretRef=None)
    await until(lambda: _has(store, "later"))
    assert store.ref("small", ACME) == before


async def test_case_36_other_namespaces_are_neither_read_nor_reached(
    api: KubeApi, store: MachineClasses, caplog: pytest.LogCaptureFixture
) -> None:
    add_class(api, "foreign", namespace="elsewhere")
    add_class(api, "thief", secretRef={"name": "admin", "namespace": "kube-system"})
    await until(lambda: len(store.problems()) == 1)
    words = "machine class thief in the namespace machines: it names a secret of the namespace 'kube-system'"
    assert store.problems()[0].startswith(words)
    for name in ("foreign", "thief"):
        with pytest.raises(NotFoundError):
            store.get(name, ACME)
    watched = [request for request in api.requests if request.plural in {"machineclasses", "secrets"}]
    assert {request.namespace for request in watched} == {HERE}


async def test_case_39_a_class_or_secret_that_is_deleted_is_kept_for_machines_that_live(
    api: KubeApi, store: MachineClasses
) -> None:
    api.store.delete(("secrets", HERE, "cloud"), {})
    await until(lambda: store.classes() == [])
    secret = store.secret(store.get("small", ACME))
    assert secret is not None
    assert secret.data["token"] == SECRET.encode()
    with pytest.raises(PreconditionError, match="there is no secret cloud"):
        store.check_create("small", ACME)
    add_secret(api, "cloud", token=SECRET)
    await until(lambda: len(store.classes()) == 1)
    change(api, "machineclasses", "small", metadata={**_metadata(api), "finalizers": ["machine.sapcloud.io/x"]})
    api.store.delete(("machineclasses", HERE, "small"), {})
    await until(lambda: store.classes() == [])
    with pytest.raises(PreconditionError, match="it is being deleted"):
        store.check_create("small", ACME)
    assert store.get("small", ACME).provider_spec == {"size": "s"}


def _metadata(api: KubeApi) -> dict[str, Any]:
    found = api.store.find("machineclasses", "small", HERE)
    assert found is not None
    return dict(found["metadata"])


async def test_while_the_cluster_is_away_all_stays_and_before_it_was_read_nothing_is_denied(
    api: KubeApi, client: KubeClient, store: MachineClasses
) -> None:
    api.stop()
    assert store.get("small", ACME).name == "small"
    feed = ClassFeed(DOCK, client=client, every=60)
    async with feed.running():
        with pytest.raises(UnavailableError, match=r"still being read \(dock.kubernetes\)"):
            feed.store.get("small", ACME)
        api.start()
        await until(lambda: len(feed.store.classes()) == 1)


async def test_case_40_errors_about_cluster_objects_hold_no_secret(
    api: KubeApi, client: KubeClient, store: MachineClasses, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "cloudgraft"):
        add_class(api, "wordy", secretRef=None, providerSpec={"adminPassword": "a-password-in-a-spec"})
        change(api, "secrets", "cloud", data={"token": encoded("another-long-secret")})
        await until(lambda: _has(store, "wordy"))
    listing = await client.list(SECRET_CONTENTS, namespace=HERE)
    shown = f"{listing!r} {await client.list(MACHINE_CLASSES, namespace=HERE)!r} {caplog.text}"
    assert not [word for word in (SECRET, encoded(SECRET), "another-long-secret", "in-a-spec") if word in shown]
    assert redacted("a-password-in-a-spec") == "[secret]"


def _has(store: MachineClasses, name: str) -> bool:
    return any(found.name == name for found in store.classes())


async def test_the_two_ways_of_reading_secrets_are_two(api: KubeApi, client: KubeClient) -> None:
    """Who only needs to know that a Secret is there does not get what it holds."""
    add_secret(api, "cloud", token=SECRET)
    (bare,) = (await client.list(SECRETS, namespace=HERE)).items
    (whole,) = (await client.list(SECRET_CONTENTS, namespace=HERE)).items
    assert not hasattr(bare, "data")
    assert whole.data == {"token": SECRET.encode()}
    assert (await client.get(SECRET_CONTENTS, "cloud", namespace=HERE)) == whole


def test_classes_of_a_cluster_need_a_way_to_it() -> None:
    with pytest.raises(PreconditionError, match=r"dock\.kubernetes needs the section kubernetes"):
        ClassFeed(DOCK)
