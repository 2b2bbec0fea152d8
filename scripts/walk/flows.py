"""The server that is walked through, and the five flows.

The server is the command ``cloudgraft serve`` in this process, with grpcio's transport, a journal on disk and the
simulated cloud. It has the main thread, as it must for its signals. The flows are driven from a second thread, over a
real connection, by a client that is not of cloudgraft, so that nothing of the client is counted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
from google.protobuf import message_factory

from cloudgraft.cli.main import cloudgraft
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from scripts.walk.recorder import Recorder
from scripts.walk.result import SOURCE, Flow, Walk, walk_of

INCREASE = Flow(
    key="increase",
    title="IncreaseSize",
    what="From NodeGroupIncreaseSize to the moment when NodeGroupNodes lists the machine as running: the intent is "
    "written to the journal, the call is answered, the cloud is asked for a machine, and a list of the cloud shows "
    "that it runs.",
    most_modules=45,
)
FOR_NODE = Flow(
    key="forNode",
    title="NodeGroupForNode",
    what="One call that asks to which group the node of that machine belongs, and its answer.",
    most_modules=12,
)
VANISHED = Flow(
    key="vanished",
    title="A machine vanishes",
    what="From the moment when the machine is gone from its cloud, without anybody's order, to the moment when "
    "NodeGroupNodes lists it no more: two lists of the cloud have missed it, and the journal has it as gone.",
)
RELOAD = Flow(
    key="reload",
    title="The configuration changes",
    what="From SIGHUP, with a larger `maxSize` in the file, to the moment when NodeGroups shows it.",
)
INSTALLED = Flow(
    key="installed",
    title="A driver of an installed package",
    what="From SIGHUP, with a cloud in the file whose driver another Python package brings along, to the moment when "
    "NodeGroups shows its group: the driver is found, gets its options, is started and lists its machines.",
)
FLOWS = (INCREASE, FOR_NODE, VANISHED, RELOAD, INSTALLED)

_PATIENCE = 30.0  # seconds that anything may take
_CHORES = 2.5  # seconds in which everything is done that is done by itself: some of it once a second
_OFTEN, _SELDOM = "200ms", "1h"  # how often the cloud is listed: while a flow waits for that, and otherwise
_RUNNING = pb.InstanceStatus.InstanceState.Value("instanceRunning")
_DRIVER = '''
from dataclasses import dataclass

from cloudgraft.sdk import BlockingDriver

@dataclass(frozen=True, kw_only=True)
class Options:
    region: str

class Driver(BlockingDriver):
    """A cloud without machines."""

    Options = Options

    def __init__(self, options):
        self.options = options

    def create(self, spec):
        raise NotImplementedError

    def delete(self, machine):
        raise NotImplementedError

    def list(self):
        return []
'''


def walk_all(rounds: int) -> list[Walk]:
    """Starts the server, walks through every flow so many times, and ends the server."""
    simulation = SimulatedCloud.__module__.rpartition(".")[0]
    recorder = Recorder(SOURCE, apart=simulation)
    with tempfile.TemporaryDirectory(prefix="walk-") as folder, _noted_clouds() as clouds:
        _install_driver(Path(folder) / "packages")
        walker = _Walker(Path(folder), recorder, clouds, rounds)
        recorder.start()
        try:
            walker.start()
            cloudgraft(["serve", "--config", str(walker.config), "-v", "1"], standalone_mode=False)
        finally:
            recorder.stop()
        walker.join(_PATIENCE)
    if walker.error is not None:
        raise walker.error
    return [walk_of(flow, walker.found[flow.key], cloud=simulation) for flow in FLOWS]


@contextmanager
def _noted_clouds() -> Iterator[list[SimulatedCloud]]:
    """The simulated clouds that are made meanwhile: nothing hands out the one that is inside a server."""
    made: list[SimulatedCloud] = []
    construct = SimulatedCloud.__init__

    def noted(self: SimulatedCloud, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        made.append(self)

    with mock.patch.object(SimulatedCloud, "__init__", noted):
        yield made


def _install_driver(folder: Path) -> None:
    """Puts a package with a driver where Python finds it."""
    folder.mkdir()
    (folder / "walk_driver.py").write_text(_DRIVER)
    metadata = folder / "walk_driver-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-driver\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[cloudgraft.drivers]\nwalk = walk_driver:Driver\n")
    sys.path.append(str(folder))


class _Walker(threading.Thread):
    """Drives the flows, round by round, and then ends the server."""

    def __init__(self, folder: Path, recorder: Recorder, clouds: Sequence[SimulatedCloud], rounds: int) -> None:
        super().__init__(name="walker", daemon=True)
        self.config = folder / "cloudgraft.yaml"
        self.found: dict[str, list[Sequence[str]]] = {flow.key: [] for flow in FLOWS}
        self.error: Exception | None = None
        self._listen = f"unix:{folder / 'grpc'}"
        self._recorder = recorder
        self._clouds = clouds
        self._rounds = rounds
        self._max_size = 1
        self._write_config(_SELDOM)

    def run(self) -> None:
        """Walks through all rounds."""
        try:
            with grpc.insecure_channel(self._listen) as self._channel:
                grpc.channel_ready_future(self._channel).result(_PATIENCE)
                self._until(self._is_served)
                with self._recorder.learning_chores():
                    time.sleep(_CHORES)
                for _ in range(self._rounds):
                    self._round()
        except Exception as error:  # noqa: BLE001 - raised again by the main thread
            self.error = error
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _round(self) -> None:
        self._reconfigure(_OFTEN)
        with self._noted(INCREASE):
            self._until(self._has_running, after=lambda: self._call("NodeGroupIncreaseSize", id="small", delta=1))
        instance = self._instances()[0]
        self._reconfigure(_SELDOM)
        with self._noted(FOR_NODE):
            self._call("NodeGroupForNode", node={"name": instance.id, "providerID": instance.id})
        self._reconfigure(_OFTEN)
        with self._noted(VANISHED, first=self._vanish):
            self._until(lambda: not self._instances())
        self._reconfigure(_SELDOM)
        with self._noted(RELOAD):
            self._reconfigure(_SELDOM)
        with self._noted(INSTALLED):
            self._reconfigure(_SELDOM, with_package=True)
        self._reconfigure(_SELDOM)

    @contextmanager
    def _noted(self, flow: Flow, *, first: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Counts what is entered from ``first`` on, while the block lasts and until the server is at rest again.

        It begins when what was before has come to rest.
        """
        self._recorder.wait_for_calm(self._recorder.mark() - 1)
        first()
        mark = self._recorder.mark()
        yield
        self._recorder.wait_for_calm(mark)
        self.found[flow.key].append(self._recorder.since(mark))

    def _vanish(self) -> None:
        """Removes the machine, as the owner of the cloud would."""
        cloud = self._clouds[0]
        cloud.vanish(cloud.machines()[0].machine_id)

    # -- the server's configuration ------------------------------------------------------------------------------------

    def _reconfigure(self, observe_every: str, *, with_package: bool = False) -> None:
        """Changes the file and waits until the server shows that it has taken it in."""
        self._max_size += 1
        self._write_config(observe_every, with_package=with_package)
        wanted = {"small": self._max_size} | ({"installed": 1} if with_package else {})
        tell = lambda: os.kill(os.getpid(), signal.SIGHUP)  # noqa: E731 - as short as it is
        self._until(lambda: self._refreshed_groups() == wanted, after=tell)

    def _write_config(self, observe_every: str, *, with_package: bool = False) -> None:
        clouds: dict[str, Any] = {
            "sim": {"driver": "simulated", "bootTime": "0s", "engine": {"observeEvery": observe_every}}
        }
        groups = [{"id": "small", "cloud": "sim", "maxSize": self._max_size, "machine": {"shape": "small"}}]
        if with_package:
            clouds["package"] = {"driver": "walk", "region": "north"}
            capacity = {"capacity": {"cpu": "2", "memory": "4Gi"}}
            groups.append({"id": "installed", "cloud": "package", "maxSize": 1, "template": capacity})
        content = {
            "cluster": "walk",
            "server": {"listen": self._listen, "ops": None, "transport": "grpcio"},
            "engine": {"massAbsence": {"few": self._rounds}},  # one vanishes in every round, and is believed at once
            "clouds": clouds,
            "nodeGroups": groups,
        }
        whole = self.config.with_suffix(".new")
        whole.write_text(json.dumps(content))  # which is YAML too
        whole.replace(self.config)

    # -- the autoscaler's calls ----------------------------------------------------------------------------------------

    def _call(self, name: str, **fields: Any) -> Any:
        service = pb.DESCRIPTOR.services_by_name["CloudProvider"]
        method = service.methods_by_name[name]
        request = message_factory.GetMessageClass(method.input_type)
        call = self._channel.unary_unary(
            f"/{service.full_name}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
        )
        return call(request(**fields), timeout=_PATIENCE)

    def _is_served(self) -> bool:
        try:
            return bool(self._refreshed_groups())
        except grpc.RpcError:  # until the cloud was listed for the first time
            return False

    def _refreshed_groups(self) -> Mapping[str, int]:
        """The largest size of each group."""
        self._call("Refresh")
        return {group.id: group.maxSize for group in self._call("NodeGroups").nodeGroups}

    def _instances(self) -> Sequence[Any]:
        found: Sequence[Any] = self._call("NodeGroupNodes", id="small").instances
        return found

    def _has_running(self) -> bool:
        return any(instance.status.instanceState == _RUNNING for instance in self._instances())

    def _until(self, condition: Callable[[], bool], *, after: Callable[[], object] = lambda: None) -> None:
        """Does what is to be done first, and returns once the condition holds.

        Each question is itself a part of the way, so it is asked only when something has happened and is over.
        """
        end = time.monotonic() + _PATIENCE
        mark = self._recorder.mark()
        after()
        while True:
            self._recorder.wait_for_calm(mark)
            if condition():
                return
            if time.monotonic() > end:
                raise TimeoutError(f"the server did not get there within {_PATIENCE:g} s")
            mark = self._recorder.mark()
