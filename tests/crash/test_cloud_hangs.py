"""A cloud that hangs: no call of the autoscaler waits for it, other clouds go on, and afterwards all comes right."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cloudgraft.sdk.driver import Idempotency
from tests.conditions import until
from tests.crash.hanging import as_node, scene
from tests.crash.setting import Variant


@pytest.mark.timeout(300)  # it waits for several things, one after the other
@pytest.mark.parametrize("idempotency", [Idempotency.TOKEN, Idempotency.NONE], ids=lambda kind: kind.value)
async def test_no_call_waits_for_a_cloud_that_hangs_and_nothing_is_lost(
    tmp_path: Path, idempotency: Idempotency
) -> None:
    """Laws 1, 3 and 6. Nothing here ends the hang before every call was answered."""
    async with scene(tmp_path, Variant(idempotency=idempotency)) as it:
        left, right = it.clouds["left"], it.clouds["right"]
        await it.provider.increase_size("left", 2)
        await it.provider.increase_size("right", 1)
        await it.wait_for("left", 2)
        await it.wait_for("right", 1)

        left.chaos(hang=True)
        begun = left.cloud.calls()["create"]
        await it.provider.increase_size("left", 2)
        await until(lambda: left.cloud.calls()["create"] >= begun + 2, what="calls hang")
        await it.every_call()
        assert await it.provider.target_size("left") == 4
        victim = (await it.running("left"))[0]
        await it.provider.delete_nodes("left", [as_node(victim)])
        await it.provider.decrease_target_size("left", -1)
        assert await it.provider.target_size("left") == 3
        await it.provider.increase_size("right", 2)
        await it.wait_for("right", 3)

        await until(lambda: it.engine.refusal("left") is not None, what="the cloud counts as down")
        await it.provider.increase_size("left", 1)  # R39: accepted, and shown as what will not come
        await it.every_call()
        shown = [instance.error.code for instance in await it.provider.instances("left") if instance.error]
        assert shown == ["deadline"]
        assert it.engine.refusal("right") is None
        assert left.cloud.hangs_for() == math.inf  # all of that while it hung
        assert right.cloud.faults() == {}

        left.chaos()
        await until(lambda: not it.is_open("left") and it.live("left") == it.at_work("left"), what="it settles")
        assert it.engine.refusal("left") is None
        assert len(it.live("left")) == 3
        assert len(set(it.live("left").values())) == 3  # and no two of them for one intent
        assert len(it.live("right")) == 3
        assert left.harmed() == right.harmed() == []
