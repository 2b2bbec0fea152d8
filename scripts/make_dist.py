"""Builds both distributions, installs them where nothing else is, and serves from there: ``make dist``.

Wheels are built from the source distributions, so that those are complete. What is left in ``dist/`` was installed as a
user would do it, has served over the native transport, and was judged by the conformance kit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

_TREE: Final = Path(__file__).resolve().parent.parent
_DIST: Final = _TREE / "dist"
_PATIENCE: Final = 300.0  # seconds, for each step of the server's life; they take a few
_CONFIG: Final = """\
cluster: dist
server: {listen: "127.0.0.1:0", ops: "127.0.0.1:0", transport: native}
store: {path: journal.db}
clouds: {sim: {driver: simulated, bootTime: 0s, engine: {observeEvery: 1s}}}
nodeGroups:
  - {id: small, cloud: sim, maxSize: 5, machine: {shape: small}}
"""


def main() -> None:
    venv, native_venv = (Path(name).absolute() for name in sys.argv[1:3])
    shutil.rmtree(_DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        empty = Path(name)
        _say("building the source distributions")
        _run(venv / "bin/python", "-m", "hatchling", "build", "-t", "sdist", "-d", _DIST)
        _run(native_venv / "bin/maturin", "sdist", "--out", _DIST, cwd=_TREE / "native")
        _say("building the wheels from them (minutes the first time)")
        ours, native = sorted(_DIST.glob("*.tar.gz"), key=lambda path: "native" in path.name)
        _wheel(venv, ours)
        _wheel(native_venv, native)
        _say("installing the wheels where nothing else is")
        _run(venv / "bin/python", "-m", "venv", empty / "venv")
        pip = (empty / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        _run(*pip, "--require-hashes", "-r", _TREE / "requirements/core.txt")
        _run(*pip, "--no-index", "--find-links", _DIST, "cloudgraft[native]")
        _say("serving from there")
        _serve(empty)
    for path in sorted(_DIST.iterdir()):
        print(f"{path.stat().st_size:>10,} {path.relative_to(_TREE)}")


def _wheel(venv: Path, source: Path) -> None:
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(_TREE / "native/target"),  # shared: only our own crate is compiled once more
        "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",  # its backend starts maturin by that
    }
    command = ("-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation")
    _run(venv / "bin/python", *command, "--wheel-dir", _DIST, source, env=environment)


def _serve(empty: Path) -> None:
    """Serves in the new environment alone, and lets its own conformance kit judge that."""
    (empty / "cloudgraft.yaml").write_text(_CONFIG, "utf-8")
    command = [str(empty / "venv/bin/cloudgraft"), "serve", "--config", "cloudgraft.yaml", "--log-format", "json"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    log = empty / "log"
    with log.open("wb") as stderr, subprocess.Popen(command, cwd=empty, env=environment, stderr=stderr) as server:
        try:
            about = _wait_until_it_serves(server, log)
            if about["transport"] != "native":
                sys.exit(f"it serves over {about['transport']} instead of the native transport")
            kit = [str(empty / "venv/bin/cloudgraft"), "conformance", "--address", about["address"], "-o", "json"]
            judged = subprocess.run(
                kit, cwd=empty, env=environment, capture_output=True, timeout=_PATIENCE, check=False
            )
            if judged.returncode:
                told = (judged.stdout + judged.stderr).decode()
                sys.exit(f"the conformance kit ended with {judged.returncode}: {told[-4000:]}")
        finally:
            server.terminate()
        if code := server.wait(_PATIENCE):
            sys.exit(f"the server ended with {code}: {log.read_text('utf-8')[-4000:]}")


def _wait_until_it_serves(server: subprocess.Popen[bytes], log: Path) -> dict[str, str]:
    deadline = time.monotonic() + _PATIENCE
    while server.poll() is None and time.monotonic() < deadline:
        for line in log.read_text("utf-8").splitlines(keepends=True):
            about = json.loads(line) if line.startswith("{") and line.endswith("}\n") else {}
            if about.get("event") == "serving":
                return dict(about)
        time.sleep(0.1)
    sys.exit(f"it does not serve: {log.read_text('utf-8')[-4000:]}")


def _say(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def _run(*command: str | Path, cwd: Path = _TREE, env: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=cwd, env=env, check=True)


if __name__ == "__main__":
    main()
