"""Builds the RunInstances request for one instance. Pure."""

from __future__ import annotations

from typing import Any, Final

from cloudgraft.drivers.ec2.instances import NAME_TAG, check_tags
from cloudgraft.drivers.ec2.options import USER_DATA_LIMIT
from cloudgraft.drivers.ec2.settings import MachineSettings, MetadataService
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import InvalidArgumentError

Request = dict[str, Any]
_LONGEST_TOKEN: Final = 64  # characters of ASCII


def check_spec(spec: MachineSpec, settings: MachineSettings) -> None:
    """Raises InvalidArgumentError for values that EC2 would refuse or cut."""
    if not spec.name or len(spec.name) > _LONGEST_TOKEN or not spec.name.isascii():
        raise InvalidArgumentError(
            f"the name {spec.name[:80]!r} cannot be a client token: 1 to {_LONGEST_TOKEN} ASCII characters"
        )
    size = len(spec.user_data.encode())
    if size > USER_DATA_LIMIT:
        raise InvalidArgumentError(f"the user data has {size} bytes; EC2 takes {USER_DATA_LIMIT} at most")
    check_tags(_tags(spec, settings))


def launch_request(spec: MachineSpec, settings: MachineSettings, *, subnet: str, device: str) -> Request:
    """Builds the request for one instance with its marks. The launch template or EC2 decides empty values.

    The same spec and settings give the same request: EC2 refuses a different one with the same token.
    """
    request: Request = {"MinCount": 1, "MaxCount": 1, "ClientToken": spec.name}
    request["TagSpecifications"] = _tag_specifications(spec, settings)
    given = {
        "ImageId": settings.image,
        "InstanceType": settings.shape,
        "KeyName": settings.key_name,
        "UserData": spec.user_data,  # botocore encodes it
        "LaunchTemplate": _launch_template(settings),
        "IamInstanceProfile": _profile(settings.iam_instance_profile),
        "Placement": {"AvailabilityZone": settings.zone} if settings.zone else None,
        "BlockDeviceMappings": _volumes(settings, device),
        "InstanceMarketOptions": _market(settings),
        "MetadataOptions": _metadata(settings),
        **_network(settings, subnet),
    }
    return request | {key: value for key, value in given.items() if value}


def _tags(spec: MachineSpec, settings: MachineSettings) -> dict[str, str]:
    return {**settings.tags, NAME_TAG: spec.name, **spec.tags}


def _tag_specifications(spec: MachineSpec, settings: MachineSettings) -> list[Request]:
    tags = [{"Key": key, "Value": value} for key, value in _tags(spec, settings).items()]
    kinds = ["instance", "volume"] + (["spot-instances-request"] if settings.spot else [])
    return [{"ResourceType": kind, "Tags": tags} for kind in kinds]


def _launch_template(settings: MachineSettings) -> Request | None:
    template = settings.launch_template
    if template is None:
        return None
    named = {"LaunchTemplateId": template.id} if template.id else {"LaunchTemplateName": template.name}
    return {**named, "Version": template.version}


def _profile(name: str) -> Request | None:
    if not name:
        return None
    return {"Arn": name} if name.startswith("arn:") else {"Name": name}


def _volumes(settings: MachineSettings, device: str) -> list[Request] | None:
    volume = settings.root_volume
    if volume is None:
        return None
    disk: Request = {"DeleteOnTermination": True}
    if volume.size is not None:
        disk["VolumeSize"] = volume.size
    if volume.type:
        disk["VolumeType"] = volume.type
    if volume.encrypted is not None:
        disk["Encrypted"] = volume.encrypted
    return [{"DeviceName": volume.device or device, "Ebs": disk}]


def _market(settings: MachineSettings) -> Request | None:
    """Requests a one-time spot instance that ends when interrupted: the autoscaler asks for replacements."""
    if not settings.spot:
        return None
    spot: Request = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if settings.spot_max_price is not None:
        spot["MaxPrice"] = format(settings.spot_max_price, "f")
    return {"MarketType": "spot", "SpotOptions": spot}


def _metadata(settings: MachineSettings) -> Request | None:
    service = settings.metadata
    if service is None:
        if settings.launch_template is not None:
            return None
        service = MetadataService()
    options: Request = {"HttpTokens": service.tokens, "HttpEndpoint": "enabled"}
    if service.hop_limit is not None:
        options["HttpPutResponseHopLimit"] = service.hop_limit
    return options


def _network(settings: MachineSettings, subnet: str) -> Request:
    """Builds the network part. EC2 requires all of it on the interface as soon as one value is set there."""
    groups = list(settings.security_groups)
    if settings.public_ip is None:
        return {"SubnetId": subnet, "SecurityGroupIds": groups}
    interface: Request = {
        "DeviceIndex": 0,
        "DeleteOnTermination": True,
        "AssociatePublicIpAddress": settings.public_ip,
    }
    if subnet:
        interface["SubnetId"] = subnet
    if groups:
        interface["Groups"] = groups
    return {"NetworkInterfaces": [interface]}
