"""Plays the updates: forward, once more with the same release, and back, while pods come and go."""

from __future__ import annotations

import itertools
import re
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e import audit
from e2e.build import Tell
from e2e.config import cloud, document, node_group
from e2e.journal import Journal, read_journal
from e2e.kubernetes import Workload
from e2e.processes import ProgramError
from e2e.rollover.deployment import Deployment
from e2e.rollover.pods import Pod, Template
from e2e.rollover.previous_release import InstalledRelease
from e2e.rollover.rolling_update import Strategy
from e2e.scenarios.mutual_tls import printed_files
from e2e.stage import Stage
from e2e.waiting import until

__all__ = ["play"]

_REPLICAS: Final = 2
_ROLLING: Final = Strategy(replicas=_REPLICAS, max_surge=0, max_unavailable=1)  # of the chart
# On the way back: the waiting replicas of release 0.1.0 are never ready, so they cannot wait in place of the leader.
_ALL_AT_ONCE: Final = Strategy(replicas=_REPLICAS, max_surge=0, max_unavailable=_REPLICAS)
_SIZES: Final = (3, 6, 2, 5, 1, 4)  # pods; each needs a machine of its own
_LAST: Final = 3
_TIDE: Final = 12.0  # seconds between two changes of the number of pods
_PATIENCE: Final = 300.0
_PODS: Final = Workload(name="pods", replicas=_SIZES[0], cpu="1500m", memory="1Gi")
_ERRORS: Final = re.compile(r'^cluster_autoscaler_errors_total\{type="([^"]+)"\} (\S+)', re.MULTILINE)
# An answer that only a server gives that does not lead or does not run; "not implemented" is an answer.
_FAILED_CALL: Final = re.compile(r"code = (Unavailable|DeadlineExceeded|Canceled|Internal|Unknown|Aborted)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What has happened until a moment."""

    at: float
    loops: int
    errors: Mapping[str, int]
    failed_calls: int
    connections: Counter[str]
    orders: Counter[str]


class _Play:
    """The world of one run."""

    def __init__(self, stage: Stage, deployment: Deployment, database: str, tell: Tell) -> None:
        self._stage = stage
        self._deployment = deployment
        self._tell = tell
        self._sizes: Iterator[int] = itertools.cycle(_SIZES)
        self._changed_at = 0.0
        self._directory = stage.directory
        sim = stage.start_cloud()
        server, self.client = printed_files(self._certificates())
        self.document = {
            **document(clouds={"sim": cloud(sim.url)}, groups=[node_group("group", "small")]),
            "server": {"tls": server["server"]["tls"]},
            "log": {"level": 5, "format": "json"},  # every call, with its duration
            "store": {"postgresql": database, "user": "postgres"},
        }

    def _certificates(self) -> str:
        command = InstalledRelease.of_this_tree().command("certs", "init", "certs", "--host", "localhost")
        done = subprocess.run(command, cwd=self._directory, capture_output=True, text=True, timeout=60.0, check=True)
        return done.stdout

    # -- waiting, while pods come and go -------------------------------------------------------------------------------

    def turn(self) -> None:
        """Changes the number of pods when it is time; raises an error when a process has ended."""
        self._stage.check()
        self._deployment.check()
        if time.monotonic() > self._changed_at + _TIDE:
            self._changed_at = time.monotonic()
            self._stage.cluster.scale(_PODS.name, next(self._sizes))

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Waits for a condition; pods come and go meanwhile."""
        until(condition, what, seconds=_PATIENCE, check=self.turn)

    def wait_for_loops(self, count: int) -> None:
        """Waits for so many loops of the autoscaler."""
        first = self._stage.autoscaler.loops()
        self.wait(lambda: self._stage.autoscaler.loops() >= first + count, f"{count} loops of the autoscaler")

    # -- what is seen --------------------------------------------------------------------------------------------------

    def seen(self, release: InstalledRelease) -> _Seen:
        """Everything so far."""
        with urllib.request.urlopen(self._stage.autoscaler.metrics, timeout=10.0) as answer:
            metrics = answer.read().decode()
        log = self._stage.autoscaler.log.read_text("utf-8", "replace")
        return _Seen(
            at=time.monotonic(),
            loops=self._stage.autoscaler.loops(),
            errors={name: int(float(number)) for name, number in _ERRORS.findall(metrics)},
            failed_calls=len(_FAILED_CALL.findall(log)),
            connections=Counter(self._deployment.counts),
            orders=Counter(self.journal(release).kinds()),
        )

    def journal(self, release: InstalledRelease) -> Journal:
        """The journal, as one release exports it."""
        return read_journal(self.run(release, "db", "export"))

    def run(self, release: InstalledRelease, *words: str) -> str:
        """What a command of a release prints about the journal. Raises ProgramError when it fails."""
        config = next(iter(sorted(self._directory.glob("*-1.yaml"))))
        command = release.command(*words, "--config", config)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120.0, check=False)
        if done.returncode:
            raise ProgramError(f"{' '.join(words)} of release {release.name}: {done.stdout}{done.stderr}".strip())
        return done.stdout

    @contextmanager
    def phase(self, what: str, release: InstalledRelease) -> Iterator[None]:
        """Reports what happened in one part of the story, and fails when a loop of the autoscaler did."""
        before = self.seen(release)
        yield
        after = self.seen(release)
        failed = sum(after.errors.values()) - sum(before.errors.values())
        calls = after.failed_calls - before.failed_calls
        refused = after.connections["refused"] - before.connections["refused"]
        orders, connections = after.orders - before.orders, after.connections - before.connections
        self._tell(
            f"{what}: {after.at - before.at:.0f} s, {after.loops - before.loops} loops, {failed} failed, "
            f"{calls} failed calls; {connections.total()} new connections, {refused} of them refused; "
            f"{orders['increase']} scale-ups, {orders['delete']} scale-downs, {orders['leader']} new leaders"
        )
        assert not failed, f"{what}: {failed} loops of the autoscaler failed: {after.errors}"
        assert not calls, f"{what}: {calls} calls of the autoscaler failed; see {self._stage.autoscaler.log}"

    def order_by_hand(self) -> None:
        """An operator's order: its event and its key are rows that release 0.1.0 does not write, and has to read."""
        (leader,) = [pod for pod in self._deployment.pods if pod.is_ready]
        command = leader.template.release.command("scale", "group", "+1", "--config", leader.config)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120.0, check=False)
        if done.returncode:
            raise ProgramError(f"an order by hand: {done.stdout}{done.stderr}".strip())
        self._tell(f"by hand: {done.stdout.splitlines()[0]}")

    # -- the end -------------------------------------------------------------------------------------------------------

    def settle(self, releases: tuple[InstalledRelease, ...]) -> None:
        """Waits until nothing is under way, and compares all the books, by every release."""
        stage = self._stage
        stage.cluster.scale(_PODS.name, _LAST)
        stage.until_equal(stage.cluster.running, _LAST, "the number of pods that run", seconds=_PATIENCE)
        for release in releases:
            self._wait_until_sound(release)
            audit.compare(self.journal(release), stage.clouds.values(), stage.cluster.provider_ids())
            lines = self.run(release, "db", "check").splitlines()
            assert lines[-1] == "It is sound.", f"db check of release {release.name}: {lines}"
            self._tell(f"db check of release {release.name}: {lines[0].strip()} It is sound.")
        machines = stage.cloud.ledger()
        self._tell(f"{len(machines)} machines were made, {len(stage.cloud.alive())} are left; none was lost or doubled")

    def _wait_until_sound(self, release: InstalledRelease) -> None:
        stage = self._stage

        def is_settled() -> bool:
            states = Counter(row["state"] for row in self.journal(release).alive().values())
            machines, nodes = len(stage.cloud.alive()), stage.cluster.sizes().get("group")
            return states == {"running": _LAST} and machines == nodes == _LAST

        stage.until(is_settled, f"{_LAST} machines run, and nothing is under way", seconds=_PATIENCE)


def play(
    stage: Stage, *, old: InstalledRelease, new: InstalledRelease, database: str, scan_interval: str, tell: Tell
) -> None:
    """Plays the whole story. Raises AssertionError when a call failed, or books do not agree."""
    deployment = Deployment(stage.directory, tell)
    it = _Play(stage, deployment, database, tell)

    def update(name: str, release: InstalledRelease, strategy: Strategy) -> None:
        deployment.update(Template(name=name, release=release, document=it.document), strategy)

    with deployment.running():
        update("old", old, _ROLLING)
        stage.until(deployment.is_complete, f"replicas of release {old.name}", seconds=_PATIENCE)
        stage.start_autoscaler(
            cloud_config={**it.client, "address": f"localhost:{deployment.port}"}, scan_interval=scan_interval
        )
        stage.cluster.run(_PODS)
        it.wait_for_loops(3)
        steps: tuple[tuple[str, InstalledRelease, Strategy], ...] = (
            ("forward", new, _ROLLING),
            ("same", new, _ROLLING),
            ("back", old, _ALL_AT_ONCE),
        )
        before = old
        for name, release, strategy in steps:
            with it.phase(f"release {before.name} to {release.name} ({name})", new):
                update(name, release, strategy)
                it.wait(deployment.is_complete, f"all replicas are of the rollout {name!r}")
                if release is new:
                    it.order_by_hand()
                it.wait_for_loops(3)
            before = release
        it.settle((old, new))
        _report(deployment.ended + deployment.pods, tell)


def _report(pods: list[Pod], tell: Tell) -> None:
    for pod in pods:
        codes: dict[str, Any] = dict(Counter(pod.answers()))
        if codes:
            tell(f"pod {pod.name} (release {pod.template.release.name}): {codes}, longest {pod.slowest_call():.2f} s")


def database_directory(url: str) -> str:
    """``directory/name`` of a database that is reached by a socket, as store.postgresql takes it."""
    found = re.fullmatch(r"postgresql://[^/]*/([^?]+)\?host=(.+)", url)
    assert found is not None
    return f"{Path(found[2])}/{found[1]}"
