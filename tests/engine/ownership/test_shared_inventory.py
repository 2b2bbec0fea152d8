"""Two clusters, and one account of machines that both may take: each touches what it took itself (laws 4 and 11)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.engine.groups.desired import DesiredState
from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import NodeRef
from tests.drivers.static.static_machines import static_driver, switched_on
from tests.engine.scripted_cloud import Case, desired_state, group, lose_journal, stepped


def plan(account: Path, cluster: str) -> DesiredState:
    """The same group of the same machines, in whichever cluster; even with the policy that deletes orphans."""
    settings = EngineSettings(delete_orphans=True)
    return replace(desired_state({"a": static_driver(account)}, group(), settings=settings), cluster=cluster)


def places(tmp_path: Path, *names: str) -> list[Path]:
    found = [tmp_path / name for name in names]
    for place in found:
        place.mkdir()
    return found


async def running(case: Case) -> list[str]:
    return [instance.id for instance in await case.provider.instances("g")]


@pytest.mark.parametrize("other", ["other", "t"])
async def test_what_another_cluster_took_is_neither_taken_in_nor_switched_off(tmp_path: Path, other: str) -> None:
    account, one, two = places(tmp_path, "account", "one", "two")
    async with stepped(one, plan(account, "t")) as ours:
        (name,) = await ours.grow()
        (id_,) = await running(ours)
        async with stepped(two, plan(account, other)) as theirs:
            await theirs.turns(13)  # calls wait for a cloud that a namesake blocks, and not for long
            assert await running(theirs) == []
            assert await theirs.provider.target_size("g") == 0
            assert theirs.engine.workers["a"].observer.orphans == []
            with pytest.raises(InvalidArgumentError, match="no machine of ours"):
                await theirs.provider.delete_nodes("g", [NodeRef(name="n", provider_id=id_)])
            await theirs.turns(4, 2000)
            assert switched_on(account) == {"host-1": name}
        await ours.turns(2)
        assert await running(ours) == [id_]


async def test_each_of_two_clusters_has_machines_of_its_own_and_finds_them_again_without_its_journal(
    tmp_path: Path,
) -> None:
    account, one, two = places(tmp_path, "account", "one", "two")
    async with stepped(one, plan(account, "t")) as ours, stepped(two, plan(account, "other")) as theirs:
        (first,) = await ours.grow()
        (second,) = await theirs.grow()
        (id_,) = await running(theirs)
    lose_journal(two)
    async with stepped(two, plan(account, "other")) as theirs:
        await theirs.turns(3)
        assert await running(theirs) == [id_]
        assert switched_on(account) == {"host-1": first, "host-2": second}
        await theirs.provider.delete_nodes("g", [NodeRef(name="n", provider_id=id_)])
        await theirs.turns(3)
        assert switched_on(account) == {"host-1": first}
