"""The fake as a process of its own, beside API servers that it knows by kubeconfig files only."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.kube_api import KubeApi

MODULE = ("-m", "e2e.scripted_liqo")


@pytest.mark.thorough
async def test_it_settles_the_clusters_and_ends_on_a_signal(tmp_path: Path) -> None:
    home, away = KubeApi(), KubeApi()
    home.start()
    away.start()
    files = [server.kubeconfig(tmp_path, name=name) for server, name in ((home, "home"), (away, "away"))]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *MODULE,
        *("--consumer", str(files[0]), "--provider", f"cluster-a={files[1]}", "--consumer-id", "home"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"playing Liqo\n"
    for server, name in ((home, "home"), (away, "cluster-a")):
        (found,) = server.store.items("configmaps", "liqo")
        assert found["data"] == {"CLUSTER_ID": name}
        assert len(server.store.items("networks", "liqo")) == 2
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        assert await process.wait() == 0
    home.stop()
    away.stop()


@pytest.mark.thorough
async def test_a_kubeconfig_that_leads_nowhere_is_reported(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *MODULE, "--consumer", str(tmp_path / "none"), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        _, told = await process.communicate()
    assert process.returncode == 1
    assert told.startswith(b"fake Liqo: the kubeconfig")
