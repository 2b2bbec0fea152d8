"""Sections become settings by the names of their fields: a field that is renamed on one side must not be lost."""

from __future__ import annotations

import dataclasses

import pytest

from cloudgraft.config.section import Section, convert
from cloudgraft.config.sections.clouds import CloudEngine
from cloudgraft.config.sections.engine import Engine, Guards, MassAbsence, Repair, Webhook
from cloudgraft.config.sections.groups import NodeGroupConfig, Template
from cloudgraft.config.sections.server import Server, ServerLimits
from cloudgraft.engine.groups.desired import GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GuardLimits, RepairSettings
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.machines.breaker import BreakerLimit
from cloudgraft.engine.reporting.webhook import WebhookSettings
from cloudgraft.server.listener import ListenerLimits
from cloudgraft.server.serve import ServeOptions

# The fields that a section does not have by that name: the code gives them, or their defaults are meant.
OTHERS: list[tuple[type[Section], type, set[str]]] = [
    (CloudEngine, CloudSettings, {"name", "driver", "backoff_initial", "backoff_max"}),
    (Engine, EngineSettings, {"keep_gone", "keep_events", "guards", "absence", "delete_orphans"}),
    (Guards, GuardLimits, set()),
    (MassAbsence, BreakerLimit, {"looks"}),
    (NodeGroupConfig, GroupDeclaration, {"region"}),
    (Repair, RepairSettings, set()),
    (Server, ServeOptions, {"allowed_clients"}),
    (ServerLimits, ListenerLimits, {"calls", "header_bytes", "message_bytes", "ping_interval"}),
    (Template, TemplateDeclaration, {"eviction_memory", "eviction_nodefs"}),
    (Webhook, WebhookSettings, {"attempts", "ca", "first_pause", "level", "longest_pause", "queue", "timeout"}),
]


@pytest.mark.parametrize(("section", "settings", "others"), OTHERS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_section_has_all_other_fields_of_its_settings(
    section: type[Section], settings: type, others: set[str]
) -> None:
    names = {field.name for field in dataclasses.fields(settings)}
    assert {name for name in names if name not in section.model_fields and not hasattr(section, name)} == others


def test_fields_of_the_same_name_are_taken_over() -> None:
    guards = convert(Guards(maxMachines=5), GuardLimits, max_spend_per_day=None)
    assert guards == GuardLimits(max_machines=5)
