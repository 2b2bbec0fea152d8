"""Groups that operators declare over REST: by the rules of the file, kept in the journal, edited by one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.app.joining_wiring import ClusterLink
from cloudgraft.app.reload import FileComposer, Reloader, WatchedFile
from cloudgraft.config import load
from cloudgraft.engine.groups.desired import DesiredState
from cloudgraft.nodemanager.declared_groups import Declarations
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.store.journal import JournalUnavailableError
from cloudgraft.store.records import Change
from tests.engine.engine_rig import Rig
from tests.nodemanager.managed import Managed, managed

FILE = """
cluster: test
clouds: {sim: {driver: simulated}}
nodeGroups: [{id: g, cloud: sim, maxSize: 10, machine: {shape: small}}]
"""
GROUP = {"id": "new", "cloud": "sim", "maxSize": 4, "machine": {"shape": "small"}}


class FileRig(Rig):
    """An engine over what a file says."""

    def desired_state(self) -> DesiredState:
        return desired_state(load(self.directory / "cloudgraft.yaml"))


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Managed]:
    (tmp_path / "cloudgraft.yaml").write_text(FILE)
    config = load(tmp_path / "cloudgraft.yaml")
    async with managed(FileRig(tmp_path), tmp_path) as found:
        composer = FileComposer(config, ClusterLink(config), None)
        found.rig.engine.composer = composer
        found.manager.declarations = Declarations(found.rig.engine, composer)
        yield found


async def test_a_group_is_declared_edited_and_removed(there: Managed) -> None:
    async with there.client() as client, there.fronted() as front:
        made = await client.request("POST", "/v1/nodegroups", json=GROUP)
        tag = made.headers["etag"]
        assert (made.status, f'"{made.json["revision"]}"') == (201, tag)
        await front.refresh()
        assert [one.id for one in await front.node_groups()] == ["g", "new"]
        read = await client.request("GET", "/v1/nodegroups/new")
        assert (read.json["source"], read.json["document"], read.headers["etag"]) == ("api", GROUP, tag)
        edited = await client.request(
            "PUT", "/v1/nodegroups/new", json={**GROUP, "maxSize": 7}, headers={"If-Match": tag}
        )
        assert edited.json["revision"] == made.json["revision"] + 1
        assert (await client.request("GET", "/v1/nodegroups/new")).json["maxSize"] == 7
        await client.request("DELETE", "/v1/nodegroups/new", headers={"If-Match": edited.headers["etag"]})
        with pytest.raises(NotFoundError):
            await client.request("GET", "/v1/nodegroups/new")
        assert (await there.rig.engine.journal.load()).declared == []


async def test_of_two_editors_one_gets_a_conflict(there: Managed) -> None:
    async with there.client() as client:
        await client.request("POST", "/v1/nodegroups", json=GROUP)
        for method, body in (("PUT", {**GROUP, "maxSize": 9}), ("DELETE", None)):
            with pytest.raises(ConflictError, match="is at revision"):
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


WRONG: Sequence[tuple[Mapping[str, Any], str]] = (
    ({"cloud": "nowhere"}, r"nodeGroups\[1\].cloud: there is no cloud nowhere"),
    ({"maxSize": -1}, "maxSize"),
    ({"machine": {"shap": "small"}}, "shap"),
    ({"id": "other"}, "a group's id never changes"),
    ({"zones": ["a"]}, "declare one group for each"),
    ({"surprise": 1}, "surprise"),
    ({"template": {"labels": [[[[]]]]}}, "labels"),
)


async def test_what_breaks_the_rules_of_the_file_is_refused_and_changes_nothing(there: Managed) -> None:
    async with there.client() as client:
        made = await client.request("POST", "/v1/nodegroups", json=GROUP)
        for change, told in WRONG:
            with pytest.raises(InvalidArgumentError, match=told):
                await client.request("PUT", "/v1/nodegroups/new", json={**GROUP, **change})
            read = await client.request("GET", "/v1/nodegroups/new")
            assert read.headers["etag"] == made.headers["etag"]


async def test_only_operators_declare_groups(there: Managed) -> None:
    async with there.client("front") as client:
        for method, path in (("POST", ""), ("PUT", "/new"), ("DELETE", "/new")):
            with pytest.raises(PermissionDeniedError):
                await client.request(method, f"/v1/nodegroups{path}", json=GROUP)


async def test_who_saw_a_group_that_was_removed_does_not_edit_the_one_that_took_its_id(there: Managed) -> None:
    async with there.client() as client:
        seen = await client.request("POST", "/v1/nodegroups", json=GROUP)
        await client.request("DELETE", "/v1/nodegroups/new")
        there.rig.clock.advance(1)
        await client.request("POST", "/v1/nodegroups", json=GROUP)
        headers = {"If-Match": seen.headers["etag"]}
        with pytest.raises(ConflictError, match="is at revision"):
            await client.request("PUT", "/v1/nodegroups/new", json={**GROUP, "maxSize": 9}, headers=headers)


def _reloader(there: Managed) -> Reloader:
    path, composer = there.rig.directory / "cloudgraft.yaml", there.rig.engine.composer
    assert isinstance(composer, FileComposer)
    config = composer.config
    return Reloader(WatchedFile(path, lambda: load(path)), config, there.rig.engine, composer._link)


async def test_a_group_declared_while_the_file_is_read_again_is_not_lost_nor_is_the_file(there: Managed) -> None:
    (there.rig.directory / "cloudgraft.yaml").write_text(FILE.replace("maxSize: 10", "maxSize: 20"))
    async with there.client() as client:
        reloading = asyncio.create_task(_reloader(there).reload())
        await asyncio.gather(reloading, client.request("POST", "/v1/nodegroups", json=GROUP))
        await client.request("POST", "/v1/refresh")
        items = (await client.request("GET", "/v1/nodegroups")).json["items"]
    assert [(one["id"], one["maxSize"], one["isDraining"]) for one in items] == [("g", 20, False), ("new", 4, False)]


async def test_a_group_that_another_leader_removed_does_not_come_back_with_the_lead(there: Managed) -> None:
    engine = there.rig.engine
    async with there.client() as client:
        await client.request("POST", "/v1/nodegroups", json=GROUP)
    await engine.journal.write(Change(undeclared=["new"]))  # as another process does, behind this one's back
    await engine._lead(1)
    assert [group.id for group in engine._desired_state.groups] == ["g"]


async def test_a_declaration_that_the_file_has_taken_over_can_be_removed_and_the_group_stays(there: Managed) -> None:
    path, engine = there.rig.directory / "cloudgraft.yaml", there.rig.engine
    async with there.client() as client:
        await client.request("POST", "/v1/nodegroups", json=GROUP)
        await client.request("POST", "/v1/nodegroups/new:increase", json={"delta": 1})
        taken_over = FILE.replace(
            "nodeGroups: [", "nodeGroups: [{id: new, cloud: sim, maxSize: 9, machine: {shape: small}}, "
        )
        path.write_text(taken_over)
        reloader = _reloader(there)
        await reloader.reload()
        assert "new" in reloader.problem  # while it runs, a file that takes the id is refused
        assert isinstance(engine.composer, FileComposer)
        engine.composer.config = load(path)  # but it may be there at a start
        await engine._lead(1)
        read = (await client.request("GET", "/v1/nodegroups/new")).json
        assert (read["source"], read["maxSize"]) == ("file", 9)
        with pytest.raises(PreconditionError, match="is in the configuration file"):
            await client.request("PUT", "/v1/nodegroups/new", json=GROUP)
        await reloader.reload()
        assert reloader.problem == ""
        await client.request("DELETE", "/v1/nodegroups/new")
        assert engine.fleet.declared == {}
        assert (await client.request("GET", "/v1/nodegroups/new")).json["targetSize"] == 1
        with pytest.raises(PreconditionError, match="is in the configuration file"):
            await client.request("DELETE", "/v1/nodegroups/new")


async def test_a_declaration_of_unknown_outcome_is_taken_back_and_can_be_made_again(there: Managed) -> None:
    engine, write = there.rig.engine, there.rig.engine.journal.write

    async def broken(change: Change) -> None:
        await write(change)
        raise JournalUnavailableError("the connection broke", is_ambiguous=True)

    async with there.client() as client:
        engine.journal.write = broken  # type: ignore[method-assign]  # it breaks after the commit
        with pytest.raises(UnavailableError):
            await client.request("POST", "/v1/nodegroups", json=GROUP)
        engine.journal.write = write  # type: ignore[method-assign]  # and is well again
        await client.request("POST", "/v1/refresh")
        assert engine.fleet.declared == {}
        assert (await client.request("POST", "/v1/nodegroups", json=GROUP)).status == 201
        assert list(engine.fleet.declared) == ["new"]
