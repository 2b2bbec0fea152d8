"""Every scenario, by number."""

from __future__ import annotations

from typing import Final

from e2e.scenarios import (
    changed_config,
    cloud_down,
    crashes,
    crowd,
    deployed,
    dial_in,
    expanders,
    into_ec2,
    into_libvirt,
    mutual_tls,
    never_joins,
    options,
    remote_clusters,
    rights,
    scale_down,
    scale_up,
    slow_cloud,
    stock_out,
    three_scripts,
)
from e2e.scenarios.scenario import Scenario

__all__ = ["SCENARIOS", "Scenario"]

SCENARIOS: Final = {
    module.SCENARIO.number: module.SCENARIO
    for module in (
        scale_up,
        scale_down,
        stock_out,
        crashes,
        never_joins,
        slow_cloud,
        expanders,
        options,
        mutual_tls,
        cloud_down,
        changed_config,
        crowd,
        three_scripts,
        rights,
        deployed,
        dial_in,
        remote_clusters,
        into_ec2,
        into_libvirt,
    )
}
