"""The conformance kit as every release, over the native transport, with an engine and its ready replies behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudgraft.certs.authority import create_bundle
from cloudgraft.certs.defaults import DEFAULT_CLIENT
from cloudgraft.conformance import KitConfig, Status, run
from tests.needs import needs_native
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server
from tests.serve.settings import configuration, simulated

pytestmark = [needs_native, pytest.mark.thorough, pytest.mark.timeout(300)]

RELEASES = [f"1.{minor}" for minor in range(25, 38)]
GROUPS = [
    {"id": "small", "cloud": "sim", "maxSize": 10, "machine": {"shape": "small"}},
    {"id": "floor", "cloud": "sim", "minSize": 2, "maxSize": 4, "machine": {"shape": "small"}},
]
LOOKUPS = "cloudgraft_ready_reply_lookups_total"


def secured(directory: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """For the server, and for its client."""
    files = create_bundle(directory, hosts=["127.0.0.1"])
    server = {"cert": files.server_cert, "key": files.server_key, "clientCA": files.ca_cert}
    client = {"cert": files.client_cert, "key": files.client_key, "cacert": files.ca_cert}
    told = {name: str(path) for name, path in server.items()}
    return {**told, "allowedClients": [DEFAULT_CLIENT]}, {name: str(path) for name, path in client.items()}


@pytest.mark.parametrize("has_tls", [False, True], ids=["plaintext", "mtls"])
async def test_the_kit_passes_as_every_release(tmp_path: Path, has_tls: bool) -> None:
    with Cloud(tmp_path) as cloud:
        text = json.loads(configuration({"sim": simulated(cloud.url, {"observeEvery": "50ms"})}, GROUPS))
        text["server"] |= {"transport": "native"}
        client: dict[str, str] = {}
        if has_tls:
            text["server"]["tls"], client = secured(tmp_path / "certificates")
        with Server(tmp_path / "cloudgraft.yaml", json.dumps(text)) as server:
            file = tmp_path / "cloud-config.yaml"
            file.write_text(yaml.safe_dump({"address": server.address, **client}))
            for release in RELEASES:
                report = await run(KitConfig(cloud_config=str(file)), release=release)
                broken = [f"{r.check}: {r.message}" for r in report.results if r.status is Status.FAILED]
                assert (release, broken, report.left_behind) == (release, [], ())
                assert report.is_passed
                assert (
                    "http2_is_agreed_on" in {r.check for r in report.results if r.status is Status.PASSED}
                ) is has_tls
            assert await server.metric(LOOKUPS, result="hit") > 100
