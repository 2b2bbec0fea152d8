"""The fake as a program: ``python -m clouds.servers.proxmox_fake --port 8006``."""

from __future__ import annotations

import argparse
from pathlib import Path

from clouds.servers.proxmox_fake.cluster import Cluster
from clouds.servers.proxmox_fake.web import FakeProxmox

__all__ = ["main"]


def main() -> None:
    """Serves until it is stopped. User, secret and CA are printed; they open nothing else."""
    parser = argparse.ArgumentParser(description="A fake of Proxmox VE's API, on this machine only.")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--tls", type=Path, metavar="DIRECTORY", help="with TLS; the CA is written there as ca.crt")
    parser.add_argument("--clone-time", type=float, default=0.2, help="seconds that a linked clone takes")
    parser.add_argument("--task-time", type=float, default=0.05, help="seconds that any other task takes")
    parser.add_argument("--news-every", type=float, default=0.5, help="seconds until names and states are told")
    given = parser.parse_args()
    cluster = Cluster(clone_time=given.clone_time, task_time=given.task_time, news_every=given.news_every)
    fake = FakeProxmox(cluster, port=given.port, tls=given.tls)
    print(f"{fake.url} {fake.token_user} {fake.token}", flush=True)
    fake.serve()


if __name__ == "__main__":
    main()
