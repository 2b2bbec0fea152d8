"""Every finding is found where it is planted, and none where nothing is wrong."""

from __future__ import annotations

import re

import pytest

from cloudgraft.doctor.checks import examine
from cloudgraft.doctor.findings import ENTRIES, SECTIONS, Severity, exit_code
from scripts.doctor_page import findings_page
from tests.doctor.worlds import ALONG, PLANTS, clean, cloud, cluster, flags, group, node, server, settings


def test_a_clean_world_has_no_findings() -> None:
    assert examine(clean()) == []
    assert exit_code([]) == 0


@pytest.mark.parametrize("id_", PLANTS)
def test_what_is_planted_is_found_and_nothing_else(id_: str) -> None:
    found = examine(PLANTS[id_](clean()))
    ids = {finding.entry.id for finding in found}
    assert id_ in ids
    assert ids - {id_} <= ALONG.get(id_, set()), ids
    for finding in found:
        assert finding.where
        assert finding.what
        assert finding.fix


def test_every_entry_of_the_table_is_planted() -> None:
    assert set(PLANTS) == set(ENTRIES)
    assert sum(len(section) for section in SECTIONS.values()) == len(ENTRIES), "an id is there twice"


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_every_entry_says_why_it_hurts_and_what_mends_it(entry: object) -> None:
    assert entry in ENTRIES.values()
    for text in (entry.title, entry.why, entry.fix):  # type: ignore[attr-defined]  # pytest's ids want an object
        assert text.strip() == text
        assert text
    assert not entry.title.endswith(".")  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize(
    ("id_", "code"), [("nodes-flag-ignored", 0), ("paused", 1), ("provider-id-empty", 3), ("template-label", 1)]
)
def test_the_exit_code_goes_by_the_worst(id_: str, code: int) -> None:
    assert exit_code(examine(PLANTS[id_](clean()))) == code


def test_the_worst_comes_first_and_the_order_is_always_the_same() -> None:
    inputs = clean()
    for id_ in ("paused", "provider-id-empty", "local-data-lost", "tls-expired"):
        inputs = PLANTS[id_](inputs)
    found = examine(inputs)
    ranks = [finding.entry.severity.rank for finding in found]
    assert ranks == sorted(ranks)
    assert found[0].entry.severity is Severity.ERROR
    assert examine(inputs) == found


def test_a_finding_has_the_keys_that_the_page_lists() -> None:
    for finding in examine(PLANTS["paused"](clean())):
        keys = re.findall(r"^\| `(\w+)` \| (?!error|warning|note)", findings_page(), re.MULTILINE)
        assert list(finding.as_json()) == keys


# -- what is not wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flag",
    [
        "--scale-down-unneeded-time=5m",
        "--max-node-provision-time=20m",
        "--expander=least-waste",
        "--enforce-node-group-min-size=true",
        "--leader-elect=false",
        "--skip-nodes-with-local-storage",
    ],
)
def test_reasonable_flags_are_no_finding(flag: str) -> None:
    assert examine(flags(flag)(clean())) == []


def test_an_error_text_that_the_configuration_knows_is_no_finding() -> None:
    inputs = PLANTS["dock-error-unclassified"](settings(error_texts={"no more fruit": "out_of_stock"})(clean()))
    assert examine(inputs) == []


def test_a_young_machine_without_a_node_is_no_finding() -> None:
    inputs = cluster(nodes=())(clean())
    assert inputs.server is not None
    (machine,) = inputs.server.machines
    young = type(machine)(name=machine.name, group=machine.group, provider_id=machine.provider_id, state_age=60)
    assert examine(server(machines=(young,))(inputs)) == []


def test_a_hundredth_less_memory_is_no_finding() -> None:
    from cloudgraft.sdk.quantity import Quantity
    from tests.doctor.worlds import TEMPLATE

    less = {**TEMPLATE.allocatable, "memory": Quantity(f"{7 * 1024 - 50}Mi")}
    assert examine(node(allocatable=less)(clean())) == []


def test_passing_taints_are_no_drift() -> None:
    """R70."""
    from cloudgraft.sdk.types import Taint
    from tests.doctor.worlds import NODE

    passing = Taint(key="DeletionCandidateOfClusterAutoscaler", value="1", effect="PreferNoSchedule")
    assert examine(node(taints=(*NODE.taints, passing))(clean())) == []


@pytest.mark.parametrize("release", ["1.29.4", "1.32.1", "1.33.0", "1.34.1"])
def test_a_group_that_says_both_gets_its_options(release: str) -> None:
    """B2, by the rule that the service goes by."""
    from datetime import timedelta

    from cloudgraft.sdk.types import AutoscalingOptions

    options = AutoscalingOptions(scale_down_unneeded_time=timedelta(minutes=5), ignore_daemon_sets_utilization=False)
    assert examine(group(options=options)(flags(release=release)(clean()))) == []


def test_a_paused_cloud_is_reported_with_the_command_that_ends_it() -> None:
    (finding,) = examine(cloud(paused="paused since yesterday")(clean()))
    assert finding.entry.id == "paused"
    assert finding.fix == "cloudgraft resume --cloud lab"
