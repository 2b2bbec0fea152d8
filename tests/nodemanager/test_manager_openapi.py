"""The description that the node manager serves, and whether it keeps what that says: by schemathesis."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.schemas import BaseSchema

from cloudgraft.cli.declared import FileComposer
from cloudgraft.cli.joining_wiring import ClusterLink
from cloudgraft.config import load
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.specs import Money
from cloudgraft.nodemanager.app import manager_app
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.web.audit import AuditLog
from cloudgraft.web.identity import Gatekeeper
from cloudgraft.web.listener import WebListener
from tests.engine.rig import Rig, group, running
from tests.nodemanager.managed import Managed, managed

# Without positive_data_acceptance: that a group is there, no schema can say.
WANTED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
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


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Where it listens. It runs in a thread of its own: schemathesis waits for answers."""
    found: list[str] = []
    is_up, loop = threading.Event(), asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def run() -> None:
        async with serving(tmp_path) as address:
            found.append(address)
            is_up.set()
            await stopping.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert is_up.wait(60)
    yield found[0]
    loop.call_soon_threadsafe(stopping.set)
    thread.join(60)
    loop.close()


def check_all(schema: BaseSchema, *, examples: int) -> int:
    """Every operation, with requests that are right and requests that are wrong; how many operations there are."""
    load_all_checks()
    wanted: list[Any] = [CHECKS.get_one(name) for name in WANTED]
    count = 0
    for result in schema.get_all_operations():
        operation: Any = cast("Any", result).ok()
        modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
        strategy: Any = st.one_of(*[operation.as_strategy(generation_mode=mode) for mode in modes])

        @given(case=strategy)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        def one(case: Any) -> None:
            if case.query and "wait" in case.query:
                case.query["wait"] = 0 if isinstance(case.query["wait"], int | float) else case.query["wait"]
            case.call_and_validate(checks=wanted)

        one()
        count += 1
    return count


@pytest.mark.thorough
def test_nothing_that_is_sent_breaks_the_manager_or_its_description(url: str) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    assert check_all(schema, examples=2) >= 24


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_nothing_that_is_sent_breaks_it_even_after_many_attempts(url: str) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    assert check_all(schema, examples=200) >= 24
