"""The clouds that only libcloud speaks to, each played by a small fake: how to log in, and a machine of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from clouds.servers.libcloud_azure import SUBSCRIPTION, TENANT, FakeAzure
from clouds.servers.libcloud_clouds import (
    TOKEN,
    FakeBrightbox,
    FakeCloudscale,
    FakeDigitalOcean,
    FakeLinode,
    FakeVultr,
)
from clouds.servers.libcloud_cloudsigma import IMAGE, USER, FakeCloudsigma
from clouds.servers.libcloud_fake import FakeCloud
from clouds.servers.libcloud_job_clouds import FakeCloudstack, FakeEc2, FakeGce, FakeRackspace
from clouds.servers.libcloud_kubevirt import FakeKubevirt
from clouds.servers.libcloud_outscale import FakeOutscale

__all__ = ["CLOUDS", "Cloud", "google_key"]


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """One that a fake plays: how to log in there, and what to ask for."""

    make: Callable[[], FakeCloud]
    machine: Mapping[str, object]
    create: tuple[str, str]  # the method, and what is in the path or query
    options: Mapping[str, Any] = field(default_factory=dict)
    secret: Callable[[], str] = lambda: TOKEN
    path: str = ""  # of the endpoint
    has_tags: bool = True
    has_shapes: bool = True  # tells what its machine types are
    order: tuple[str, str] | None = None  # where the machine is described, if not in the first request of a create


@cache
def google_key() -> str:
    """The file of a service account."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return json.dumps({"client_email": "judge@lab.example", "private_key": key.private_bytes(*form).decode()})


CLOUDS: Final[Mapping[str, Cloud]] = {
    "DIGITAL_OCEAN": Cloud(
        make=FakeDigitalOcean,
        machine={"shape": "s-1vcpu-1gb", "image": "debian-12-x64", "zone": "fra1", "sshKeys": ["4711"]},
        create=("POST", "/v2/droplets"),
    ),
    "LINODE": Cloud(
        make=FakeLinode,
        machine={"shape": "g6-nanode-1", "image": "linode/debian12", "zone": "eu-central"},
        create=("POST", "/v4/linode/instances"),
    ),
    "CLOUDSCALE": Cloud(
        make=FakeCloudscale,
        machine={"shape": "flex-4-1", "image": "debian-12", "zone": "rma1", "diskSize": 20},
        create=("POST", "/v1/servers"),
    ),
    "VULTR": Cloud(
        make=FakeVultr,
        machine={"shape": "vc2-1c-1gb", "image": "2136", "zone": "ams"},
        create=("POST", "/v2/instances"),
        has_tags=False,
    ),
    "BRIGHTBOX": Cloud(
        make=FakeBrightbox,
        machine={"shape": "Nano", "image": "img-12345", "zone": "gb1-a", "securityGroups": ["grp-12345"]},
        create=("POST", "/1.0/servers"),
        options={"key": "cli-12345"},
        has_tags=False,
        has_shapes=False,
    ),
    "GCE": Cloud(
        make=FakeGce,
        machine={"shape": "e2-small", "image": "projects/debian-cloud/global/images/family/debian-12"},
        create=("POST", "/zones/europe-west3-a/instances"),
        options={"project": "lab", "region": "europe-west3-a"},
        secret=google_key,
    ),
    "CLOUDSTACK": Cloud(
        make=FakeCloudstack,
        machine={"shape": "Small", "image": "template-1", "zone": "zone-1"},
        create=("GET", "deployVirtualMachine"),
        options={"key": "an-api-key"},
        path="/client/api",
        has_tags=False,
    ),
    "IKOULA": Cloud(
        make=FakeCloudstack,
        machine={"shape": "Small", "image": "template-1", "zone": "zone-1"},
        create=("GET", "deployVirtualMachine"),
        options={"key": "an-api-key"},
        has_tags=False,
    ),
    "EC2": Cloud(
        make=FakeEc2,
        machine={"shape": "t3.micro", "image": "ami-1", "networks": ["subnet-1"], "securityGroups": ["sg-1"]},
        create=("POST", "/"),
        options={"key": "AKIAJUDGE", "region": "eu-west-1"},
    ),
    "EUCALYPTUS": Cloud(
        make=FakeEc2,
        machine={"shape": "m1.small", "image": "emi-1", "zone": "one", "sshKeys": ["admin"]},
        create=("GET", "RunInstances"),
        options={"key": "AKIAJUDGE"},
        path="/services/compute",
    ),
    "OUTSCALE": Cloud(
        make=FakeOutscale,
        machine={"shape": "tinav5.c2r4p2", "image": "ami-1", "zone": "eu-west-2b", "networks": ["subnet-1"]},
        create=("POST", "/api/v1/CreateVms"),
        options={"key": "AKIAJUDGE", "region": "eu-west-2"},
        has_tags=False,
        has_shapes=False,
    ),
    "KUBEVIRT": Cloud(
        make=FakeKubevirt,
        machine={"shape": "2x4Gi", "image": "images.example/debian:12", "zone": "hall-b"},
        create=("POST", "/apis/kubevirt.io/v1/namespaces/lab/virtualmachines"),
        options={"project": "lab"},
    ),
    "OUTSCALE_SAS": Cloud(
        make=FakeEc2,
        machine={"shape": "m3.large", "image": "ami-1", "securityGroups": ["default"]},
        create=("GET", "RunInstances"),
        options={"key": "AKIAJUDGE", "region": "eu-west-1"},
        has_shapes=False,
    ),
    "OUTSCALE_INC": Cloud(
        make=FakeEc2,
        machine={"shape": "m3.large", "image": "ami-1"},
        create=("GET", "RunInstances"),
        options={"key": "AKIAJUDGE", "region": "eu-west-1"},
        has_shapes=False,
    ),
    "RACKSPACE": Cloud(
        make=FakeRackspace,
        machine={"shape": "1 GB", "image": "image-1", "networks": ["net-1"]},
        create=("POST", "/v2/1000/servers"),
        options={"key": "judge", "region": "dfw"},
    ),
    "AZURE_ARM": Cloud(
        make=FakeAzure,
        machine={
            "shape": "Standard_B2s",
            "image": "Canonical:ubuntu-24_04-lts:server:latest",
            "networks": ["lab/nodes"],
            "sshKeys": ["ssh-ed25519 AAAA admin"],
        },
        create=("PUT", "/virtualMachines/"),
        options={"key": "a-client", "domain": TENANT, "project": f"{SUBSCRIPTION}/Lab", "region": "westeurope"},
    ),
    "CLOUDSIGMA": Cloud(
        make=FakeCloudsigma,
        machine={"shape": "small-3", "image": IMAGE, "networks": ["vlan-1"], "diskSize": 20},
        create=("POST", "clone"),
        options={"key": USER, "region": "zrh"},
        order=("POST", "/servers/"),
    ),
}
