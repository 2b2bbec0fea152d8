"""Bootstrap tokens: one per machine, short-lived, taken back, with no right to read anybody's secrets."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.joining.tokens import Token, Tokens
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.objects import SECRETS
from cloudgraft.sdk.errors import DeadlineError, PermissionDeniedError, PreconditionError
from cloudgraft.sdk.secrecy import redacted
from tests.kube_api import KubeApi, Request

GROUPS = ("system:bootstrappers:kubeadm:default-node-token",)
TTL = timedelta(minutes=30)


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def tokens(client: KubeClient, clock: Clock | None = None) -> Tokens:
    return Tokens(client, cluster="prod", clock=clock or Clock())


async def mint(minter: Tokens, name: str = "m1") -> Token:
    return await minter.mint(name, ttl=TTL, groups=GROUPS)


def names(api: KubeApi) -> list[str]:
    return [item["metadata"]["name"] for item in api.store.items("secrets", "kube-system")]


async def test_a_token_is_the_secret_that_kubernetes_expects(api: KubeApi, client: KubeClient) -> None:
    token = await mint(tokens(client))
    (secret,) = api.store.items("secrets", "kube-system")
    data = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert secret["type"] == "bootstrap.kubernetes.io/token"
    assert secret["metadata"]["name"] == f"bootstrap-token-{token.id}"
    assert secret["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "cloudgraft"}
    assert data == {
        "description": "made by cloudgraft for machine m1 of cluster prod",
        "token-id": token.id,
        "token-secret": token.secret,
        "expiration": "2027-01-15T08:30:00Z",
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": GROUPS[0],
    }
    assert str(token) == f"{token.id}.{token.secret}"
    assert (len(token.id), len(token.secret), str(token).replace(".", "").isalnum()) == (6, 16, True)


async def test_a_token_is_shown_nowhere_while_it_is_good(client: KubeClient) -> None:
    minter = tokens(client)
    token = await mint(minter)
    assert token.secret not in f"{token!r} {redacted(str(token))}"
    await minter.settle("m1")
    assert redacted(str(token)) == str(token)  # forgotten, so that a year of machines slows nothing


async def test_a_second_try_gets_the_same_token_while_it_is_good(api: KubeApi, client: KubeClient) -> None:
    clock = Clock()
    minter = tokens(client, clock)
    first = await mint(minter)
    clock.now += 20 * 60
    assert await mint(minter) == first
    assert await mint(minter, "m2") != first
    clock.now += 3 * 60
    later = await mint(minter)
    assert (later.id != first.id, later.secret != first.secret) == (True, True)
    assert redacted(first.secret) == first.secret
    await minter.settle("m1")
    await minter.settle("m2")
    assert names(api) == []


async def test_after_a_restart_a_token_whose_secret_is_lost_is_replaced_and_all_are_taken_back(
    api: KubeApi, client: KubeClient
) -> None:
    first = await mint(tokens(client))
    minter = tokens(client)
    second = await mint(minter)
    assert second.id != first.id
    assert len(names(api)) == 2
    await minter.settle("m1")
    assert names(api) == []


async def test_a_token_is_taken_back_after_a_restart(api: KubeApi, client: KubeClient) -> None:
    await mint(tokens(client))
    await mint(tokens(client))
    await mint(tokens(client), "m2")
    await tokens(client).settle("m1")
    assert len(names(api)) == 1
    await tokens(client).settle("m1")  # NotFound is fine


async def test_the_rights_to_create_and_delete_are_enough(api: KubeApi, client: KubeClient) -> None:
    api.denied = {("get", "secrets"), ("list", "secrets"), ("watch", "secrets"), ("patch", "secrets")}
    minter = tokens(client)
    await mint(minter)
    await minter.settle("m1")
    assert {request.verb for request in api.requests} == {"create", "delete"}


async def test_a_token_that_may_not_be_made_is_refused_by_the_name_of_the_right(
    api: KubeApi, client: KubeClient
) -> None:
    api.denied = {("create", "secrets")}
    with pytest.raises(PermissionDeniedError, match="may not create secrets in the namespace kube-system"):
        await mint(tokens(client))


async def test_what_could_not_be_deleted_is_deleted_next_time(api: KubeApi, client: KubeClient) -> None:
    minter = tokens(client)
    await mint(minter)
    api.refuse(lambda request: request.method == "DELETE", 503)
    with pytest.raises(DeadlineError):
        await minter.settle("m1")
    await minter.settle("m1")
    assert names(api) == []


async def test_what_could_be_deleted_only_in_part_after_a_restart_is_deleted_next_time(
    api: KubeApi, client: KubeClient
) -> None:
    """The first one is gone by then, which must not be taken for the end of them."""
    for _ in range(3):
        await mint(tokens(client))
    minter = tokens(client)
    deletes: list[object] = []

    def is_second(request: Request) -> bool:
        if request.method == "DELETE":
            deletes.append(request)
        return request.method == "DELETE" and len(deletes) == 2

    api.refuse(is_second, 503)
    with pytest.raises(DeadlineError):
        await minter.settle("m1")
    await minter.settle("m1")
    assert names(api) == []


async def test_a_delete_whose_answer_was_lost_is_not_the_end_of_the_tokens(api: KubeApi, client: KubeClient) -> None:
    first = await mint(tokens(client))
    for _ in range(2):
        await mint(tokens(client))
    minter = tokens(client)
    api.refuse(lambda request: request.method == "DELETE", 503)
    with pytest.raises(DeadlineError):
        await minter.settle("m1")
    await client.delete(SECRETS, f"bootstrap-token-{first.id}", namespace="kube-system")
    await minter.settle("m1")
    assert names(api) == []


async def test_it_does_not_mint_for_ever(api: KubeApi, client: KubeClient, tmp_path: Path) -> None:
    for _ in range(8):
        await mint(tokens(client))
    with pytest.raises(PreconditionError, match="kubectl -n kube-system delete secret -l"):
        await mint(tokens(client))
