"""The table of planted faults: every server with a mistake, by theme."""

from __future__ import annotations

from typing import Final

from tests.conformance.planted import (
    faults_delete,
    faults_for_node,
    faults_groups,
    faults_life,
    faults_nodes,
    faults_options,
    faults_prices,
    faults_sizes,
    faults_template,
)
from tests.conformance.planted.fault import ENTERED, Fault

__all__ = ["FAULTS", "Fault"]

_MODULES: Final = (
    faults_groups,
    faults_for_node,
    faults_sizes,
    faults_nodes,
    faults_delete,
    faults_template,
    faults_options,
    faults_prices,
    faults_life,
)

FAULTS: Final = tuple(fault for module in _MODULES for fault in ENTERED[module.__name__])
