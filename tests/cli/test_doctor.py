"""`cloudgraft doctor` as a command: against a real server, a real engine, and a small Kubernetes API."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cloudgraft.admin.client import AdminClient
from cloudgraft.certs.authority import create_bundle
from cloudgraft.cli.doctor import command
from cloudgraft.client import CloudConfig, RemoteProvider
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.simcloud.chaos import Chaos
from tests.cli.operator_rig import Operator, operating
from tests.cli.serve_process import serving_file
from tests.conditions import until
from tests.doctor.small_api import SmallApi, node, serving, with_autoscaler
from tests.engine.engine_rig import Rig, group

CONFIG = """
cluster: prod
server:
  listen: 127.0.0.1:0
  tls: {cert: certs/server.crt, key: certs/server.key, clientCA: certs/ca.crt,
        allowedClients: [cluster-autoscaler-grpc-client]}
  ops: null
clouds: {sim: {driver: simulated, engine: {observeEvery: 200ms}}}
nodeGroups:
  - {id: trial, cloud: sim, maxSize: 3, machine: {shape: small}, template: {labels: {pool: lab}}}
"""


def doctor(*arguments: object, code: int) -> Result:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def ids(*arguments: object, code: int) -> set[str]:
    findings = json.loads(doctor(*arguments, "-o", "json", code=code).stdout)["findings"]
    return {finding["id"] for finding in findings}


@pytest.fixture
def api() -> Iterator[SmallApi]:
    with serving(SmallApi()) as found:
        found.put("api/v1/nodes/control-plane", node("control-plane"))
        with_autoscaler(found)
        yield found


@pytest.fixture
def short_path() -> Iterator[Path]:
    """For the server's socket, whose path must be short."""
    with tempfile.TemporaryDirectory(prefix="cg") as directory:
        yield Path(directory)


@pytest.mark.thorough
def test_a_real_server_is_found_clean_and_then_what_is_wrong_with_its_nodes(api: SmallApi, short_path: Path) -> None:
    create_bundle(short_path / "certs", hosts=["localhost", "cloudgraft.kube-system.svc"])
    path, cloud_config, certs = (short_path / name for name in ("cloudgraft.yaml", "cloud-config.yaml", "certs"))
    with serving_file(path, CONFIG) as server:
        port = server.address.rpartition(":")[2]
        cloud_config.write_text(
            f"address: localhost:{port}\nkey: {certs}/client.key\ncert: {certs}/client.crt\ncacert: {certs}/ca.crt\n"
        )
        asyncio.run(_listed(short_path))
        look = ("--config", path, "--cloud-config", cloud_config, "--kubeconfig", api.kubeconfig(short_path))
        assert doctor(*look, code=0).stdout.strip() == "Nothing is wrong, as far as could be seen."
        name, provider_id = asyncio.run(_with_a_machine(cloud_config, short_path))
        api.put(f"api/v1/nodes/{name}", node(name, provider_id.upper()))
        assert ids(*look, code=3) == {"provider-id-case"}
        api.put(f"api/v1/nodes/{name}", node(name, provider_id))
        # Whatever the template promises beyond what a bare node has; the template is asked of the server itself.
        assert ids(*look, code=1) == {"template-label", "template-cache"}


async def _listed(directory: Path) -> None:
    """Until the cloud has been listed once."""
    async with AdminClient(directory / "journal.db.sock") as admin:

        async def is_up() -> bool:
            try:
                status: Any = await admin.call("Status")
            except UnavailableError:
                return False  # it serves, and is not yet there for operators
            return all(cloud["up"] for cloud in status["clouds"])

        await until(is_up, seconds=30)


async def _with_a_machine(cloud_config: Path, directory: Path) -> tuple[str, str]:
    """Orders one, and waits until it runs."""
    provider = RemoteProvider.connect(CloudConfig.load(cloud_config))
    await provider.increase_size("trial", 1)
    await provider.close()
    found: list[tuple[str, str]] = []
    async with AdminClient(directory / "journal.db.sock") as admin:

        async def is_running() -> bool:
            status: Any = await admin.call("Status", {"machines": True})
            machines = [machine for group in status["groups"] for machine in group["machines"]]
            found[:] = [(one["name"], one["providerId"]) for one in machines if one["state"] == "running"]
            return bool(found)

        await until(is_running, seconds=40)
    return found[0]


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    """An engine with trouble of several kinds."""
    settings = EngineSettings(guards=GuardLimits(max_machines=2))
    groups = (group(), group("broken", machine={"shape": "no such shape"}), group("gpu", machine={"shape": "gpu"}))
    async with operating(Rig(tmp_path, groups=groups, settings=settings)) as made:
        made.rig.cloud.set_chaos(Chaos(stock={"gpu": 0}))
        await made.rig.provider.increase_size("gpu", 1)
        await made.rig.settle(5)
        yield made


async def test_trouble_of_a_running_engine_is_reported_with_what_to_do(operator: Operator) -> None:
    # The file of this rig only says where the server listens, so everything else in it is wrong.
    raw = yaml.safe_load(operator.config.read_text())
    answer = await operator.json(command, code=3)
    found = {finding["id"]: finding for finding in answer["findings"]}
    assert {"config-invalid", "group-left-out", "quota-reached"} <= set(found)
    assert found["group-left-out"]["fix"] == "cloudgraft explain broken"
    assert "out_of_stock" in found["quota-reached"]["what"]
    assert answer["errors"] == sum(finding["severity"] == "error" for finding in answer["findings"])
    by_address = await asyncio.to_thread(ids, "--admin", raw["admin"]["listen"], code=3)
    assert {"group-left-out", "quota-reached", "config-missing"} <= by_address


async def test_a_cloud_that_refuses_the_credentials_is_reported_as_such(operator: Operator) -> None:
    worker = next(iter(operator.rig.engine.workers.values()))
    health = worker.observer.health
    health.error, health.code = "401 from the cloud", "unauthenticated"
    answer = await operator.json(command, code=3)
    assert "cloud-credentials-refused" in {finding["id"] for finding in answer["findings"]}


def test_people_get_what_where_why_and_fix(api: SmallApi, tmp_path: Path) -> None:
    with_autoscaler(api, "--scale-down-enabled=false")
    shown = doctor("--kubeconfig", api.kubeconfig(tmp_path), code=1).stdout
    assert "WARNING  scale-down-off: Scale-down is turned off" in shown
    for line in (
        "  where  Deployment kube-system/cluster-autoscaler",
        "  what   --scale-down-enabled=false",
        "  why    Machines are created and never deleted.",
        "  fix    remove --scale-down-enabled=false",
    ):
        assert line in shown.splitlines()
    assert shown.rstrip().endswith("1 warning, 1 note.")


@pytest.mark.parametrize("value", ["nonsense", "a/b/c", "/name", "namespace/"])
def test_an_autoscaler_that_is_not_namespace_and_name_is_wrong_usage(value: str) -> None:
    assert "NAMESPACE/NAME" in doctor("--autoscaler", value, code=2).stderr


def test_an_admin_port_without_certificates_is_reported(api: SmallApi, tmp_path: Path) -> None:
    found = ids("--admin", "localhost:9999", "--kubeconfig", api.kubeconfig(tmp_path), code=1)
    assert found == {"server-unreachable", "config-missing"}


def test_control_characters_of_a_cluster_do_not_reach_the_terminal(api: SmallApi, tmp_path: Path) -> None:
    with_autoscaler(api, image="evil\x1b[2J")
    shown = doctor("--kubeconfig", api.kubeconfig(tmp_path), code=1).stdout
    assert "\x1b[2J" not in shown
    assert "release-unknown" in shown


MACHINE = """
cluster: prod
clouds: {sim: {driver: simulated, stateFile: nowhere/x.db}}
nodeGroups:
  - {id: a, cloud: sim, maxSize: 3, machine: {shape: small, typo: 1}}
  - {id: b, cloud: sim, maxSize: 3, machine: {shape: smal}}
"""


def test_settings_of_machines_and_missing_files_are_checked_as_serve_would(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(MACHINE)
    findings = json.loads(doctor("-c", file, "-o", "json", code=3).stdout)["findings"]
    found = {(one["id"], one["what"].split(": ")[1]) for one in findings if one["id"].startswith("config-")}
    invalid, incomplete = "config-invalid", "config-incomplete"
    assert found == {
        (invalid, "nodeGroups[0].machine.typo"),
        (incomplete, "clouds.sim.stateFile"),
        (incomplete, "nodeGroups[1].machine.shape"),
    }
    file.write_text(f"{MACHINE}server: {{listen: 1}}\n")
    wrong = json.loads(doctor("-c", file, "-o", "json", code=3).stdout)["findings"]
    assert sum(one["id"] == invalid for one in wrong) == 4
