"""Requests to each cloud over a socket, and how the driver reads the responses. The clouds are our fakes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from cloudgraft.drivers.libcloud.driver import LibcloudDriver
from cloudgraft.drivers.libcloud.options import LibcloudOptions
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import AuthenticationError, InvalidArgumentError, UnsupportedError
from clouds.servers.libcloud_azure import GROUP
from clouds.servers.libcloud_cases import CLOUDS, google_key
from clouds.servers.libcloud_fake import Answer, Asked
from clouds.servers.libcloud_job_clouds import FakeCloudstack, FakeEc2
from clouds.servers.openstack_fake import PASSWORD, FakeOpenstack
from tests.drivers.libcloud.libcloud_driving import NAME, TAGS, USER_DATA, driver, opened, spec


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def order_of(provider: str, asked: Asked) -> dict[str, Any]:
    """The order of a machine, with its user data as a text under one key for all clouds."""
    if CLOUDS[provider].make is FakeEc2:
        return ec2_order({**asked.query, **dict(parse_qsl(asked.raw.decode()))})
    if CLOUDS[provider].make is FakeCloudstack:
        return cloudstack_order(asked.query)
    if provider in READERS:
        return READERS[provider](asked.body)
    body = asked.body["server"] if provider == "RACKSPACE" else asked.body
    user = body.pop("user_data")
    return {"user": user if provider in ("DIGITAL_OCEAN", "CLOUDSCALE") else decoded(user), **body}


def cloudstack_order(query: Mapping[str, str]) -> dict[str, Any]:
    found = {key: query[key] for key in ("name", "serviceofferingid", "templateid", "zoneid")}
    return {**found, "user": decoded(query["userdata"]), "starts": query["startvm"]}


def linode_order(body: dict[str, Any]) -> dict[str, Any]:
    assert len(body.pop("root_pass")) > 40
    return {"user": decoded(body.pop("metadata")["user_data"]), **body}


def outscale_order(body: dict[str, Any]) -> dict[str, Any]:
    return {"user": decoded(body["UserData"]), **{key: body[key] for key in ORDERS["OUTSCALE"]}}


def azure_order(body: dict[str, Any]) -> dict[str, Any]:
    return {"user": decoded(body["properties"]["osProfile"].pop("customData")), **body}


def cloudsigma_order(body: dict[str, Any]) -> dict[str, Any]:
    assert len(body.pop("vnc_password")) == 12
    assert body["meta"].pop("cloudgraft-made")
    return {"user": decoded(body["meta"].pop("cloudinit-user-data")), **body}


def ec2_order(given: dict[str, str]) -> dict[str, Any]:
    key = "TagSpecification.1.Tag.{}.{}"
    tags = {given[key.format(number, "Key")]: given[key.format(number, "Value")] for number in range(1, 6)}
    kept = ("ImageId", "InstanceType", "ClientToken", "MaxCount", "SubnetId", "SecurityGroupId.1", "SecurityGroup.1")
    found = {name: given[name] for name in (*kept, "Placement.AvailabilityZone", "KeyName") if name in given}
    return {**found, "user": decoded(given["UserData"]), "tags": tags}


def google_order(body: dict[str, Any]) -> dict[str, Any]:
    (item,) = body["metadata"]["items"]
    image = body["disks"][0]["initializeParams"]["sourceImage"]
    kept = {key: body[key] for key in ("name", "labels", "machineType")}
    return {"user": item["value"], "key": item["key"], "image": image, **kept}


def kubevirt_order(body: dict[str, Any]) -> dict[str, Any]:
    machine = body["spec"]["template"]["spec"]
    root, cloud_init = machine["volumes"]
    kept = {key: body["metadata"][key] for key in ("name", "labels", "annotations")}
    user = decoded(cloud_init["cloudInitNoCloud"]["userDataBase64"])
    return {"user": user, "image": root["containerDisk"]["image"], "zone": machine["nodeSelector"], **kept}


READERS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "AZURE_ARM": azure_order,
    "CLOUDSIGMA": cloudsigma_order,
    "GCE": google_order,
    "KUBEVIRT": kubevirt_order,
    "LINODE": linode_order,
    "OUTSCALE": outscale_order,
}


LABELS = {**TAGS, "cloudgraft-cluster": "x--_4cab_20_2f_20_5a_c3_bcrich"}
ORDERS: dict[str, dict[str, Any]] = {
    "DIGITAL_OCEAN": {
        "name": NAME,
        "size": "s-1vcpu-1gb",
        "image": "debian-12-x64",
        "region": "fra1",
        "ssh_keys": [4711],
        "tags": [f"{key}:{value}" for key, value in LABELS.items()],
    },
    "LINODE": {
        "label": NAME,
        "type": "g6-nanode-1",
        "image": "linode/debian12",
        "region": "eu-central",
        "private_ip": False,
        "backups_enabled": False,
        "tags": [
            "cloudgraft-cluster:x--_4cab_20_2f_20_5a_c3_bcrich",
            "cloudgraft-cluster-id:k3x7abcdef",
            "cloudgraft-group:small",
            "cloudgraft-name_1:lab-k3x7abcdef-small-0a1b2c3d-a",
            "cloudgraft-name_2:bcdefgh",
        ],
    },
    "CLOUDSCALE": {
        "name": NAME,
        "flavor": "flex-4-1",
        "image": "debian-12",
        "zone": "rma1",
        "volume_size_gb": 20,
        "tags": LABELS,
    },
    "VULTR": {
        "label": NAME,
        "hostname": NAME,
        "plan": "vc2-1c-1gb",
        "os_id": "2136",
        "region": "ams",
        "enable_ipv6": False,
        "activation_email": False,
    },
    "BRIGHTBOX": {
        "name": NAME,
        "server_type": "typ-12345",
        "image": "img-12345",
        "zone": "gb1-a",
        "server_groups": ["grp-12345"],
    },
    "GCE": {
        "name": NAME,
        "key": "user-data",
        "labels": LABELS,
        "machineType": "zones/europe-west3-a/machineTypes/e2-small",
        "image": "projects/debian-cloud/global/images/family/debian-12",
    },
    "CLOUDSTACK": {
        "name": NAME,
        "serviceofferingid": "so-1",
        "templateid": "template-1",
        "zoneid": "zone-1",
        "starts": "True",
    },
    "KUBEVIRT": {
        "name": NAME,
        "labels": {"cloudgraft-cluster-id": "k3x7abcdef"},
        "annotations": TAGS,
        "image": "images.example/debian:12",
        "zone": {"topology.kubernetes.io/zone": "hall-b"},
    },
    "OUTSCALE": {
        "ClientToken": NAME,
        "VmType": "tinav5.c2r4p2",
        "ImageId": "ami-1",
        "SubnetId": "subnet-1",
        "Placement": {"SubregionName": "eu-west-2b"},
    },
    "RACKSPACE": {
        "name": NAME,
        "flavorRef": "general1-1",
        "imageRef": "image-1",
        "networks": [{"uuid": "net-1"}],
        "metadata": TAGS,
    },
}
EC2: dict[str, Any] = {"ClientToken": NAME, "MaxCount": "1", "tags": {"Name": NAME, **TAGS}, "ImageId": "ami-1"}
ORDERS |= {
    "EC2": {**EC2, "InstanceType": "t3.micro", "SubnetId": "subnet-1", "SecurityGroupId.1": "sg-1"},
    "EUCALYPTUS": {
        **EC2,
        "InstanceType": "m1.small",
        "ImageId": "emi-1",
        "Placement.AvailabilityZone": "one",
        "KeyName": "admin",
    },
    "OUTSCALE_SAS": {**EC2, "InstanceType": "m3.large", "SecurityGroup.1": "default"},
    "OUTSCALE_INC": {**EC2, "InstanceType": "m3.large"},
}
ORDERS["IKOULA"] = ORDERS["CLOUDSTACK"]
ORDERS["AZURE_ARM"] = {
    "location": "westeurope",
    "tags": TAGS,
    "properties": {
        "hardwareProfile": {"vmSize": "Standard_B2s"},
        "storageProfile": {
            "imageReference": {
                "publisher": "Canonical",
                "offer": "ubuntu-24_04-lts",
                "sku": "server",
                "version": "latest",
            },
            "osDisk": {
                "name": f"{NAME}-os",
                "createOption": "FromImage",
                "deleteOption": "Delete",
                "caching": "ReadWrite",
                "managedDisk": {"storageAccountType": "StandardSSD_LRS"},
            },
        },
        "osProfile": {
            "computerName": NAME,
            "adminUsername": "azureuser",
            "linuxConfiguration": {
                "disablePasswordAuthentication": True,
                "ssh": {
                    "publicKeys": [
                        {"path": "/home/azureuser/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAA admin"}
                    ]
                },
            },
        },
        "networkProfile": {
            "networkApiVersion": "2020-11-01",
            "networkInterfaceConfigurations": [
                {
                    "name": f"{NAME}-nic0",
                    "properties": {
                        "primary": True,
                        "deleteOption": "Delete",
                        "ipConfigurations": [
                            {
                                "name": "ip",
                                "properties": {
                                    "primary": True,
                                    "subnet": {
                                        "id": f"{GROUP}/providers/Microsoft.Network/virtualNetworks/lab/subnets/nodes"
                                    },
                                },
                            }
                        ],
                    },
                }
            ],
        },
    },
}
ORDERS["CLOUDSIGMA"] = {
    "name": NAME,
    "cpu": 2000,
    "smp": 1,
    "mem": 2048 * 1024**2,
    "meta": {**TAGS, "base64_fields": "cloudinit-user-data"},
    "drives": [{"boot_order": 1, "dev_channel": "0:0", "device": "virtio", "drive": "d0000000-101"}],
    "nics": [{"ip_v4_conf": {"conf": "dhcp"}, "model": "virtio"}, {"vlan": "vlan-1", "model": "virtio"}],
}
PROVIDER_IDS = {
    "DIGITAL_OCEAN": "digitalocean://101",
    "LINODE": "linode://101",
    "CLOUDSCALE": "cloudscale://47cec963-0101",
    "VULTR": "vultr://cb676a46-0101",
    "BRIGHTBOX": "brightbox://srv-00101",
    "GCE": f"gce://lab/europe-west3-a/{NAME}",
    "CLOUDSTACK": "external-cloudstack://vm-101",
    "IKOULA": "external-cloudstack://vm-101",
    "RACKSPACE": "openstack:///a0b1-101",
    "KUBEVIRT": f"kubevirt://{NAME}",
    "OUTSCALE": "aws:///eu-west-2b/i-00000101",
    "AZURE_ARM": f"azure://{GROUP.replace('Lab', 'lab')}/providers/Microsoft.Compute/virtualMachines/{NAME}",
    "CLOUDSIGMA": "cloudsigma://50000000-102",
    **dict.fromkeys(("EC2", "EUCALYPTUS", "OUTSCALE_SAS", "OUTSCALE_INC"), "aws:///a/i-00000000000000101"),
}


@pytest.mark.parametrize("provider", CLOUDS)
def test_a_machine_is_ordered_listed_and_deleted(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        one = driver(provider, fake, tmp_path)
        one.start()
        made = one.create(spec(provider))
        asked = fake.sent(*(CLOUDS[provider].order or CLOUDS[provider].create))[0]
        assert order_of(provider, asked) == {"user": USER_DATA, **ORDERS[provider]}
        (listed,) = one.list()
        assert (made.name, made.machine_id) == (listed.name, listed.machine_id) == (NAME, made.machine_id)
        assert made.provider_id == listed.provider_id == PROVIDER_IDS[provider]
        assert dict(listed.tags) == (TAGS if CLOUDS[provider].has_tags else {})
        assert listed.state is MachineState.RUNNING
        assert listed.created_at is None or listed.created_at.tzinfo is not None
        one.delete(listed)
        assert one.list() == []
        one.delete(listed)  # gone already
        one.close()


@pytest.mark.parametrize("provider", CLOUDS)
def test_a_list_has_all_pages_in_one_pass(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        one = driver(provider, fake, tmp_path)
        names = [f"lab-{number}" for number in range(7)]
        for name in names:
            one.create(spec(provider, name=name))
        before = len(fake.asked)
        assert sorted(machine.name for machine in one.list()) == names
        # Nova's last one is empty; CloudSigma is asked for drives too.
        pages = {"CLOUDSCALE": 1, "BRIGHTBOX": 1, "RACKSPACE": 4, "CLOUDSIGMA": 2}.get(provider, 3)
        assert len(fake.asked) - before == pages  # and no call per machine


@pytest.mark.parametrize("provider", [name for name, case in CLOUDS.items() if case.make is not FakeEc2])
def test_wrong_secret_raises_authentication_error(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        (tmp_path / "secret").write_text("not-the-secret" if provider != "GCE" else google_key())
        key = {"key": "nobody"} if provider in ("CLOUDSTACK", "IKOULA") else {}
        one = driver(provider, fake, tmp_path, **key)
        if provider == "GCE":
            answer = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
            fake.always(method="POST", path="/o/oauth2/token", answer=Answer(400, answer))
        with pytest.raises(AuthenticationError, match="secretFile"):
            one.list()


@pytest.mark.parametrize("provider", [name for name, case in CLOUDS.items() if case.make is not FakeEc2])
def test_unknown_machine_type_is_refused(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        one = driver(provider, fake, tmp_path)
        machine = {**CLOUDS[provider].machine, "shape": "none"}
        with pytest.raises(InvalidArgumentError):
            one.create(spec(provider, settings=machine))
        assert fake.cloud.machines == {}


SHAPES: dict[str, tuple[str, dict[str, str]]] = {
    "DIGITAL_OCEAN": ("s-1vcpu-1gb", {"cpu": "1", "memory": "1024Mi", "ephemeral-storage": "25Gi"}),
    "LINODE": ("g6-nanode-1", {"cpu": "1", "memory": "1024Mi", "ephemeral-storage": "25Gi"}),
    "CLOUDSCALE": ("flex-4-1", {"cpu": "1", "memory": "4096Mi"}),
    "VULTR": ("vc2-1c-1gb", {"cpu": "1", "memory": "1024Mi", "ephemeral-storage": "25Gi"}),
    "GCE": ("e2-small", {"cpu": "2", "memory": "2048Mi"}),
    "CLOUDSTACK": ("Small", {"cpu": "2", "memory": "2048Mi"}),
    "KUBEVIRT": ("4x8Gi", {"cpu": "4", "memory": "8192Mi"}),
    "EUCALYPTUS": ("m1.small", {"cpu": "1", "memory": "256Mi", "ephemeral-storage": "5Gi"}),
    "RACKSPACE": ("1 GB", {"cpu": "1", "memory": "1024Mi", "ephemeral-storage": "20Gi"}),
    "AZURE_ARM": ("Standard_B2s", {"cpu": "2", "memory": "4096Mi"}),
    "CLOUDSIGMA": ("medium-3", {"cpu": "4", "memory": "8192Mi", "ephemeral-storage": "80Gi"}),
}


@pytest.mark.parametrize("provider", SHAPES)
def test_machine_types_are_shapes(provider: str, tmp_path: Path) -> None:
    name, capacity = SHAPES[provider]
    with opened(provider) as fake:
        shapes = {shape.name: shape for shape in driver(provider, fake, tmp_path).shapes()}
    assert {key: str(value) for key, value in shapes[name].capacity.items()} == capacity
    assert shapes[name].labels["node.kubernetes.io/instance-type"] == name


PRICES = {
    "DIGITAL_OCEAN": {"s-1vcpu-1gb": "0.00893", "s-2vcpu-4gb": "0.03571"},  # and none for what costs nothing
    "LINODE": {"g6-nanode-1": "0.0075", "g6-standard-2": "0.0075"},
    "VULTR": {"vc2-1c-1gb": "0.00744"},  # 5 dollars a month, of 672 hours
}


@pytest.mark.parametrize("provider", CLOUDS)
def test_prices_are_the_clouds_own_per_hour(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        one = driver(provider, fake, tmp_path)
        if provider in PRICES:
            told = {price.shape: price.hourly for price in one.prices()}
            assert told == {name: Decimal(hourly) for name, hourly in PRICES[provider].items()}
        else:
            with pytest.raises(UnsupportedError):
                one.prices()
            assert fake.asked == []


@pytest.mark.parametrize("provider", ["BRIGHTBOX", "OUTSCALE", "OUTSCALE_SAS", "OUTSCALE_INC"])
def test_clouds_without_cpus_have_no_shapes(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake, pytest.raises(UnsupportedError):
        driver(provider, fake, tmp_path).shapes()


@pytest.mark.parametrize(
    ("provider", "state", "ours"),
    [
        ("LINODE", "a-new-word", MachineState.PENDING),
        ("LINODE", "deleting", MachineState.DELETING),
        ("LINODE", "offline", MachineState.STOPPED),
        ("CLOUDSCALE", "a-new-word", MachineState.PENDING),
        ("DIGITAL_OCEAN", "archive", MachineState.DELETING),
        ("VULTR", "a-new-word", MachineState.PENDING),
        ("BRIGHTBOX", "a-new-word", MachineState.PENDING),
        ("BRIGHTBOX", "deleting", MachineState.DELETING),
        ("GCE", "A_NEW_WORD", MachineState.PENDING),
        ("GCE", "TERMINATED", MachineState.STOPPED),
        ("CLOUDSTACK", "A new word", MachineState.PENDING),
        ("CLOUDSTACK", "Starting", MachineState.PENDING),
        ("CLOUDSTACK", "Error", MachineState.FAILED),
        ("CLOUDSTACK", "Expunging", MachineState.DELETING),
        ("RACKSPACE", "ERROR", MachineState.FAILED),
        ("EC2", "a-new-word", MachineState.PENDING),
        ("EC2", "shutting-down", MachineState.DELETING),
        ("OUTSCALE_SAS", "stopping", MachineState.STOPPED),
        ("OUTSCALE", "stopping", MachineState.STOPPED),
        ("OUTSCALE", "shutting-down", MachineState.DELETING),
        ("OUTSCALE", "quarantine", MachineState.STOPPED),
        ("OUTSCALE", "a-new-word", MachineState.PENDING),
    ],
)
def test_no_word_for_a_state_breaks_a_list(provider: str, state: str, ours: MachineState, tmp_path: Path) -> None:
    with opened(provider) as fake:
        one = driver(provider, fake, tmp_path)
        one.create(spec(provider))
        (machine,) = fake.cloud.machines.values()
        machine[next(key for key in ("state", "State", "status") if key in machine)] = state
        (listed,) = one.list()
    assert listed.state is ours


def test_a_machine_of_another_cluster_comes_with_its_own_marks(tmp_path: Path) -> None:
    with opened("LINODE") as fake:
        one = driver("LINODE", fake, tmp_path)
        others = {**TAGS, "cloudgraft-cluster-id": "zzzzzzzzzz", "cloudgraft-name": "lab-z"}
        one.create(spec("LINODE"))
        one.create(spec("LINODE", name="lab-z", tags=others))
        fake.cloud.machines["1"] = {**fake.cloud.machines["101"], "id": 1, "label": "theirs", "tags": ["web", "a:b"]}
        found = {machine.name: dict(machine.tags) for machine in one.list()}
    assert found == {NAME: TAGS, "lab-z": others, "theirs": {"a": "b"}}


@pytest.mark.parametrize("domain", ["", "lab-domain"])
def test_a_domain_of_openstack_is_named_for_the_user_and_for_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, domain: str
) -> None:
    answer, sent = FakeOpenstack.answer, []

    def noted(cloud: FakeOpenstack, method: str, path: str, headers: Any, body: Any) -> Any:
        sent.extend([body["auth"]] if "/auth/tokens" in path and method == "POST" else [])
        return answer(cloud, method, path, headers, body)

    monkeypatch.setattr(FakeOpenstack, "answer", noted)
    (tmp_path / "password").write_text(PASSWORD)
    with FakeOpenstack() as cloud:
        given: dict[str, Any] = {
            "key": "judge",
            "project": "lab",
            "region": "here",
            "endpoint": cloud.auth_url,
            "domain": domain,
        }
        options = LibcloudOptions(provider="OPENSTACK", secret_file=tmp_path / "password", **given)
        assert LibcloudDriver(options).list() == []
    user = sent[0]["identity"]["password"]["user"]["domain"]
    assert user == sent[0]["scope"]["project"]["domain"] == {"name": domain or "Default"}


@pytest.mark.parametrize("provider", ["DIGITAL_OCEAN", "LINODE", "CLOUDSTACK"])
def test_what_goes_between_two_pages_hides_no_other_machine(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        one = driver(provider, fake, tmp_path)
        made = [one.create(spec(provider, name=f"lab-{number}")) for number in range(7)]
        answer, asked = fake.cloud.answer, []

        def meanwhile(request: Any) -> Any:
            asked.append(request)
            if len(asked) == 2:  # after the first page: what was first on the second one slips to it
                del fake.cloud.machines[made[0].machine_id]
            return answer(request)

        fake.cloud.answer = meanwhile  # type: ignore[method-assign,assignment]  # between two requests
        assert {machine.name for machine in one.list()} >= {f"lab-{number}" for number in range(1, 7)}


def test_a_failed_machine_of_nova_says_why(tmp_path: Path) -> None:
    with opened("RACKSPACE") as fake:
        one = driver("RACKSPACE", fake, tmp_path)
        one.create(spec("RACKSPACE"))
        (server,) = fake.cloud.machines.values()
        server |= {"status": "ERROR", "fault": {"message": "No valid host was found. There are not enough hosts"}}
        (machine,) = one.list()
    assert machine.failure == "out_of_stock"
    assert isinstance(machine, Machine)
    assert "not enough hosts" in machine.reason
