"""Requests to EC2 for a machine, and settings that are refused before a request."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.ec2.driver import Ec2Driver
from cloudgraft.drivers.ec2.options import AssumeRole, Ec2Options, MachineSettings
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.sdk.errors import AuthenticationError, InvalidArgumentError, PreconditionError, UnsupportedError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.validation import read_settings
from clouds.judges.ec2 import MACHINE, driver_for
from clouds.servers.aws_cloud import AwsCloud, tags_of
from clouds.servers.aws_proxy import Fault
from clouds.servers.moto_server import IMAGE, ROOT_DEVICE

pytestmark = pytest.mark.xdist_group("ec2")  # moto is started once
NewSpec = Callable[..., MachineSpec]
ROLE = "arn:aws:iam::123456789012:role/nodes"


def created(cloud: AwsCloud, driver: Ec2Driver, spec: MachineSpec) -> tuple[Machine, Mapping[str, str]]:
    machine = driver.create(spec)
    return machine, cloud.proxy.called("RunInstances")[-1].parameters


def instance(cloud: AwsCloud, machine: Machine) -> Mapping[str, Any]:
    (found,) = cloud.instances(machine.name)
    return found


# -- requests ----------------------------------------------------------------------------------------------------------


def test_one_request_makes_the_instance_with_its_marks_its_token_and_its_user_data(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    spec = new_spec(user_data="#cloud-config\n", tags={"team": "blue"}, zone="us-east-1b")
    before = len(cloud.proxy.calls)
    machine, sent = created(cloud, driver, spec)
    assert [call.action for call in cloud.proxy.calls[before:]] == ["RunInstances"]
    assert (sent["ClientToken"], sent["MinCount"], sent["MaxCount"]) == (spec.name, "1", "1")
    assert base64.b64decode(sent["UserData"]) == b"#cloud-config\n"
    assert sent["MetadataOptions.HttpTokens"] == "required"
    made = instance(cloud, machine)
    assert tags_of(made) == {**spec.tags, "Name": spec.name, "team": "blue"}
    disk = made["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    assert tags_of(cloud.client.describe_volumes(VolumeIds=[disk])["Volumes"][0]) == tags_of(made)
    assert machine.provider_id == f"aws:///us-east-1b/{machine.machine_id}"
    assert machine.addresses == (made["PrivateIpAddress"], made["PrivateDnsName"])


def test_root_volume_gets_the_device_of_its_image_with_one_request(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    volume = {"size": 40, "type": "gp3", "encrypted": True}
    driver.create(new_spec(rootVolume=volume))
    before = len(cloud.proxy.calls)
    machine, sent = created(cloud, driver, new_spec(rootVolume=volume))
    assert [call.action for call in cloud.proxy.calls[before:]] == ["RunInstances"]
    assert sent["BlockDeviceMapping.1.DeviceName"] == ROOT_DEVICE
    assert sent["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    disk = instance(cloud, machine)["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    made = cloud.client.describe_volumes(VolumeIds=[disk])["Volumes"][0]
    assert (made["Size"], made["VolumeType"], made["Encrypted"]) == (40, "gp3", True)


def test_spot_instances_are_asked_for_once_and_their_request_is_marked_too(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    machine, sent = created(cloud, driver, new_spec(spot=True, spotMaxPrice="0.0050"))
    assert sent["InstanceMarketOptions.SpotOptions.MaxPrice"] == "0.0050"
    assert sent["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    kinds = [value for key, value in sent.items() if key.endswith(".ResourceType")]
    assert kinds == ["instance", "volume", "spot-instances-request"]
    assert instance(cloud, machine)["InstanceLifecycle"] == "spot"


def test_a_public_address_is_asked_for_on_the_interface(cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec) -> None:
    subnet = cloud.subnets()["us-east-1a"]
    _, sent = created(cloud, driver, new_spec(publicIp=False, subnets=[subnet]))
    assert "SubnetId" not in sent
    assert sent["NetworkInterface.1.SubnetId"] == subnet
    assert sent["NetworkInterface.1.AssociatePublicIpAddress"] == "false"


def test_a_launch_template_fills_what_the_group_leaves_open(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    cloud.client.create_launch_template(
        LaunchTemplateName="nodes", LaunchTemplateData={"ImageId": IMAGE, "InstanceType": "t3.small"}
    )
    spec = new_spec()
    own = {"launchTemplate": {"name": "nodes", "version": "1"}}
    machine, sent = created(cloud, driver, dataclasses.replace(spec, settings=own))
    assert instance(cloud, machine)["InstanceType"] == "t3.small"
    assert not {"InstanceType", "ImageId", "MetadataOptions.HttpTokens"} & set(sent)
    machine, _ = created(cloud, driver, dataclasses.replace(new_spec(), settings={**own, "shape": "t3.micro"}))
    assert instance(cloud, machine)["InstanceType"] == "t3.micro"


def test_an_image_may_be_named_by_a_parameter(cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec) -> None:
    cloud.proxy.parameters["/images/nodes"] = IMAGE
    machine, _ = created(cloud, driver, new_spec(image="resolve:ssm:/images/nodes"))
    assert instance(cloud, machine)["ImageId"] == IMAGE


# -- subnets -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twins(aws: AwsCloud) -> list[str]:
    """Two subnets of one zone."""
    first = aws.subnets()["us-east-1a"]
    vpc = aws.client.describe_subnets(SubnetIds=[first])["Subnets"][0]["VpcId"]
    second = aws.client.create_subnet(VpcId=vpc, CidrBlock="172.31.240.0/20", AvailabilityZone="us-east-1a")
    return [first, str(second["Subnet"]["SubnetId"])]


def test_the_next_subnet_of_the_zone_is_tried_when_one_is_full(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec, twins: list[str]
) -> None:
    cloud.proxy.order(Fault(action="RunInstances", code="InsufficientFreeAddressesInSubnet"))
    machine, _ = created(cloud, driver, new_spec(subnets=[*twins, cloud.subnets()["us-east-1c"]], zone="us-east-1a"))
    assert instance(cloud, machine)["SubnetId"] == twins[1]


def test_subnets_of_several_zones_are_for_groups_that_have_a_zone(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    subnets = cloud.subnets()
    both = [subnets["us-east-1a"], subnets["us-east-1c"]]
    with pytest.raises(InvalidArgumentError, match="in several zones"):
        driver.create(new_spec(subnets=both))
    with pytest.raises(InvalidArgumentError, match=r"none of machine\.subnets is in us-east-1d"):
        driver.create(new_spec(subnets=both, zone="us-east-1d"))
    machine, _ = created(cloud, driver, new_spec(subnets=both, zone="us-east-1c"))
    assert instance(cloud, machine)["SubnetId"] == subnets["us-east-1c"]


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_is_too_long_is_refused_and_not_cut(driver: Ec2Driver, new_spec: NewSpec) -> None:
    spec = new_spec(user_data="ü" * 8192)
    driver.create(spec)  # 16384 bytes
    for wrong, words in (
        (dataclasses.replace(spec, user_data="ü" * 8192 + "x"), "user data has 16385 bytes"),
        (dataclasses.replace(spec, name="n" * 65), "client token"),
        (dataclasses.replace(spec, name="größe"), "client token"),
        (dataclasses.replace(spec, tags={"cloudgraft-group": "g" * 257}), "257 characters"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            driver.create(wrong)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shape": "t3.micro"}, "image: is needed, unless a launchTemplate"),
        ({**MACHINE, "flavour": "x"}, "machine.flavour: unknown key"),
        ({**MACHINE, "subnets": "subnet-1"}, "machine.subnets: must be a list, not a string"),
        ({**MACHINE, "subnets": [""]}, "empty ids"),
        ({**MACHINE, "spot": "maybe"}, "machine.spot: must be true or false"),
        ({**MACHINE, "spotMaxPrice": "0.1"}, "needs `spot: true`"),
        ({**MACHINE, "spot": True, "spotMaxPrice": "cheap"}, "machine.spotMaxPrice: must be a number"),
        ({**MACHINE, "spot": True, "spotMaxPrice": "0"}, "more than zero"),
        ({**MACHINE, "tags": {"Name": "mine"}}, "not for you to set"),
        ({**MACHINE, "tags": {"cloudgraft-cluster-id": "other"}}, "not for you to set"),
        ({**MACHINE, "tags": {"AWS:x": "y"}}, "not for you to set"),
        ({**MACHINE, "tags": {"a": 1}}, "machine.tags.a: must be a string"),
        ({**MACHINE, "tags": {str(number): "" for number in range(51)}}, "51 tags are too many"),
        ({**MACHINE, "launchTemplate": {"version": "1"}}, "needs `id` or `name`"),
        ({**MACHINE, "launchTemplate": {"name": "n", "version": "new"}}, "launchTemplate.version"),
        ({**MACHINE, "rootVolume": {}}, "rootVolume: says nothing"),
        ({**MACHINE, "rootVolume": {"size": 0}}, "rootVolume.size"),
        ({**MACHINE, "rootVolume": {"size": True}}, "machine.rootVolume.size: must be a number, not true"),
        ({**MACHINE, "rootVolume": "big"}, "machine.rootVolume: must be a mapping"),
        ({**MACHINE, "image": "resolve:ssm:/x", "rootVolume": {"size": 9}}, "rootVolume.device: is needed"),
        ({**MACHINE, "metadata": {"tokens": "none"}}, "metadata.tokens"),
        ({**MACHINE, "metadata": {"hopLimit": 0}}, "metadata.hopLimit"),
    ],
)
def test_settings_that_can_never_work_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        read_settings(MachineSettings, settings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"region": ""}, "region"),
        ({"access_key_id_file": Path("key")}, "goes together"),
        ({"session_token_file": Path("token")}, "sessionTokenFile: needs"),
        ({"profile": "p", "access_key_id_file": Path("a"), "secret_access_key_file": Path("b")}, "two ways"),
        ({"endpoint_url": "ec2.example"}, "not an address"),
        ({"endpoint_url": "https://me:secret@ec2.example"}, "without credentials"),
        ({"endpoint_url": "http://ec2.example"}, "insecure: true"),
        ({"timeout": timedelta(0)}, "more than zero"),
        ({"list_delay": timedelta(seconds=-1)}, "listDelay"),
        ({"page_size": 4}, "pageSize"),
        ({"prices": {"t3.micro": Decimal(-1)}}, "a price"),
        ({"prices": {"t3.micro": Decimal(1)}, "currency": ""}, "currency"),
        ({"spot_prices": True}, "needs `shapes`"),
        ({"spot_prices": True, "shapes": ("t3.micro",), "currency": "EUR"}, "in USD"),
    ],
)
def test_options_that_can_never_work_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Ec2Options(**{"region": "eu-central-1", **options})


@pytest.mark.parametrize(
    "role", [{"role_arn": "nodes"}, {"session_name": "x"}, {"duration": timedelta(minutes=1)}], ids=str
)
def test_a_role_that_cannot_be_taken_on_is_refused(role: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        AssumeRole(**{"role_arn": ROLE, **role})


# -- who calls ---------------------------------------------------------------------------------------------------------


def test_calls_are_signed_with_the_credentials_of_the_assumed_role(cloud: AwsCloud) -> None:
    url = cloud.proxy.url
    role = AssumeRole(role_arn=ROLE, external_id="for-cloudgraft", endpoint_url=url)
    driver = driver_for(cloud.account("role"), assume_role=role)
    driver.start()
    driver.list()
    asked = cloud.proxy.called("AssumeRole")[-1]
    assert (asked.service, asked.parameters["RoleArn"]) == ("sts", ROLE)
    assert asked.parameters["ExternalId"] == "for-cloudgraft"
    assert cloud.proxy.calls[-1].key.startswith("ASIA")
    assert asked.key.startswith("AKIA")
    driver.close()


def test_missing_credentials_name_the_places_to_set_them(cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    options = Ec2Options(region="us-east-1", endpoint_url=cloud.proxy.url)
    with pytest.raises(AuthenticationError, match="no credentials were found"):
        Ec2Driver(options).start()
    with pytest.raises(PreconditionError, match="nobody"):
        Ec2Driver(dataclasses.replace(options, profile="nobody")).start()
    key, secret = cloud.proxy.new_key()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    driver = Ec2Driver(options)
    driver.list()
    assert secret not in repr(vars(driver))
    driver.close()
    with pytest.raises(PreconditionError, match="closed"):
        driver.list()


# -- offers ------------------------------------------------------------------------------------------------------------


def test_shapes_are_those_of_the_options_with_what_a_node_will_have(cloud: AwsCloud) -> None:
    names = ("g4dn.xlarge", "m7g.large", "t3.micro")
    shapes = {shape.name: shape for shape in driver_for(cloud.account("shapes"), shapes=names).shapes()}
    assert set(shapes) == set(names)
    small = shapes["t3.micro"]
    assert dict(small.capacity) == {"cpu": Quantity(2), "memory": Quantity("1Gi")}
    assert small.labels == {"kubernetes.io/arch": "amd64", "topology.kubernetes.io/region": "us-east-1"}
    assert shapes["m7g.large"].labels["kubernetes.io/arch"] == "arm64"
    assert shapes["g4dn.xlarge"].capacity["nvidia.com/gpu"] == Quantity(1)
    with pytest.raises(InvalidArgumentError, match=r"t3\.gigantic"):
        driver_for(cloud.account("shapes"), shapes=("t3.gigantic",)).shapes()


def test_prices_are_those_of_the_options_or_of_the_spot_market(cloud: AwsCloud) -> None:
    account = cloud.account("prices")
    with pytest.raises(UnsupportedError):
        driver_for(account).prices()
    prices = {"t3.micro": Decimal("0.0104"), "t3.small": Decimal("0.0208")}
    told = driver_for(account, prices=prices, currency="EUR").prices()
    assert {(price.shape, price.hourly, price.currency) for price in told} == {
        ("t3.micro", Decimal("0.0104"), "EUR"),
        ("t3.small", Decimal("0.0208"), "EUR"),
    }
    spot = driver_for(account, prices=prices, shapes=("t3.micro",), spot_prices=True).prices()
    assert {price.shape: price.hourly for price in spot} == {
        "t3.micro": Decimal("0.00001"),
        "t3.small": prices["t3.small"],
    }


# -- marks -------------------------------------------------------------------------------------------------------------


def test_marks_are_put_on_an_instance_that_is_there_and_taken_off(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    machine, _ = created(cloud, driver, new_spec(tags={"team": "blue"}))
    driver.mark(machine, {"cloudgraft-group": "other"})
    (marked,) = [one for one in driver.list() if one.machine_id == machine.machine_id]
    assert marked.tags == {**machine.tags, "cloudgraft-group": "other"}
    driver.mark(marked, {key: None for key in marked.tags if key.startswith("cloudgraft-")})
    assert machine.machine_id not in [one.machine_id for one in driver.list()]
    (left,) = [one for one in cloud.instances(machine.name) if one["InstanceId"] == machine.machine_id]
    assert tags_of(left) == {"Name": machine.name, "team": "blue"}
    with pytest.raises(InvalidArgumentError):
        driver.mark(machine, {"cloudgraft-group": "x" * 300})
    driver.delete(machine)
