"""The clouds that are served, by their names. An adapter's library is only imported when its cloud is used."""

from __future__ import annotations

import importlib
from typing import Final

from cloudgraft.drivers.libcloud.adapter import Adapter
from cloudgraft.drivers.libcloud.options import LibcloudOptions

__all__ = ["ADAPTERS", "adapter_of"]

ADAPTERS: Final = {
    "EC2": "amazon:Ec2",
    "EUCALYPTUS": "amazon:Eucalyptus",
    "OUTSCALE": "outscale:Outscale",
    "OUTSCALE_SAS": "amazon:OutscaleSas",
    "OUTSCALE_INC": "amazon:OutscaleInc",
    "OPENSTACK": "nova:Openstack",
    "RACKSPACE": "nova:Rackspace",
    "DIGITAL_OCEAN": "bearer:DigitalOcean",
    "LINODE": "bearer:Linode",
    "CLOUDSCALE": "bearer:Cloudscale",
    "VULTR": "bearer:Vultr",
    "BRIGHTBOX": "bearer:Brightbox",
    "GCE": "google:Gce",
    "CLOUDSTACK": "cloudstack:Cloudstack",
    "IKOULA": "cloudstack:Ikoula",
    "KUBEVIRT": "kubevirt:Kubevirt",
    "AZURE_ARM": "azure:Azure",
    "CLOUDSIGMA": "cloudsigma:Cloudsigma",
}


def adapter_of(options: LibcloudOptions) -> Adapter:
    """The adapter for a cloud; raises InvalidArgumentError for options that it has no use for."""
    module, _, name = ADAPTERS[options.provider].partition(":")
    found: type[Adapter] = getattr(importlib.import_module(f"cloudgraft.drivers.libcloud.{module}"), name)
    return found(options)
