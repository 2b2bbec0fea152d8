"""Whatever goes wrong while a machine is created: told to the autoscaler, in `status` and by an event, and no machine
is left over.

A cloud that is played by a fake, its driver, the engine on a clock in one's hand, the server, and the autoscaler's
calls over gRPC. What a cloud refuses fails at once; what may pass is tried again until the machine's time is up, and
says meanwhile in `status` what it waits for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from cloudgraft.cli.status import command
from cloudgraft.client.cloud_config import Address, CloudConfig
from cloudgraft.client.connection import Connection
from cloudgraft.client.remote import RemoteProvider
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.reporting.webhook import Webhook, WebhookSettings
from cloudgraft.joining.claims import NewMachine
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Instance, InstanceState, NodeRef
from cloudgraft.store.sql import SqlJournal
from cloudgraft.testing import serving
from clouds.servers.aws_cloud import AwsCloud
from tests.cli.operator_rig import admin_socket
from tests.conditions import until
from tests.drivers import fault_stages
from tests.drivers.fault_stages import CLUSTER, Fault, Stage, Trouble
from tests.engine import webhook_receiver
from tests.engine.engine_rig import HandClock, fake
from tests.engine.scripted_cloud import group

STAGES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Stage]]]] = {
    "hetzner": fault_stages.hetzner,
    "proxmox": fault_stages.proxmox,
    "openstack": fault_stages.openstack,
    "libcloud": fault_stages.digital_ocean,
    "redfish": fault_stages.redfish,
    "router": fault_stages.router,
}
OUT_OF_RESOURCES, OTHER = 1, 99
SMALL: Final = TemplateDeclaration(capacity={"cpu": Quantity(2), "memory": Quantity("4Gi")})  # as Hetzner's cx23 is
CODES: Final = {  # by which it is told when a cloud refuses; the others are tried again, or settled
    Fault.CREDENTIALS: ("unauthenticated", OTHER),
    Fault.PERMISSION: ("permission_denied", OTHER),
    Fault.IMAGE: ("invalid_argument", OTHER),
    Fault.QUOTA: ("quota_exceeded", OUT_OF_RESOURCES),
    Fault.STOCK_OUT: ("out_of_stock", OUT_OF_RESOURCES),
    Fault.USER_DATA: ("invalid_argument", OTHER),
}
PASSING: Final = (Fault.RATE_LIMIT, Fault.SERVER_ERROR)
LOST: Final = (Fault.RESET, Fault.HANG)  # the machine is made, and nobody is told
NOT_IN: Final = {  # what a cloud cannot have; see its stage
    "proxmox": {Fault.QUOTA, Fault.USER_DATA},
    "redfish": {Fault.QUOTA, Fault.STOCK_OUT, Fault.HANG},
}
SAMPLE: Final = {  # a fault of each cloud in `make test`; all of them in `make test-thorough`
    ("hetzner", Fault.QUOTA),
    ("proxmox", Fault.PERMISSION),
    ("openstack", Fault.STOCK_OUT),
    ("libcloud", Fault.SERVER_ERROR),
    ("redfish", Fault.CREDENTIALS),
    ("router", Fault.STOCK_OUT),
    ("ec2", Fault.RESET),
    ("ec2", Fault.RATE_LIMIT),
    ("openstack", Fault.HANG),
}


def combinations() -> Iterator[Any]:
    for cloud in (*STAGES, "ec2"):
        for fault in Fault:
            if fault in NOT_IN.get(cloud, ()):
                continue
            marks = [] if (cloud, fault) in SAMPLE else [pytest.mark.thorough]
            if cloud == "ec2":
                marks.append(pytest.mark.xdist_group("ec2"))  # moto is started once
            yield pytest.param(cloud, fault, id=f"{cloud}-{fault.value}", marks=marks)


class Words:
    """What machines are told when they boot."""

    def __init__(self) -> None:
        self.text = ""

    async def make(self, machine: NewMachine) -> str:
        return self.text

    async def settle(self, name: str) -> None:
        """Nothing was given to it."""


@dataclass(kw_only=True)
class Scene:
    """Everything between the autoscaler and a cloud; two groups, of which one asks for what the trouble says."""

    stage: Stage
    engine: Engine
    clock: HandClock
    words: Words
    autoscaler: RemoteProvider
    config: Path  # by which commands find the server
    got: list[tuple[Mapping[str, str], Any]]  # what the webhook received
    work: asyncio.Task[None] | None = None  # a pass of the engine that has not come to its end

    async def turns(self, count: int, seconds: float = 10.0) -> None:
        """Time passes, and the engine works. Whatever it waits for, the autoscaler is answered."""
        for _ in range(count):
            self.clock.advance(seconds)
            work = asyncio.create_task(self.engine.turn())
            await self.autoscaler.refresh()
            await self.autoscaler.node_groups()
            await work

    async def instance(self, id_: str = "troubled") -> Instance:
        (found,) = await self.autoscaler.instances(id_)
        return found

    async def machine(self, id_: str = "troubled") -> Mapping[str, Any]:
        """The only one that `cloudgraft status` shows as in trouble."""
        groups = (await self.status())["groups"]
        (shown,) = [machine for each in groups if each["id"] == id_ for machine in each["machines"]]
        found: Mapping[str, Any] = shown
        return found

    async def status(self) -> Mapping[str, Any]:
        done = await asyncio.to_thread(CliRunner().invoke, command, ["-o", "json", "--config", str(self.config)])
        assert done.exit_code == 0, done.output
        report: Mapping[str, Any] = json.loads(done.stdout)
        return report

    async def ends_work(self) -> None:
        if self.work is not None:
            await self.work

    async def hears(self, told: str, *kinds: str) -> None:
        """Whoever listens at the webhook has got an event of these kinds, in these words."""

        def is_heard() -> bool:
            return any(body["kind"] in kinds and told in body["message"] for _, body in list(self.got))

        await until(is_heard, what=f"an event with {told!r} in {[body['message'] for _, body in self.got]}")

    async def expects_no_secrets(self) -> None:
        shown = (
            json.dumps(await self.machine()) + str(await self.instance()) + json.dumps([body for _, body in self.got])
        )
        assert not [secret for secret in self.stage.secrets if secret in shown]


@asynccontextmanager
async def playing(stage: Stage, trouble: Trouble, directory: Path) -> AsyncIterator[Scene]:
    clock, words = HandClock(), Words()
    cloud = CloudDeclaration(settings=CloudSettings(name="a"), make=lambda: stage.driver)
    troubled = group("troubled", machine={**stage.machine, **trouble.machine}, template=SMALL)
    desired_state = DesiredState(
        cluster=CLUSTER,
        clouds={"a": cloud},
        groups=[group("well", machine=stage.machine, template=SMALL), troubled],
        settings=EngineSettings(create_deadline=timedelta(minutes=10)),
    )
    journal = SqlJournal.sqlite(directory / "journal.db")
    engine = Engine(desired_state, journal, clock=clock, is_stepped=True, user_data=words)
    with contextmanager(webhook_receiver.serving)(webhook_receiver.Receiver()) as receiver:
        settings = WebhookSettings(url=f"http://{receiver.address}/", kinds=("state", "retry"))
        webhook = Webhook(settings, CLUSTER)
        engine.writer.subscribe(webhook.tell)
        webhook.start()
        async with serving(EngineProvider(engine)) as served, admin_socket(engine) as config:
            address = CloudConfig(address=Address.parse(served.address))
            async with Connection(address) as connection:
                scene = Scene(
                    stage=stage,
                    engine=engine,
                    clock=clock,
                    words=words,
                    autoscaler=RemoteProvider(connection),
                    config=config,
                    got=receiver.got,
                )
                while engine.trouble():  # at a first start, calls are refused until the cloud was listed
                    clock.advance(10.0)
                    await engine.turn()
                await scene.turns(1)
                yield scene
        webhook.close()


@pytest.fixture
def stage(request: pytest.FixtureRequest, cloud: str, tmp_path: Path) -> Iterator[Stage]:
    if cloud == "ec2":
        aws: AwsCloud = request.getfixturevalue("aws")
        opened: AbstractContextManager[Stage] = fault_stages.ec2(aws)
    else:
        opened = STAGES[cloud](tmp_path)
    with opened as made:
        yield made


@pytest.mark.parametrize(("cloud", "fault"), list(combinations()))
async def test_a_fault_is_told_to_everybody_and_leaves_nothing(stage: Stage, fault: Fault, tmp_path: Path) -> None:
    trouble = stage.troubles[fault]
    async with playing(stage, trouble, tmp_path) as scene:
        scene.words.text = trouble.user_data
        await scene.autoscaler.increase_size("troubled", 1)
        with trouble.lasts():
            if fault is Fault.HANG:
                await _is_waited_for_by_nobody(scene)
            else:
                await scene.turns(2)
            if fault in PASSING:
                await _is_tried_again(scene, trouble)
            elif fault in CODES:
                await _is_refused(scene, trouble, *CODES[fault])
        if fault in LOST:
            await _is_settled(scene, trouble)
        scene.words.text = ""
        await _recovers(scene)


async def _is_refused(scene: Scene, trouble: Trouble, code: str, error_class: int) -> None:
    """At once: the autoscaler turns to another group in its next loop."""
    instance = await scene.instance()
    assert instance.state is InstanceState.CREATING, "an error of another state is not seen (R34)"
    assert instance.error is not None
    assert (instance.error.code, instance.error.error_class) == (code, error_class)
    assert trouble.told in instance.error.message
    shown = await scene.machine()
    assert shown["state"] == "failed"
    assert shown["error"] == {"code": code, "message": instance.error.message, "errorClass": error_class}
    await scene.hears(trouble.told, "state", "cloud_down")
    await scene.expects_no_secrets()
    assert await scene.autoscaler.target_size("troubled") == 1, "it counts until it is deleted (law 5)"


async def _is_tried_again(scene: Scene, trouble: Trouble) -> None:
    """It may pass: no error for the autoscaler yet, but a person sees why it takes so long."""
    assert (await scene.instance()).error is None
    shown = await scene.machine()
    assert shown["state"] in ("creating", "booting"), "a host is taken before it is switched on"
    assert shown["error"] is None
    assert trouble.told in shown["trouble"]
    await scene.hears(trouble.told, "retry", "unsettled")
    await scene.turns(4, 200.0)
    await _is_refused(scene, trouble, "deadline", OTHER)


async def _is_waited_for_by_nobody(scene: Scene) -> None:
    """While the cloud is silent, the autoscaler and people are answered (law 1)."""
    scene.clock.advance(10.0)
    scene.work = asyncio.create_task(scene.engine.turn())
    await until(lambda: len(scene.stage.alive()) == 1, what="the create is under way")
    await scene.autoscaler.refresh()
    instance = await scene.instance()
    assert (instance.state, instance.error) == (InstanceState.CREATING, None)
    (cloud,) = (await scene.status())["clouds"]
    assert cloud["callsUnderWay"] == 1
    assert not scene.work.done()


async def _is_settled(scene: Scene, trouble: Trouble) -> None:
    """It was made, and a list shows it; that its outcome was open is an event, and no error."""
    await scene.ends_work()
    await _runs(scene, "troubled")
    if trouble.told:
        await scene.hears(trouble.told, "unsettled")
    assert len(scene.stage.alive()) == 1


async def _recovers(scene: Scene) -> None:
    """The fault is over: the autoscaler deletes what failed, and gets what it asks for, and nothing is left over."""
    node = fake(await scene.instance())
    await scene.autoscaler.delete_nodes("troubled", [node])
    await until(lambda: _after_a_turn(scene, lambda: not scene.stage.alive()), what="nothing is left in the cloud")
    assert await scene.autoscaler.target_size("troubled") == 0
    await scene.autoscaler.increase_size("well", 1)
    await _runs(scene, "well")
    assert len(scene.stage.alive()) == await scene.autoscaler.target_size("well") == 1
    last = NodeRef(name="last", provider_id=(await scene.instance("well")).id)
    await scene.autoscaler.delete_nodes("well", [last])
    await until(lambda: _after_a_turn(scene, lambda: not scene.stage.alive()), what="the last one is gone")


async def _runs(scene: Scene, id_: str) -> None:
    """A fake takes its own time, which is not that of the engine's clock."""

    async def is_running() -> bool:
        await scene.turns(1)
        (instance,) = await scene.autoscaler.instances(id_)
        assert instance.error is None, instance
        return instance.state is InstanceState.RUNNING

    await until(is_running, what=f"the machine of {id_} runs")


async def _after_a_turn(scene: Scene, condition: Callable[[], bool]) -> bool:
    await scene.turns(1)
    return condition()
