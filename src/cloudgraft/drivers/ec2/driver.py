"""Implements the driver ``ec2``: one instance for each machine.

One request creates an instance with its volumes and its marks, and one deletes them. So a crash between two steps
cannot leave anything to clean up. The machine's name is the client token: EC2 answers a repeated request with the
instance of the first one.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from cloudgraft.drivers.common.secrets import error_without
from cloudgraft.drivers.ec2.catalog import Places, read_shapes, read_spot_prices
from cloudgraft.drivers.ec2.errors import NO_ADDRESS, code_of, our_errors
from cloudgraft.drivers.ec2.instances import FAILED_LAUNCHES, LIVING, MACHINE_TAG, NAME_TAG, check_tags, machine_of
from cloudgraft.drivers.ec2.options import USER_DATA_LIMIT, Ec2Options, MachineSettings, MetadataService
from cloudgraft.drivers.ec2.session import Clients, pages
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Price, Shape
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.list_budget import bounded
from cloudgraft.validation import read_settings

Request = dict[str, Any]
_LIST_TIME: Final = 55.0  # seconds for all pages: less than the engine waits
_MOST_REMEMBERED: Final = 10_000  # deleted failed launches; EC2 lists them for an hour
_LONGEST_TOKEN: Final = 64  # characters of ASCII


class Ec2Driver(BlockingDriver):
    """Instances of Amazon EC2, or of another cloud that speaks its API."""

    Options = Ec2Options
    MachineSettings = MachineSettings

    def __init__(self, options: Ec2Options) -> None:
        """Makes no call and reads no file yet."""
        self._options = options
        self.traits = options.traits()
        self._clients = Clients(options)
        self._places = Places(self._clients)
        # Seconds after which no instance is ordered any more: the engine may soon give up, and a request must not be
        # sent after that. As long as two requests may take.
        self._preparation = 2 * (options.connect_timeout + options.timeout).total_seconds()
        self._failed: frozenset[str] = frozenset()  # failed launches of the last list
        self._deleted: dict[str, None] = {}  # those of them that were deleted, in order

    def start(self) -> None:
        """Looks for the credentials. Only the first call finds out whether the cloud is reachable."""
        with our_errors("start"):
            self._clients.open()

    def close(self) -> None:
        """Closes the connections."""
        self._clients.close()

    def create(self, spec: MachineSpec) -> Machine:
        """Runs one instance. A second call with that name returns the instance of the first."""
        try:
            return self._create(spec)
        except CloudgraftError as error:
            raise error_without(error, spec.user_data) from None

    def _create(self, spec: MachineSpec) -> Machine:
        settings = read_settings(MachineSettings, spec.settings)
        check_spec(spec, settings)
        what = f"create of {spec.name}"
        until = time.monotonic() + self._preparation
        with our_errors(what):  # no change so far
            device = self._places.root_device(settings)
            subnets = self._places.subnets(settings)
            self._clients.client()  # now: an error in the credential files is not an unknown outcome
        requests = [launch_request(spec, settings, subnet=subnet, device=device) for subnet in subnets]
        if time.monotonic() > until:
            raise UnavailableError(f"{what}: AWS takes too long to describe its subnets and image. Nothing was done")
        try:
            with our_errors(what, is_change=True):
                instance = self._run(spec, requests, until)
        except AlreadyExistsError as error:
            instance = self._made_before(spec, error)
        machine = dataclasses.replace(machine_of(instance), name=spec.name)
        if instance.get("State", {}).get("Name") in ("shutting-down", "terminated"):
            raise PreconditionError(
                f"{what}: {machine.machine_id} was made for this name before, and has been terminated since"
                f"{': ' if machine.reason else ''}{machine.reason}"
            )
        return machine

    def _run(self, spec: MachineSpec, requests: Sequence[Request], until: float) -> Mapping[str, Any]:
        """Runs it in the first subnet with a free address. All are in one zone, where the client token is valid."""
        for request in requests[:-1]:
            try:
                return self._sent(spec, request)
            except ClientError as error:
                if code_of(error) != NO_ADDRESS or time.monotonic() > until:
                    raise
        return self._sent(spec, requests[-1])

    def _sent(self, spec: MachineSpec, request: Request) -> Mapping[str, Any]:
        answer = self._clients.client().run_instances(**request)
        instances = answer.get("Instances") or []
        if len(instances) != 1 or "InstanceId" not in instances[0]:
            raise DeadlineError(f"create of {spec.name}: no instance in the response; the outcome is unknown")
        found: Mapping[str, Any] = instances[0]
        return found

    def _made_before(self, spec: MachineSpec, error: AlreadyExistsError) -> Mapping[str, Any]:
        """Finds the instance of this name whose request differed: other user data, or another subnet.

        While EC2 does not show it yet, the error says so, and a later list will show it.
        """
        mine = [{"Name": f"tag:{MACHINE_TAG}", "Values": [spec.name]}, *LIVING]
        try:
            with our_errors(f"create of {spec.name}"):
                found = list(self._described(mine, time.monotonic() + self._options.timeout.total_seconds()))
        except CloudgraftError:
            raise error from None  # it may exist although it is not visible yet
        same = [i for i in found if spec.tags.items() <= machine_of(i).tags.items()]
        if len(same) != 1:
            raise error
        return same[0]

    def delete(self, machine: Machine) -> None:
        """Terminates the instance with its volumes. A missing one is not an error: ids are never reused.

        EC2 may not find a very new instance yet. A later list shows it, and it is deleted then.
        """
        if not machine.machine_id:
            raise PreconditionError(f"the machine {machine.name!r} has no id: it cannot be deleted")
        try:
            with our_errors(f"delete of {machine.name or machine.machine_id}", is_change=True):
                self._clients.client().terminate_instances(InstanceIds=[machine.machine_id])
        except NotFoundError:
            return
        if machine.machine_id in self._failed:
            self._forget(machine.machine_id)

    def _forget(self, machine_id: str) -> None:
        """Hides a deleted failed launch from our list: it is terminated already, but EC2 lists it for a while."""
        self._deleted[machine_id] = None
        while len(self._deleted) > _MOST_REMEMBERED:
            self._deleted.pop(next(iter(self._deleted)), None)

    def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Sets or removes our marks on an instance. One without any mark of cloudgraft is not listed."""
        given = {key: value for key, value in tags.items() if value is not None}
        check_tags(given)
        with our_errors(f"mark of {machine.name or machine.machine_id}", is_change=True):
            client, ids = self._clients.client(), [machine.machine_id]
            if given:
                client.create_tags(Resources=ids, Tags=[{"Key": key, "Value": value} for key, value in given.items()])
            if gone := tags.keys() - given.keys():
                client.delete_tags(Resources=ids, Tags=[{"Key": key} for key in sorted(gone)])

    def list(self) -> Sequence[Machine]:
        """Returns every existing instance with a mark of cloudgraft, and those that failed to start."""
        until = time.monotonic() + _LIST_TIME
        with our_errors("list"):
            instances = [*bounded(self._described(LIVING, until)), *bounded(self._described(FAILED_LAUNCHES, until))]
        # An instance may have failed between the two reads; the last one is true.
        found = {machine.machine_id: machine for machine in map(machine_of, instances)}
        self._failed = frozenset(one.machine_id for one in found.values() if one.state is MachineState.FAILED)
        return [machine for machine in found.values() if machine.machine_id not in self._deleted]

    def _described(self, filters: Sequence[Mapping[str, object]], until: float) -> Iterator[Mapping[str, Any]]:
        asked: dict[str, Any] = {"Filters": list(filters), "MaxResults": self._options.page_size}
        for page in pages(self._clients.client().describe_instances, asked):
            if "Reservations" not in page:
                raise UnavailableError("list: the answer is not a list of instances")
            for reservation in page["Reservations"]:
                yield from reservation.get("Instances", ())
            if time.monotonic() > until:
                raise UnavailableError(f"list: not all pages could be read within {_LIST_TIME:g} s")

    def shapes(self) -> Sequence[Shape]:
        """Returns the instance types of the options, or all of the current generation."""
        with our_errors("shapes"):
            return read_shapes(self._clients.client(), self._options.shapes, self._options.region)

    def prices(self) -> Sequence[Price]:
        """Returns the prices of the options, and spot prices if enabled; does not read AWS's price list."""
        known = {
            name: Price(shape=name, hourly=hourly, currency=self._options.currency)
            for name, hourly in self._options.prices.items()
        }
        if self._options.spot_prices:
            with our_errors("prices"):
                known |= read_spot_prices(self._clients.client(), self._options.shapes)
        if not known:
            raise UnsupportedError("no prices are known: write them under `prices`, or say `spotPrices: true`")
        return tuple(known.values())


# -- the RunInstances request for one instance; pure -------------------------------------------------------------------


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
    tags = [{"Key": key, "Value": value} for key, value in _tags(spec, settings).items()]
    tagged = ["instance", "volume"] + (["spot-instances-request"] if settings.spot else [])
    profile = settings.iam_instance_profile
    return _given(
        MinCount=1,
        MaxCount=1,
        ClientToken=spec.name,
        TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in tagged],
        ImageId=settings.image,
        InstanceType=settings.shape,
        KeyName=settings.key_name,
        UserData=spec.user_data,  # botocore encodes it
        LaunchTemplate=_launch_template(settings),
        IamInstanceProfile=_given(**{"Arn" if profile.startswith("arn:") else "Name": profile}),
        Placement=_given(AvailabilityZone=settings.zone),
        BlockDeviceMappings=_volumes(settings, device),
        InstanceMarketOptions=_market(settings),
        MetadataOptions=_metadata(settings),
        **_network(settings, subnet),
    )


def _given(**values: Any) -> Request:
    """Leaves out empty values; 0 and False are values."""
    return {key: value for key, value in values.items() if value not in (None, "", [], {})}


def _tags(spec: MachineSpec, settings: MachineSettings) -> dict[str, str]:
    return {**settings.tags, NAME_TAG: spec.name, **spec.tags}


def _launch_template(settings: MachineSettings) -> Request | None:
    template = settings.launch_template
    if template is None:
        return None
    return _given(LaunchTemplateId=template.id, LaunchTemplateName=template.name, Version=template.version)


def _volumes(settings: MachineSettings, device: str) -> list[Request]:
    volume = settings.root_volume
    if volume is None:
        return []
    disk = _given(DeleteOnTermination=True, VolumeSize=volume.size, VolumeType=volume.type, Encrypted=volume.encrypted)
    return [{"DeviceName": volume.device or device, "Ebs": disk}]


def _market(settings: MachineSettings) -> Request | None:
    """Requests a one-time spot instance that ends when interrupted: the autoscaler asks for replacements."""
    if not settings.spot:
        return None
    highest = settings.spot_max_price
    spot = _given(
        SpotInstanceType="one-time",
        InstanceInterruptionBehavior="terminate",
        MaxPrice=None if highest is None else format(highest, "f"),
    )
    return {"MarketType": "spot", "SpotOptions": spot}


def _metadata(settings: MachineSettings) -> Request | None:
    if settings.metadata is None and settings.launch_template is not None:
        return None
    service = settings.metadata or MetadataService()
    return _given(HttpTokens=service.tokens, HttpEndpoint="enabled", HttpPutResponseHopLimit=service.hop_limit)


def _network(settings: MachineSettings, subnet: str) -> Request:
    """Builds the network part. EC2 requires all of it on the interface as soon as one value is set there."""
    groups = list(settings.security_groups)
    if settings.public_ip is None:
        return {"SubnetId": subnet, "SecurityGroupIds": groups}
    interface = _given(
        DeviceIndex=0,
        DeleteOnTermination=True,
        AssociatePublicIpAddress=settings.public_ip,
        SubnetId=subnet,
        Groups=groups,
    )
    return {"NetworkInterfaces": [interface]}
