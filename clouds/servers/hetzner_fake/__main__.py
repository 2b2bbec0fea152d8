"""The fake as a program: ``python -m clouds.servers.hetzner_fake --port 8080``."""

from __future__ import annotations

import argparse

from clouds.servers.hetzner_fake.project import Project
from clouds.servers.hetzner_fake.web import FakeHetzner

__all__ = ["main"]


def main() -> None:
    """Serves until it is stopped. The token is printed; it opens nothing else."""
    parser = argparse.ArgumentParser(description="A fake of Hetzner Cloud's API, on this machine only.")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--boot-time", type=float, default=0.5, help="seconds until a server is running")
    parser.add_argument("--delete-time", type=float, default=0.2, help="seconds for which a deleted server is shown")
    given = parser.parse_args()
    project = Project(boot_time=given.boot_time, delete_time=given.delete_time)
    fake = FakeHetzner(project, port=given.port)
    print(f"{fake.url} {fake.token}", flush=True)
    fake.serve()


if __name__ == "__main__":
    main()
