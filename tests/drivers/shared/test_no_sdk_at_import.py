"""Whoever does not use a cloud does not pay for its SDK: neither in time nor in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

SDKS = {"boto3", "botocore", "openstack", "keystoneauth1", "pyVmomi", "proxmoxer", "hcloud", "sushy", "libcloud",
        "libvirt", "requests", "pycdlib"}

def look(what):
    print(what, sorted(SDKS & {name.partition(".")[0] for name in sys.modules}))

import cloudgraft
import cloudgraft.sdk
look("import")
import cloudgraft.cli.main
look("command")
for words in (["--help"], ["serve", "--config", sys.argv[1], "--check"]):
    cloudgraft.cli.main.cloudgraft(words, standalone_mode=False)
    look(words[-1])
"""
CONFIG = """
cluster: lab
clouds:
  sim: {driver: simulated}
nodeGroups:
  - {id: pool, cloud: sim, minSize: 0, maxSize: 5, machine: {shape: small}}
"""


def test_neither_an_import_nor_help_nor_a_check_of_another_cloud_imports_an_sdk(tmp_path: Path) -> None:
    file = tmp_path / "cloudgraft.yaml"
    file.write_text(CONFIG, "utf-8")
    command = [sys.executable, "-c", PROGRAM, str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.endswith("]")]
    assert told == ["import []", "command []", "--help []", "--check []"], done.stdout
