"""The description that the node manager serves, and whether it keeps what that says: by schemathesis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.app.joining_wiring import ClusterLink
from cloudgraft.app.reload import FileComposer
from cloudgraft.config import load
from cloudgraft.engine.groups.specs import Money
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.nodemanager.api.app import manager_app
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.web.authentication import AuditLog, Gatekeeper
from cloudgraft.web.listener import WebListener
from tests.described import check_all, in_a_thread
from tests.engine.engine_rig import Rig, group, running
from tests.nodemanager.managed import Managed, managed

FILE = """
cluster: test
clouds: {sim: {driver: simulated}}
nodeGroups: [{id: "0", cloud: sim, maxSize: 10, machine: {shape: small}}]
"""
GROUPS = (group("0", price=Money(amount=Decimal("0.1"), currency="EUR")), group("h"))  # "0" is what generators try


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Managed]:
    async with managed(Rig(tmp_path, groups=GROUPS), tmp_path) as found:
        yield found


async def test_the_description_is_openapi_3_1_and_complete(there: Managed) -> None:
    async with there.client("read-only") as client:
        described = (await client.request("GET", "/openapi.json")).json
    assert described["openapi"].startswith("3.1")
    operations = [op for path in described["paths"].values() for op in path.values()]
    assert all(op.get("operationId") and (op.get("description") or op.get("summary")) for op in operations)
    ids = {op["operationId"] for op in operations}
    wanted = {"listNodeGroups", "getNodeGroup", "addNodeGroup", "editNodeGroup", "removeNodeGroup", "getSize"}
    wanted |= {"listNodes", "getTemplate", "getOptions", "increase", "decreaseTarget", "deleteNodes", "lookupNode"}
    wanted |= {"priceNode", "pricePod", "getGpu", "refresh", "cleanup", "listOperations", "getOperation", "listEvents"}
    assert ids >= wanted | {"getSnapshot", "healthz", "readyz"}
    assert "Problem" in described["components"]["schemas"]


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[str]:
    """A manager that anybody on this host may ask everything."""
    (directory / "cloudgraft.yaml").write_text(FILE)
    config = load(directory / "cloudgraft.yaml")
    rig = Rig(directory, groups=GROUPS)
    async with running(rig):
        await rig.provider.increase_size("0", 3)
        await rig.settle(3)
        rules = FileComposer(config, ClusterLink(config), None)
        manager = Manager(rig.engine, EngineProvider(rig.engine), rules)
        app = manager_app(manager, gatekeeper=Gatekeeper(secure=False), audit=AuditLog())
        listener = WebListener(app, listen="127.0.0.1:0", tls=None)
        await listener.open()
        yield listener.url
        manager.feed.close()
        await listener.close(1.0)


def _does_not_wait(case: Any) -> None:
    if case.query and isinstance(case.query.get("wait"), int | float):
        case.query["wait"] = 0


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_nothing_that_is_sent_breaks_the_manager_or_its_description(tmp_path: Path) -> None:
    with in_a_thread(serving(tmp_path)) as url:
        assert check_all(url, examples=100, prepare=_does_not_wait) >= 24
