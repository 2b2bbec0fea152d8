"""Without the section `tracing`, nothing imports OpenTelemetry, and nothing is a span."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

_ASSEMBLED: Final = """
import sys
from pathlib import Path
from cloudgraft.app import sidecars
from cloudgraft.app.wiring import assemble
from cloudgraft.config import load
from cloudgraft.service.metrics import ServiceMetrics
assembly = assemble(load(Path(sys.argv[1])), ServiceMetrics())
with assembly.traces.running():
    assert assembly.traces.tracer is None
print(sorted(name for name in sys.modules if "opentelemetry" in name or name.startswith("cloudgraft.tracing")))
"""


def test_a_whole_server_imports_no_opentelemetry(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    groups = "nodeGroups: [{id: a, cloud: sim, maxSize: 1, machine: {shape: small}}]"
    file.write_text(f"cluster: test\nclouds: {{sim: {{driver: simulated}}}}\n{groups}\n")
    done = subprocess.run(
        [sys.executable, "-c", _ASSEMBLED, str(file)], check=True, capture_output=True, text=True, timeout=50
    )
    assert done.stdout.strip() == "[]"
