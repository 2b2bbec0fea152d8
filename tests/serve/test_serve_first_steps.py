"""A new user's path: the smallest file, a scale-up, a crash, a restart; and what `--check` finds."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.serve_process import ServeProcess
from tests.serve.servers import Server, connected, running, targets

# As in the manual, but for the ports: tests run side by side.
SMALLEST = """
cluster: trial
server: {listen: "127.0.0.1:0", ops: "127.0.0.1:0"}
clouds:
  sim: {driver: simulated}
nodeGroups:
  - {id: small, cloud: sim, maxSize: 10, machine: {shape: small}}
"""


async def test_the_smallest_file_serves_and_scales_and_finds_its_machines_again_after_kill_9(tmp_path: Path) -> None:
    """From a shell, and nothing but defaults: the journal and the cloud are beside the file."""
    file = tmp_path / "cloudgraft.yaml"
    file.write_text(SMALLEST.replace("simulated", "simulated, bootTime: 0s"))
    with ServeProcess(file) as server:
        async with connected(server.address) as provider:
            await provider.refresh()
            assert await targets(provider) == {"small": 0}
            await provider.increase_size("small", 3)
            assert await provider.target_size("small") == 3
            before = await running(provider, "small", 3)
        server.send(signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
    with Server(file) as again:
        async with again.connected() as provider:
            await provider.refresh()
            assert await running(provider, "small", 3) == before
            assert (await provider.template("small")).capacity["cpu"].value == 2
        assert (await again.admin("Status"))["transport"] == again.says("serving")["transport"]
        assert again.stop() == 0
        assert not again.said(least="warning")
        assert again.said("stopped")


@pytest.mark.thorough
def test_check_tells_mistakes_in_options_of_drivers_and_in_machine_settings_all_at_once(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("""cluster: trial
clouds:
  one: {driver: simulated, bootTme: 5s}
  two: {driver: simulated, prices: {huge: 1}}
  three: {driver: simulated, url: "ftp://here"}
nodeGroups:
  - {id: a, cloud: one, maxSize: 1, machine: {shap: small}}
  - {id: b, cloud: two, maxSize: 1, machine: {shape: small, taints: [{value: x}]}}
  - {id: c, cloud: three, maxSize: 1, machine: {shape: ""}}
""")
    command = [sys.executable, "-m", "cloudgraft.cli", "serve", "-c", str(file), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    told = done.stderr.removeprefix("error: ").splitlines()
    for start, words in (
        ("bad.yaml:3:28: clouds.one.bootTme", "did you mean bootTime?"),
        ("bad.yaml:4:", "clouds.two.prices.huge: there is no such shape; there is: small, medium, large, gpu"),
        (
            "bad.yaml:5:",
            "clouds.three.url: is not the address of a simulated cloud; write it like http://127.0.0.1:9400",
        ),
        ("bad.yaml:7:", "did you mean shape?"),
        ("bad.yaml:8:", "key"),
        ("bad.yaml:9:", "nodeGroups[2].machine.shape: must not be empty"),
    ):
        assert [line for line in told if start in line and words in line], (start, done.stderr)
    assert "Traceback" not in done.stderr
