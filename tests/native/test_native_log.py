"""What the log has of calls over the native transport: at -v4 those that Python answers, at -v5 all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.serve_process import ServeProcess
from tests.needs import needs_native
from tests.serve.servers import connected, running

pytestmark = needs_native

CONFIG = """\
cluster: trial
server: {listen: "127.0.0.1:0", ops: "127.0.0.1:0", transport: native}
clouds: {sim: {driver: simulated, bootTime: 0s}}
nodeGroups: [{id: small, cloud: sim, maxSize: 5, machine: {shape: small}}]
"""
CALLS = 20


@pytest.mark.parametrize("verbosity", ["-v4", "-v5"])
async def test_a_read_is_logged_when_python_answers_it(tmp_path: Path, verbosity: str) -> None:
    file = tmp_path / "cloudgraft.yaml"
    file.write_text(CONFIG)
    with ServeProcess(file, verbosity) as server:
        async with connected(server.address) as provider:
            await provider.refresh()
            await provider.increase_size("small", 1)
            (node,) = await running(provider, "small", 1)
            for _ in range(CALLS):
                found = await provider.node_group_for_node(node)
                assert found is not None
                assert found.id == "small"
            await provider.increase_size("small", 2)
        server.wait_for(lambda line: line.get("rpc") == "NodeGroupIncreaseSize" and line["delta"] == 2)
        logged = sum(line.get("rpc") == "NodeGroupForNode" for line in server.log)
        assert 1 <= logged < CALLS if verbosity == "-v4" else logged == CALLS
