"""Whatever is sent, the answer is one that the description promises: no 5xx, no schema violation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.schemas import BaseSchema

from cloudgraft.discovery.app import discovery_app
from cloudgraft.discovery.model import ClusterSpec
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.vault import Vault, new_key
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.web.audit import AuditLog
from cloudgraft.web.identity import ANY_ROLE, ClientRule, Gatekeeper
from cloudgraft.web.listener import WebListener

TOKEN = "all-roles-token-0123456789"
# Without positive_data_acceptance: that a label selector is one, no schema can say.
WANTED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[str]:
    """A server of whom one token may ask everything, with a cluster in it."""
    (directory / "token").write_text(TOKEN)
    rules = [ClientRule(name="all", role=ANY_ROLE, token_file=directory / "token")]
    vault = Vault.parse(new_key(), where="the test")
    core = Discovery(Discovery.sqlite(directory / "d.db"), vault=vault, gather=0.0)
    await core.open()
    await core.put_cluster(ClusterSpec(id="0", capacity={"cpu": Quantity(10**6)}))
    await core.set_credentials("0", "kind: Config")
    app = discovery_app(
        core, gatekeeper=Gatekeeper(rules, secure=False), audit=AuditLog(directory / "audit"), legacy_list=True
    )
    listener = WebListener(app, listen="127.0.0.1:0", tls=None)
    await listener.open()
    yield listener.url
    await listener.close(1.0)
    await core.close()


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
    assert is_up.wait(30)
    yield found[0]
    loop.call_soon_threadsafe(stopping.set)
    thread.join(30)
    loop.close()


def check_all(schema: BaseSchema, *, examples: int) -> int:
    """Every operation, with bodies that are right and bodies that are wrong. Says how many operations there are."""
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
            answer = case.call(headers=HEADERS)
            if answer.status_code != 413:  # a refusal that schemathesis does not take for one
                case.validate_response(answer, checks=wanted)

        one()
        count += 1
    return count


@pytest.mark.thorough
def test_nothing_that_is_sent_breaks_the_server_or_its_description(url: str) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=HEADERS)
    assert check_all(schema, examples=2) >= 18


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_nothing_that_is_sent_breaks_it_even_after_many_attempts(url: str) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=HEADERS)
    assert check_all(schema, examples=300) >= 18
