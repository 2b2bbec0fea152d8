"""Logins, requests and flavours of an OpenStack cloud."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudgraft.drivers.openstack.driver import OpenstackDriver
from cloudgraft.drivers.openstack.options import Interface, MachineSettings, OpenstackOptions
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
)
from cloudgraft.sdk.secrecy import redacted
from cloudgraft.validation import read_settings
from clouds.servers.openstack_fake import PASSWORD, SECRET, FakeOpenstack
from clouds.servers.openstack_fake_state import GROUP, IMAGE, NETWORK
from tests.drivers.openstack.openstack_clouds import TAGS, driver, spec


@pytest.fixture
def cloud() -> Iterator[FakeOpenstack]:
    with FakeOpenstack() as fake:
        yield fake


def ordered(cloud: FakeOpenstack, directory: Path, order: MachineSpec) -> Mapping[str, Any]:
    made = driver(cloud, directory).create(order)
    return cloud.project.servers[made.machine_id].order


def test_an_order_has_all_that_its_group_says(cloud: FakeOpenstack, tmp_path: Path) -> None:
    order = spec(
        user_data="#!/bin/sh\n",
        securityGroups=["default", "nodes"],
        keyPair="ops",
        zone="nova",
        serverGroup="apart",
        configDrive=True,
        metadata={"team": "batch"},
    )
    assert ordered(cloud, tmp_path, order) == {
        "server": {
            "name": "one",
            "flavorRef": "1",
            "imageRef": IMAGE,
            "networks": [{"uuid": NETWORK}],
            "metadata": {"team": "batch", **TAGS},
            "user_data": base64.b64encode(b"#!/bin/sh\n").decode(),
            "security_groups": [{"name": "default"}, {"name": "nodes"}],
            "key_name": "ops",
            "availability_zone": "nova",
            "config_drive": True,
        },
        "os:scheduler_hints": {"group": GROUP},
    }


def test_a_boot_volume_is_made_and_deleted_by_nova_itself(cloud: FakeOpenstack, tmp_path: Path) -> None:
    server = ordered(cloud, tmp_path, spec(image=IMAGE, bootVolume={"size": 20, "type": "ssd"}))["server"]
    assert "imageRef" not in server
    assert server["block_device_mapping_v2"] == [
        {
            "boot_index": 0,
            "uuid": IMAGE,
            "source_type": "image",
            "destination_type": "volume",
            "volume_size": 20,
            "volume_type": "ssd",
            "delete_on_termination": True,
        }
    ]


@pytest.mark.parametrize(("given", "sent"), [([], "auto"), (["auto"], "auto"), (["none"], "none")])
def test_networks_may_be_novas_own_words(cloud: FakeOpenstack, tmp_path: Path, given: list[str], sent: str) -> None:
    assert ordered(cloud, tmp_path, spec(networks=given))["server"]["networks"] == sent


def test_many_orders_ask_for_names_once_and_lists_have_no_filter(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    for number in range(5):
        one.create(spec(f"m{number}"))
    one.list()
    asked = [request for request in cloud.requests if "/identity" not in request]
    assert sum("/images" in request for request in asked) == 1
    assert sum("/flavors" in request for request in asked) == 1
    lists = [request for request in asked if "/servers/detail" in request]
    assert lists[0] == "GET /compute/v2.1/servers/detail"
    assert len(lists) == 2, "the second shows that there is no more"


@pytest.mark.parametrize("is_regional", [False, True])
def test_a_provider_id_is_the_one_that_the_cloud_controller_writes(
    cloud: FakeOpenstack, tmp_path: Path, is_regional: bool
) -> None:
    one = driver(cloud, tmp_path, region="here", regionalProviderID=is_regional)
    made = one.create(spec())
    (machine,) = one.list()
    region = "here" if is_regional else ""
    assert made.provider_id == machine.provider_id == f"openstack://{region}/{made.machine_id}"


def test_flavours_are_shapes(cloud: FakeOpenstack, tmp_path: Path) -> None:
    cloud.project.page = 3
    shapes = {s.name: s for s in driver(cloud, tmp_path, region="here", gpus={"a100": "nvidia.com/gpu"}).shapes()}
    small, gpu = shapes["m1.small"], shapes["g1.gpu"]
    assert {key: str(value) for key, value in small.capacity.items()} == {
        "cpu": "2",
        "memory": "2048Mi",
        "ephemeral-storage": "20Gi",
    }
    assert {key: str(value) for key, value in gpu.capacity.items()} == {
        "cpu": "8",
        "memory": "32768Mi",
        "nvidia.com/gpu": "2",
    }
    assert small.labels == {
        "node.kubernetes.io/instance-type": "m1.small",
        "topology.kubernetes.io/region": "here",
    }


# -- who we are --------------------------------------------------------------------------------------------------------


def clouds_yaml(cloud: FakeOpenstack, file: Path, password: str = PASSWORD) -> None:
    auth = {"auth_url": cloud.auth_url, "username": "judge", "project_name": "lab", "password": password}
    domains = {"user_domain_name": "Default", "project_domain_name": "Default"}
    file.write_text(yaml.safe_dump({"clouds": {"lab": {"auth": {**auth, **domains}, "region_name": "here"}}}))


def test_clouds_yaml_gives_credentials_and_its_secrets_are_hidden(cloud: FakeOpenstack, tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    clouds_yaml(cloud, file)
    one = OpenstackDriver(OpenstackOptions(cloud="lab", config_file=file))
    one.start()
    assert one.list() == []
    assert redacted(PASSWORD) == "[secret]"


@pytest.mark.parametrize("where", ["beside", "usual"])
def test_changed_secrets_are_read_again_wherever_they_are(
    cloud: FakeOpenstack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    file, secure = tmp_path / "clouds.yaml", tmp_path / "secure.yaml"
    clouds_yaml(cloud, file, "an-old-password")
    monkeypatch.setattr("openstack.config.loader.CONFIG_FILES", [str(file)])
    monkeypatch.setattr("openstack.config.loader.SECURE_FILES", [str(secure)])
    one = OpenstackDriver(OpenstackOptions(cloud="lab", config_file=file if where == "beside" else None))
    with pytest.raises(AuthenticationError):
        one.list()
    secure.write_text(yaml.safe_dump({"clouds": {"lab": {"auth": {"password": PASSWORD}}}}))
    assert one.list() == []
    secure.write_text(yaml.safe_dump({"clouds": {"lab": {"auth": {"password": "a-wrong-one-again"}}}}))
    with pytest.raises(AuthenticationError):
        one.list()


def test_a_changed_clouds_yaml_is_read_again(cloud: FakeOpenstack, tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    clouds_yaml(cloud, file, "an-old-password")
    one = OpenstackDriver(OpenstackOptions(cloud="lab", config_file=file))
    with pytest.raises(AuthenticationError):
        one.list()
    clouds_yaml(cloud, file)
    os.utime(file, ns=(1, 1))
    assert one.list() == []


def test_an_application_credential_is_enough(cloud: FakeOpenstack, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    one = OpenstackDriver(
        OpenstackOptions(
            auth_url=cloud.auth_url,
            applicationCredentialID="4711",
            application_credential_secret_file=tmp_path / "secret",
            interface=Interface.PUBLIC,
        )
    )
    assert one.list() == []


def test_invalid_credential_files_are_reported_at_start(tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    with pytest.raises(PreconditionError, match="does not exist"):
        OpenstackDriver(OpenstackOptions(cloud="lab", config_file=file)).start()
    file.write_text("clouds: {other: {auth: {auth_url: https://keystone.example}}}")
    with pytest.raises(InvalidArgumentError, match="lab"):
        OpenstackDriver(OpenstackOptions(cloud="lab", config_file=file)).start()


USER = {"username": "u", "project": "p", "password_file": Path("p")}
HTTPS = {"auth_url": "https://keystone.example/v3"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "say who we are"),
        ({"config_file": Path("c")}, "needs cloud"),
        ({"cloud": "lab", "username": "u"}, "not both"),
        ({**USER, "auth_url": "http://keystone.example/v3"}, "insecure: true"),
        ({**USER, "auth_url": "https://u:secret@keystone.example"}, "without credentials"),
        ({**USER, "auth_url": "keystone"}, "not an address"),
        (HTTPS, "username: is missing; passwordFile: is missing; project: say it"),
        ({**HTTPS, **USER, "projectID": "4711"}, "one of the two"),
        ({**HTTPS, "applicationCredentialID": "4711"}, "goes together"),
        ({**HTTPS, **USER, "applicationCredentialID": "4711"}, "does not go together"),
        ({**HTTPS, **USER, "regionalProviderID": True}, "needs region"),
    ],
)
def test_options_that_cannot_work_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(CloudgraftError, match=told) as refused:
        OpenstackOptions(**given)
    assert "u:secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"shape": 3, "image": "cirros"}, r"machine\.shape: must be a string"),
        ({"shape": "s"}, r"machine\.image: is missing"),
        ({"shape": "s", "image": ""}, "machine.image: must not be empty"),
        ({"networks": "inside"}, r"machine\.networks: must be a list"),
        ({"networks": [3]}, r"machine\.networks\[0\]: must be a string"),
        ({"key_pair": "operations"}, r"machine\.key_pair: unknown key \(did you mean keyPair"),
        ({"networks": ["auto", "inside"]}, "stand alone"),
        ({"bootVolume": {"size": "big"}}, r"machine\.bootVolume\.size: must be a whole number"),
        ({"bootVolume": {"size": 0}}, "at least 1"),
        ({"bootVolume": 20}, "must be a mapping"),
        ({"configDrive": "maybe"}, "true or false"),
        ({"securityGroups": [""]}, "empty names"),
        ({"metadata": {"k": "v" * 256}}, "255 at most"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, object], told: str) -> None:
    image = {} if "shape" in given else {"shape": "m1.tiny", "image": "cirros"}
    with pytest.raises(InvalidArgumentError, match=told):
        read_settings(MachineSettings, {**image, **given})


def test_marks_are_put_on_a_server_that_is_there_and_taken_off(cloud: FakeOpenstack, tmp_path: Path) -> None:
    nova = driver(cloud, tmp_path)
    made = nova.create(replace(spec(metadata={"team": "batch"}), tags={}))
    nova.mark(made, TAGS)
    assert [machine.tags for machine in nova.list()] == [{"team": "batch", **TAGS}]
    nova.mark(made, {**dict.fromkeys(TAGS), "never-there": None})
    assert [machine.tags for machine in nova.list()] == [{"team": "batch"}]
    nova.delete(made)
    with pytest.raises(NotFoundError):
        nova.mark(made, TAGS)
