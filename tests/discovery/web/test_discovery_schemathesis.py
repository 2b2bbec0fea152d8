"""Whatever is sent, the answer is one that the description promises: no 5xx, no schema violation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cloudgraft.discovery.api.app import discovery_app
from cloudgraft.discovery.model import ClusterSpec
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store.vault import Vault, new_key
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.web.authentication import ANY_ROLE, AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.listener import WebListener
from tests.described import check_all, in_a_thread

TOKEN = "all-roles-token-0123456789"
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


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_nothing_that_is_sent_breaks_the_server_or_its_description(tmp_path: Path) -> None:
    with in_a_thread(serving(tmp_path)) as url:
        assert check_all(url, examples=100, headers=HEADERS) >= 18
