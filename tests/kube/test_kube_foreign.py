"""Kubeconfigs that somebody else wrote, and objects of any kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect_foreign
from cloudgraft.kube.objects import custom_kind
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, UnavailableError
from cloudgraft.testing.kubeapi import KubeApi

MAPS = custom_kind("api/v1", "configmaps")


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
        (_config({"token": "secret-of-theirs"}, server="garbage"), "no https address"),
        (_config({"token": "secret-of-theirs"}, server="https://h:99999"), "cannot be used: Port out of range"),
        (_config({"token": "secret-of-theirs"}, server="https://h/\x01"), "cannot be used"),
        ("[" * 2000, "nested too deeply"),
    ],
)
def test_what_would_reach_into_this_computer_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why) as told:
        connect_foreign(text, name="the kubeconfig of turin")
    assert "secret-of-theirs" not in told.value.message


async def test_a_foreign_kubeconfig_works_and_says_which_failures_were_its_own(
    api: KubeApi, client: KubeClient
) -> None:
    foreign = connect_foreign(api.kubeconfig_text(), name="it")
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
