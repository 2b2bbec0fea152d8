"""Scenario 13: from three scripts to nodes, as the tutorial has it: every command of the page, typed as written.

The machines are played by :mod:`e2e.stand_in`, which does with their user data what kubeadm and a kubelet do.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from e2e.journal import read_journal
from e2e.processes import Program, free_ports
from e2e.scenarios.scenario import Scenario
from e2e.stage import PATIENCE, Stage
from e2e.stand_in.cluster_info import prepare_for_kubeadm
from tests.docs.terminal import ROOT, File, Terminal, steps

__all__ = ["EXAMPLES", "SCENARIO", "lab_program"]

_PAGE: Final = ROOT / "docs" / "tutorial" / "from-three-scripts-to-nodes.md"
EXAMPLES: Final = ROOT / "examples" / "exec"
_PORTS: Final = ("8085", "8086", "8087")


def _run(stage: Stage) -> None:
    prepare_for_kubeadm(stage.cluster.client, stage.plane.server, stage.plane.authority)
    reader = stage.directory / "reader"
    reader.mkdir()
    for name in ("labctl", "lab.sh"):
        shutil.copy(EXAMPLES / name, reader)
    shutil.copy(stage.plane.kubeconfig, reader / "admin.conf")
    lab = reader / "lab"
    lab.mkdir()
    stage.start_program(lab_program(lab, stage))
    programs = {"kubectl": stage.plane.kubectl, "cluster-autoscaler": stage.binary}
    terminal = Terminal(reader, programs=programs, patience=PATIENCE)
    stage.stack.callback(terminal.close)
    page = _page(stage.plane.server)
    stage.takes_away(_file(page, "account.yaml"))
    terminal.follow(page)
    _judge(terminal, lab)


def lab_program(home: Path, stage: Stage) -> Program:
    """What is behind ``labctl`` when that keeps its books in ``home``."""
    options: list[str | Path] = ["--home", home, "--kubeconfig", stage.plane.kubeconfig]
    command = [sys.executable, "-m", "e2e.stand_in.lab_host", *options]
    return Program("the lab", command, stage.directory / "lab.log", environment={"PYTHONPATH": str(ROOT)})


def _page(server: str) -> str:
    """With this cluster's address, and with ports that nobody else has."""
    text = _PAGE.read_text("utf-8").replace("https://127.0.0.1:6443", server)
    for number, port in zip(_PORTS, free_ports(len(_PORTS)), strict=True):
        text = text.replace(f"127.0.0.1:{number}", f"127.0.0.1:{port}")
    return text


def _file(page: str, name: str) -> str:
    """What the page has its reader write into it."""
    return next(step.content for step in steps(page) if isinstance(step, File) and step.name == name)


def _judge(terminal: Terminal, lab: Path) -> None:
    """Three machines were made and ended, says the cloud's ledger, and so says the journal."""
    ledger = [json.loads(line) for line in (lab / "ledger.jsonl").read_text("utf-8").splitlines()]
    counted = Counter(entry["what"] for entry in ledger)
    assert counted == {"started": 3, "ended": 3}, f"the cloud's ledger has {dict(counted)}"
    code, exported = terminal.output("cloudgraft db export --store journal.db")
    assert code == 0, exported
    states = Counter(machine["state"] for machine in read_journal(exported).machines)
    assert states == {"gone": 3}, f"the journal has {dict(states)}"


SCENARIO: Final = Scenario(
    number=13, seconds=100, title="from three scripts to nodes: the tutorial, typed as written", run=_run
)
