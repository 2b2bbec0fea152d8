"""EC2: moto, behind a proxy of the tests that adds what moto lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.drivers.ec2.driver import Ec2Driver
from cloudgraft.drivers.ec2.options import Ec2Options
from clouds.judge import Case, Judge, Tell
from clouds.servers.aws_cloud import AwsCloud, tags_of
from clouds.servers.aws_proxy import Fault, Kind
from clouds.servers.moto_server import IMAGE
from clouds.trial import is_served
from e2e.cloudgraft_process import CloudgraftServer
from e2e.waiting import until

__all__ = ["JUDGE", "Ec2Judge", "driver_for", "troubled"]

MACHINE: Final[Mapping[str, object]] = {"shape": "t3.micro", "image": IMAGE}
_PAGE: Final = 5
_LAG: Final = timedelta(seconds=1)
_LIST_DELAY: Final = "2s"
_SECONDS: Final = 60.0
_FAULTS: Final[Mapping[Trouble, Fault]] = {
    Trouble.QUOTA: Fault(code="VcpuLimitExceeded", message="You have requested more vCPU capacity than your limit"),
    Trouble.STOCK_OUT: Fault(code="InsufficientInstanceCapacity", message="We have no capacity", status=500),
    Trouble.RATE_LIMIT: Fault(code="RequestLimitExceeded", message="Request limit exceeded.", status=503),
    Trouble.ERROR_AFTER: Fault(kind=Kind.HTML, status=503),
    Trouble.LOST_ANSWER: Fault(kind=Kind.LOST),
}


def driver_for(options: Mapping[str, Any], **changes: Any) -> Ec2Driver:
    """A driver with these options, as they are in a file."""
    given = Ec2Options(
        region=options["region"],
        endpoint_url=options["endpointUrl"],
        access_key_id_file=Path(options["accessKeyIdFile"]),
        secret_access_key_file=Path(options["secretAccessKeyFile"]),
        shapes=tuple(options.get("shapes", ())),
    )
    return Ec2Driver(dataclasses.replace(given, **changes))


def troubled(cloud: AwsCloud, **changes: Any) -> Callable[[Trouble], Ec2Driver]:
    """Makes drivers whose cloud is in trouble: each has a key of its own, and only its calls go wrong."""

    def make(trouble: Trouble) -> Ec2Driver:
        options = cloud.account(trouble.name)
        if trouble is Trouble.AWAY:
            options["endpointUrl"] = "http://127.0.0.1:9"
        elif trouble is Trouble.AUTHENTICATION:
            options = cloud.options(trouble.name, "AKIANOBODY", "not-the-secret")
        else:
            key = Path(options["accessKeyIdFile"]).read_text("utf-8").strip()
            action = "" if trouble is Trouble.RATE_LIMIT else "RunInstances"
            fault = _FAULTS[trouble]
            times = None if fault.kind is Kind.ERROR else 1
            cloud.proxy.order(dataclasses.replace(fault, action=action, key=key, times=times))
        return driver_for(options, **changes)

    return make


class Ec2Judge(Judge):
    """Needs nothing but what is on PyPI."""

    driver = "ec2"

    def missing(self) -> str:
        """Whether moto is installed."""
        lacking = [name for name in ("moto", "flask", "flask_cors") if find_spec(name) is None]
        return f"{lacking[0]} is not installed: pip install 'moto[ec2,autoscaling]' flask flask-cors" if lacking else ""

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        """Starts both."""
        tell(f"moto {version('moto')} is starting ...")
        with AwsCloud(directory) as cloud:
            # moto's list is never late; with the engine, in `more`, the proxy makes it so.
            options = {**cloud.account(), "listDelay": "0s", "pageSize": _PAGE}
            options |= {"shapes": [MACHINE["shape"]], "prices": {MACHINE["shape"]: "0.0104"}}
            yield Case(
                judged_by=f"moto {version('moto')} behind a proxy of ours (tokens, signatures, faults)",
                cloud={"driver": "ec2", **options},
                settings=DriverSettings(
                    machine=MACHINE,
                    page_size=_PAGE,
                    secrets=(Path(options["secretAccessKeyFile"]).read_text("utf-8").strip(),),
                    troubled=troubled(cloud),
                ),
                alive=cloud.alive,
                more=_more(cloud, {"driver": "ec2", **options}, directory),
            )


def _more(cloud: AwsCloud, section: Mapping[str, Any], directory: Path) -> Mapping[str, Callable[[], None]]:
    engine = _Engine(cloud, section, directory)
    return {
        "two clusters of one name": engine.leaves_the_other_cluster_alone,
        "a create whose answer is lost makes one instance": engine.makes_one_instance_when_answers_are_lost,
        "an instance that is terminated by hand is noticed": engine.notices_what_was_terminated,
        "a stock-out is told in the autoscaler's words": engine.tells_a_stock_out,
    }


class _Engine:
    """What is to be seen of EC2 through the engine."""

    def __init__(self, cloud: AwsCloud, section: Mapping[str, Any], directory: Path) -> None:
        self._cloud = cloud
        engine = {"observeEvery": "1s", "backoff": {"initial": "1s", "max": "1s"}}
        self._section = {**section, "listDelay": _LIST_DELAY, "engine": engine}
        self._directory = directory

    def leaves_the_other_cluster_alone(self) -> None:
        """Two servers with the same `cluster` in one account: each has its own id, and its own instances."""
        with self._server("first") as first, self._server("second") as second:
            self._grow(first, 2)
            self._grow(second, 1)
            ours = {machine["name"] for machine in self._machines(first)}
            self._shrink(second)
            assert set(self._cloud.alive()) == ours, self._cloud.alive()
            owners = {tags_of(one)["cloudgraft-cluster-id"] for one in self._cloud.instances()}
            assert len(owners) == 1, owners
            self._shrink(first)

    def makes_one_instance_when_answers_are_lost(self) -> None:
        """The request is carried out, and the connection is reset; twice, since the engine asks again."""
        with self._server("lost") as server:
            self._cloud.proxy.order(Fault(kind=Kind.LOST, action="RunInstances", times=2))
            self._grow(server, 1)
            names = [machine["name"] for machine in self._machines(server)]
            assert self._cloud.alive() == names, (self._cloud.alive(), names)
            self._shrink(server)

    def notices_what_was_terminated(self) -> None:
        """By hand, past the driver."""
        with self._server("terminated") as server:
            self._grow(server, 2)
            (doomed, _) = self._cloud.instances()
            self._cloud.terminate(doomed["InstanceId"])
            until(lambda: server.targets() == {"judged": 1}, "one is left", seconds=_SECONDS, check=server.check)
            self._shrink(server)

    def tells_a_stock_out(self) -> None:
        """The group's machine fails with the class that makes the autoscaler turn to another group."""
        with self._server("full") as server:
            fault = dataclasses.replace(_FAULTS[Trouble.STOCK_OUT], action="RunInstances", times=1)
            self._cloud.proxy.order(fault)
            server.call("NodeGroupIncreaseSize", {"id": "judged", "delta": 1})
            failed = {"judged": {"failed": 1}}
            until(lambda: server.states() == failed, "it failed", seconds=_SECONDS, check=server.check)
            (machine,) = self._machines(server)
            assert "out_of_stock" in str(machine), machine

    # -- steps ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _server(self, name: str) -> Iterator[CloudgraftServer]:
        home = self._directory / name
        home.mkdir()
        group = {"id": "judged", "cloud": "judged", "minSize": 0, "maxSize": 4, "machine": dict(MACHINE)}
        server = CloudgraftServer(
            home, {"cluster": "judged", "clouds": {"judged": self._section}, "nodeGroups": [group]}
        )
        self._cloud.proxy.lag = _LAG
        server.start()
        try:
            until(lambda: is_served(server), "the group is served", seconds=_SECONDS, check=server.check)
            yield server
        finally:
            server.stop()
            self._cloud.proxy.clear()

    @staticmethod
    def _machines(server: CloudgraftServer) -> list[dict[str, Any]]:
        return list(server.groups()["judged"]["machines"])

    @staticmethod
    def _grow(server: CloudgraftServer, count: int) -> None:
        server.call("NodeGroupIncreaseSize", {"id": "judged", "delta": count})
        running = {"judged": {"running": count}}
        until(lambda: server.states() == running, "the machines run", seconds=_SECONDS, check=server.check)

    def _shrink(self, server: CloudgraftServer) -> None:
        machines = self._machines(server)
        nodes = [{"providerID": machine["providerId"], "name": machine["name"]} for machine in machines]
        server.call("NodeGroupDeleteNodes", {"id": "judged", "nodes": nodes})
        until(lambda: not server.states(), "they are gone", seconds=_SECONDS, check=server.check)
        left = {machine["name"] for machine in machines} & set(self._cloud.alive())
        assert not left, left


JUDGE: Final = Ec2Judge()
