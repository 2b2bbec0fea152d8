"""Builds both distributions, judges them, and leaves them in ``dist/``: ``make dist``.

Wheels are built from the source distributions, so that those are complete. Everything is built twice, from two
directories, and must have the same bytes. What is left in ``dist/`` passed twine, was installed as a user would do it,
has played the demo, has served over the native transport, and was judged by the conformance kit. A bill of materials
lists all that is in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from scripts.bill_of_materials import bill_of_materials, crates, packages

_TREE: Final = Path(__file__).resolve().parent.parent
_DIST: Final = _TREE / "dist"
_NEVER_COPIED: Final = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "dist", "target", "*.so")
_PATIENCE: Final = 300.0  # seconds, for each step of the server's life; they take a few
_VALIDATE: Final = """\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(str(wrong)[:2000] if wrong else 0)
"""
_CONFIG: Final = """\
cluster: dist
server: {listen: "127.0.0.1:0", ops: "127.0.0.1:0", transport: native}
store: {path: journal.db}
clouds: {sim: {driver: simulated, bootTime: 0s, engine: {observeEvery: 1s}}}
nodeGroups:
  - {id: small, cloud: sim, maxSize: 5, machine: {shape: small}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The environments that build and judge."""

    venv: Path
    native: Path
    dist: Path
    made_at: int  # seconds since 1970: the time that is written into archives

    def environment(self, compiled: Path) -> Mapping[str, str]:
        """For whatever builds; crates are compiled into the given directory, unless they are there."""
        return {
            **os.environ,
            "SOURCE_DATE_EPOCH": str(self.made_at),
            "CARGO_TARGET_DIR": str(compiled),
            "PATH": f"{self.native / 'bin'}:{os.environ['PATH']}",  # maturin is started by its name
        }


def main() -> None:
    venv, native, dist = (Path(name).absolute() for name in sys.argv[1:4])
    tools = Tools(venv=venv, native=native, dist=dist, made_at=_time_of_the_source())
    shutil.rmtree(_DIST, ignore_errors=True)
    _build(_TREE, _DIST, tools)
    with tempfile.TemporaryDirectory() as name:
        _build_once_more(Path(name), tools)
    _say("judging what they say of themselves")
    _run(tools.dist / "bin/twine", "check", "--strict", *sorted(_DIST.iterdir()))
    with tempfile.TemporaryDirectory() as name:
        empty = Path(name)
        _say("installing the wheels where nothing else is")
        site_packages = _install(empty, tools)
        _write_bill(site_packages, tools)
        _say("playing the demo there")
        _play_demo(empty)
        _say("serving from there")
        _serve(empty)
    for path in sorted(_DIST.iterdir()):
        print(f"{path.stat().st_size:>10,} {hashlib.sha256(path.read_bytes()).hexdigest()} {path.relative_to(_TREE)}")


def _time_of_the_source() -> int:
    """SOURCE_DATE_EPOCH, or the time of the last commit, or that of hatchling, which is the same everywhere."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    last = ("git", "log", "-1", "--format=%ct")
    done = subprocess.run(last, cwd=_TREE, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 1_580_601_600


def _build(tree: Path, target: Path, tools: Tools) -> None:
    environment = tools.environment(tree / "native/target")
    _say(f"building the source distributions of {tree}")
    _run(tools.venv / "bin/python", "-m", "hatchling", "build", "-t", "sdist", "-d", target, cwd=tree, env=environment)
    _run(tools.native / "bin/maturin", "sdist", "--out", target, cwd=tree / "native", env=environment)
    _say("building the wheels from them (minutes the first time)")
    ours, native = sorted(target.glob("*.tar.gz"), key=lambda path: "native" in path.name)
    command = ("-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation")
    for venv, source in ((tools.venv, ours), (tools.native, native)):
        _run(venv / "bin/python", *command, "--wheel-dir", target, source, env=environment)


def _build_once_more(elsewhere: Path, tools: Tools) -> None:
    """Whoever builds the same source gets the same bytes: in another directory, at another time, with no cache."""
    tree, target = elsewhere / "tree", elsewhere / "dist"
    shutil.copytree(_TREE, tree, ignore=shutil.ignore_patterns(*_NEVER_COPIED), copy_function=shutil.copy)
    _build(tree, target, tools)
    first, second = ({path.name: path.read_bytes() for path in place.iterdir()} for place in (_DIST, target))
    different = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
    if different:
        sys.exit(f"not reproducible, two builds differ in {', '.join(different)}")
    _say(f"two builds have the same bytes: {len(first)} files")


def _install(empty: Path, tools: Tools) -> Path:
    """Returns where the packages are."""
    _run(tools.venv / "bin/python", "-m", "venv", empty / "venv")
    pip = (empty / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    _run(*pip, "--require-hashes", "-r", _TREE / "requirements/core.txt")
    _run(*pip, "--no-index", "--find-links", _DIST, "cloudgraft[native]")
    (site_packages,) = (empty / "venv/lib").glob("python3.*/site-packages")
    return site_packages


def _write_bill(site_packages: Path, tools: Tools) -> None:
    components = [*packages(site_packages, "cloudgraft", ["native"]), *crates(_TREE / "native")]
    bill = bill_of_materials(components, root="cloudgraft", made_at=datetime.fromtimestamp(tools.made_at, UTC))
    subprocess.run([tools.dist / "bin/python", "-c", _VALIDATE], input=bill, text=True, check=True)
    (wheel,) = _DIST.glob("cloudgraft-*.whl")
    (_DIST / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json").write_text(bill, "utf-8")
    _say(f"{len(components)} components are in the bill of materials")


def _play_demo(empty: Path) -> None:
    _run(empty / "venv/bin/cloudgraft", "demo", "--plain", cwd=empty, env=_clean(), stdout=subprocess.DEVNULL)


def _serve(empty: Path) -> None:
    """Serves in the new environment alone, and lets its own conformance kit judge that."""
    (empty / "cloudgraft.yaml").write_text(_CONFIG, "utf-8")
    command = [str(empty / "venv/bin/cloudgraft"), "serve", "--config", "cloudgraft.yaml", "--log-format", "json"]
    log = empty / "log"
    with log.open("wb") as stderr, subprocess.Popen(command, cwd=empty, env=_clean(), stderr=stderr) as server:
        try:
            about = _wait_until_it_serves(server, log)
            if about["transport"] != "native":
                sys.exit(f"it serves over {about['transport']} instead of the native transport")
            kit = [str(empty / "venv/bin/cloudgraft"), "conformance", "--address", about["address"], "-o", "json"]
            judged = subprocess.run(kit, cwd=empty, env=_clean(), capture_output=True, timeout=_PATIENCE, check=False)
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


def _clean() -> dict[str, str]:
    """Nothing by which Python would find this tree."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def _say(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def _run(
    *command: str | Path, cwd: Path = _TREE, env: Mapping[str, str] | None = None, stdout: int | None = None
) -> None:
    subprocess.run(command, cwd=cwd, env=env, stdout=stdout, check=True)


if __name__ == "__main__":
    main()
