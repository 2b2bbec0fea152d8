"""What a scenario works with: a cluster, clouds, cloudgraft and the autoscaler, all real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from e2e import audit
from e2e.autoscaler import Autoscaler
from e2e.cloudgraft_process import CloudgraftServer, Simcloud
from e2e.control_plane import ControlPlane
from e2e.kubectl import kubectl
from e2e.kubernetes import Cluster, connected
from e2e.modules import Release
from e2e.processes import Program
from e2e.waiting import eventually, until

__all__ = ["PATIENCE", "Stage", "stage"]

T = TypeVar("T")
PATIENCE: Final = 180.0  # seconds; on a busy machine of two cores


@dataclass(slots=True, kw_only=True)
class Stage:
    """One scenario's own world, in one directory and one namespace."""

    release: Release
    binary: Path
    plane: ControlPlane
    cluster: Cluster
    directory: Path
    stack: ExitStack
    clouds: dict[str, Simcloud]
    _server: CloudgraftServer | None = None
    _autoscaler: Autoscaler | None = None

    # -- setting up ----------------------------------------------------------------------------------------------------

    def start_cloud(
        self, name: str = "sim", *, options: Mapping[str, Any] | None = None, chaos: Mapping[str, Any] | None = None
    ) -> Simcloud:
        """A simulated cloud with its kubelets."""
        cloud = Simcloud(
            self.directory, name, kubeconfig=self.plane.kubeconfig, options=options or {}, chaos=chaos or {}
        )
        self.clouds[name] = cloud
        self.start_program(cloud)
        return cloud

    def start_server(self, document: Mapping[str, Any]) -> CloudgraftServer:
        """Starts cloudgraft with a configuration (:mod:`e2e.config`)."""
        self._server = CloudgraftServer(self.directory, document)
        self.start_program(self._server)
        return self._server

    def start_autoscaler(
        self, *, cloud_config: Mapping[str, Any] | None = None, kubeconfig: Path | None = None, **flags: str
    ) -> Autoscaler:
        """The autoscaler; ``_`` in the name of a flag stands for ``-``. Returns when its first loop has ended.

        Without a ``kubeconfig`` of its own it may do everything.
        """
        path = self.directory / "cloud-config.yaml"
        document = {**(cloud_config or {})}
        document.setdefault("address", self._server.address if self._server is not None else "")
        path.write_text(yaml.safe_dump(document), "utf-8")
        given = {name.replace("_", "-"): value for name, value in flags.items()}
        self._autoscaler = Autoscaler(
            self.binary,
            self.release,
            self.directory,
            kubeconfig=kubeconfig or self.plane.kubeconfig,
            cloud_config=path,
            flags={"namespace": self.cluster.namespace, **given},
        )
        self.start_program(self._autoscaler)
        self.wait_for_loops(1)
        return self._autoscaler

    def start_program(self, program: Program) -> None:
        """Starts it; it is stopped with the scenario."""
        self.stack.callback(program.stop)
        program.start()

    def apply(self, manifest: str) -> None:
        """Has kubectl apply it; it is taken away with the scenario: the next one meets a cluster without it."""
        self.takes_away(manifest)
        kubectl(self.plane, "apply", "-f", "-", stdin=manifest)

    def takes_away(self, manifest: str) -> None:
        """When the scenario ends, what the manifest names is deleted, whoever has applied it."""
        delete = ("delete", "--ignore-not-found", "-f", "-")
        self.stack.callback(kubectl, self.plane, *delete, stdin=manifest)

    # -- the parts -----------------------------------------------------------------------------------------------------

    @property
    def server(self) -> CloudgraftServer:
        """The server."""
        assert self._server is not None
        return self._server

    @property
    def autoscaler(self) -> Autoscaler:
        """The autoscaler."""
        assert self._autoscaler is not None
        return self._autoscaler

    @property
    def cloud(self) -> Simcloud:
        """The only cloud."""
        (cloud,) = self.clouds.values()
        return cloud

    # -- waiting -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises ProgramError when a process has ended that nobody has killed."""
        self.plane.check()
        for program in (*self.clouds.values(), self._server, self._autoscaler):
            if program is not None:
                program.check()

    def until(self, condition: Callable[[], object], what: str, *, seconds: float = PATIENCE) -> None:
        """Waits for a condition, and fails at once when a process ends."""
        until(condition, what, seconds=seconds, check=self.check)

    def eventually(
        self, read: Callable[[], T], accept: Callable[[T], object], what: str, *, seconds: float = PATIENCE
    ) -> T:
        """Waits until what is read is acceptable, and gives it."""
        return eventually(read, accept, what, seconds=seconds, check=self.check)

    def until_equal(self, read: Callable[[], T], expected: T, what: str, *, seconds: float = PATIENCE) -> None:
        """Waits until something has a value."""
        self.eventually(read, lambda seen: seen == expected, f"{what} is {expected!r}", seconds=seconds)

    def wait_for_loops(self, count: int, holds: Callable[[], None] | None = None) -> None:
        """Waits for so many more loops of the autoscaler; ``holds`` is called all the while, and may raise."""
        first = self.autoscaler.loops()

        def check() -> None:
            self.check()
            if holds is not None:
                holds()

        what = f"{count} loops of the autoscaler ({self.autoscaler.log})"
        eventually(self.autoscaler.loops, lambda seen: seen >= first + count, what, seconds=PATIENCE, check=check)

    # -- judging -------------------------------------------------------------------------------------------------------

    def settle(self, sizes: Mapping[str, int], *, seconds: float = PATIENCE) -> None:
        """Waits until nodes, targets and machines have these sizes, and then compares all the books.

        Groups that are not named have nothing.
        """
        expected = dict(sizes)
        self.until_equal(self.cluster.sizes, expected, "the number of nodes by group", seconds=seconds)
        running = {id_: {"running": count} for id_, count in expected.items()}
        self.until_equal(self.server.states, running, "what cloudgraft has by group", seconds=seconds)
        total = sum(expected.values())
        self.until_equal(lambda: len(self._machines()), total, "the number of machines in the clouds", seconds=seconds)
        audit.compare(self.server.journal(), self.clouds.values(), self.cluster.provider_ids())

    def _machines(self) -> list[dict[str, Any]]:
        return [machine for cloud in self.clouds.values() for machine in cloud.alive()]


@contextmanager
def stage(plane: ControlPlane, *, release: Release, binary: Path, directory: Path, namespace: str) -> Iterator[Stage]:
    """Sets up one scenario's world, and takes all of it away again.

    After a failure the processes are stopped, and the cluster is left as it is: it is of no more use.
    """
    directory.mkdir(parents=True)
    with connected(plane.kubeconfig, namespace) as cluster:
        cluster.prepare()
        with ExitStack() as stack:
            yield Stage(
                release=release,
                binary=binary,
                plane=plane,
                cluster=cluster,
                directory=directory,
                stack=stack,
                clouds={},
            )
        cluster.clean()
