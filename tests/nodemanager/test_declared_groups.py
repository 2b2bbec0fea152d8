"""Groups that operators declare over REST: by the rules of the file, kept in the journal, edited by one at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.cli.declared import FileComposer
from cloudgraft.cli.engine_wiring import blueprint
from cloudgraft.cli.joining_wiring import ClusterLink
from cloudgraft.config import load
from cloudgraft.engine.blueprint import Blueprint
from cloudgraft.nodemanager.declared import Declarations
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
)
from tests.engine.rig import Rig
from tests.nodemanager.managed import Managed, managed

FILE = """
cluster: test
clouds: {sim: {driver: simulated}}
nodeGroups: [{id: g, cloud: sim, maxSize: 10, machine: {shape: small}}]
"""
GROUP = {"id": "new", "cloud": "sim", "maxSize": 4, "machine": {"shape": "small"}}


class FileRig(Rig):
    """An engine over what a file says."""

    def blueprint(self) -> Blueprint:
        return blueprint(load(self.directory / "cloudgraft.yaml"))


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Managed]:
    (tmp_path / "cloudgraft.yaml").write_text(FILE)
    config = load(tmp_path / "cloudgraft.yaml")
    async with managed(FileRig(tmp_path), tmp_path) as found:
        composer = FileComposer(config, ClusterLink(config), None)
        found.manager.declarations = Declarations(found.rig.engine, composer)
        yield found


async def test_a_group_is_declared_edited_and_removed(there: Managed) -> None:
    async with there.client() as client, there.fronted() as front:
        made = await client.request("POST", "/v1/nodegroups", json=GROUP)
        assert (made.status, made.headers["etag"], made.json["revision"]) == (201, '"1"', 1)
        await front.refresh()
        assert [one.id for one in await front.node_groups()] == ["g", "new"]
        read = await client.request("GET", "/v1/nodegroups/new")
        assert (read.json["source"], read.json["document"], read.headers["etag"]) == ("api", GROUP, '"1"')
        edited = await client.request(
            "PUT", "/v1/nodegroups/new", json={**GROUP, "maxSize": 7}, headers={"If-Match": '"1"'}
        )
        assert edited.headers["etag"] == '"2"'
        assert (await client.request("GET", "/v1/nodegroups/new")).json["maxSize"] == 7
        await client.request("DELETE", "/v1/nodegroups/new", headers={"If-Match": '"2"'})
        with pytest.raises(NotFoundError):
            await client.request("GET", "/v1/nodegroups/new")
        assert (await there.rig.engine.journal.load()).declared == []


async def test_of_two_who_edit_the_same_one_is_told(there: Managed) -> None:
    async with there.client() as client:
        await client.request("POST", "/v1/nodegroups", json=GROUP)
        for method, body in (("PUT", {**GROUP, "maxSize": 9}), ("DELETE", None)):
            with pytest.raises(ConflictError, match="revision 1"):
                await client.request(method, "/v1/nodegroups/new", json=body, headers={"If-Match": '"5"'})
        with pytest.raises(InvalidArgumentError, match="If-Match"):
            await client.request("DELETE", "/v1/nodegroups/new", headers={"If-Match": "five"})
        with pytest.raises(AlreadyExistsError):
            await client.request("POST", "/v1/nodegroups", json=GROUP)


async def test_a_group_of_the_file_is_read_only_and_one_with_machines_stays(there: Managed) -> None:
    async with there.client() as client:
        for method, body in (("PUT", {**GROUP, "id": "g"}), ("DELETE", None)):
            with pytest.raises(PreconditionError, match="is in the configuration file"):
                await client.request(method, "/v1/nodegroups/g", json=body)
        await client.request("POST", "/v1/nodegroups", json=GROUP)
        await client.request("POST", "/v1/nodegroups/new:increase", json={"delta": 1})
        with pytest.raises(PreconditionError, match="has 1 machines"):
            await client.request("DELETE", "/v1/nodegroups/new")
        with pytest.raises(NotFoundError):
            await client.request("DELETE", "/v1/nodegroups/unknown")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cloud": "nowhere"}, r"nodeGroups\[1\].cloud: there is no cloud nowhere"),
        ({"maxSize": -1}, "maxSize"),
        ({"machine": {"shap": "small"}}, "shap"),
        ({"id": "other"}, "a group's id never changes"),
        ({"zones": ["a"]}, "declare one group for each"),
        ({"surprise": 1}, "surprise"),
        ({"template": {"labels": [[[[]]]]}}, "labels"),
    ],
)
async def test_what_breaks_the_rules_of_the_file_is_refused_and_changes_nothing(
    there: Managed, change: Mapping[str, Any], told: str
) -> None:
    async with there.client() as client:
        await client.request("POST", "/v1/nodegroups", json=GROUP)
        with pytest.raises(InvalidArgumentError, match=told):
            await client.request("PUT", "/v1/nodegroups/new", json={**GROUP, **change})
        assert (await client.request("GET", "/v1/nodegroups/new")).headers["etag"] == '"1"'


async def test_only_operators_declare_groups(there: Managed) -> None:
    async with there.client("front") as client:
        for method, path in (("POST", ""), ("PUT", "/new"), ("DELETE", "/new")):
            with pytest.raises(PermissionDeniedError):
                await client.request(method, f"/v1/nodegroups{path}", json=GROUP)
