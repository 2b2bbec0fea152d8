"""Requests and answers of each release, against the table of fields that the wire tests keep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgraft.conformance.releases import AGES, NEWEST, Age, CrashError, Options, Release
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import NodeRef, NodeTemplate, Pod
from cloudgraft.wire import kubernetes
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.wire.release_messages import RELEASES
from tests.wire.release_messages import Release as Wire

every_age = pytest.mark.parametrize("release", AGES, ids=str)
START = datetime(2026, 1, 1, tzinfo=UTC)
NODE = kubernetes.encode_node(NodeTemplate(labels={"pool": "lab"}))


def wire_of(release: Release) -> Wire:
    """The same release in the other table."""
    names = {28: "1.25-28", 29: "1.29-32", 33: "1.33", 34: "1.34", 37: "1.35-37"}
    return next(wire for wire in RELEASES if wire.generation == names[release.minor])


@every_age
def test_options_are_asked_for_with_exactly_the_fields_of_the_release(release: Release) -> None:
    defaults = Options(zero_or_max=True, ignore_daemon_sets=True)
    sent = release.options_request("lab", defaults).defaults
    known = {field.number for field in wire_of(release).message_class(sent.DESCRIPTOR.name).DESCRIPTOR.fields}
    assert {descriptor.number for descriptor, _ in sent.ListFields()} == known


@every_age
def test_prices_are_asked_for_with_exactly_the_fields_of_the_release(release: Release) -> None:
    node = release.node_price_request(NodeRef(name="n"), START, START + timedelta(hours=1))
    pod = release.pod_price_request(Pod(name="p"), START, START + timedelta(hours=1))
    for kind, message in (("PricingNodePriceRequest", node), ("PricingPodPriceRequest", pod)):
        known = {field.number for field in wire_of(release).message_class(kind).DESCRIPTOR.fields}
        assert {descriptor.number for descriptor, _ in message.ListFields()} == known


@every_age
def test_a_template_is_found_only_in_the_fields_that_the_release_reads(release: Release) -> None:
    """R65, R66, B5."""
    old = pb.NodeGroupTemplateNodeInfoResponse(nodeInfo=NODE)
    new = pb.NodeGroupTemplateNodeInfoResponse(nodeBytes=NODE)
    reads_old, reads_new = release.minor <= 34, release.minor >= 34
    for answer, is_read in ((old, reads_old), (new, reads_new)):
        if is_read:
            assert release.read_template(answer).labels == {"pool": "lab"}
        else:
            with pytest.raises(CrashError):
                release.read_template(answer)
    with pytest.raises(CrashError):
        release.read_template(pb.NodeGroupTemplateNodeInfoResponse())


@every_age
def test_options_with_an_absent_duration_crash_the_releases_that_do_not_look(release: Release) -> None:
    """R75, B4: in 1.35 and later it is zero instead."""
    answer = pb.NodeGroupAutoscalingOptionsResponse()
    assert release.read_options(answer) is None
    answer.nodeGroupAutoscalingOptions.scaleDownUtilizationThreshold = 0.5
    if release.age is Age.FROM_1_35:
        found = release.read_options(answer)
        assert found is not None
        assert found.provision == timedelta(0)
    else:
        with pytest.raises(CrashError):
            release.read_options(answer)


@every_age
def test_what_a_release_sent_it_reads_again(release: Release) -> None:
    """All but what its wire has no field for: the provision time up to 1.28 (B1), the booleans before 1.33 (B2)."""
    defaults = Options(unready=timedelta(minutes=3), zero_or_max=True)
    answer = pb.NodeGroupAutoscalingOptionsResponse()
    answer.nodeGroupAutoscalingOptions.CopyFrom(release.options_request("lab", defaults).defaults)
    found = release.read_options(answer)
    assert found is not None
    assert found.unready == timedelta(minutes=3)
    assert found.zero_or_max == (release.minor >= 33)
    assert found.provision == (defaults.provision if release.minor >= 29 else timedelta(0))


def test_a_release_is_known_by_its_name() -> None:
    assert [Release.parse(text).age for text in ("1.25", "1.32", "1.34.1", "1.34", "v1.36")] == [
        Age.UP_TO_1_28,
        Age.FROM_1_29,
        Age.FROM_1_33,
        Age.FROM_1_34,
        Age.FROM_1_35,
    ]
    assert (str(NEWEST), NEWEST.is_at_least("1.36"), Release.parse("1.28").knows_code_12) == ("1.37", True, False)
    for nonsense in ("1.24", "1.38", "2.30", "newest"):
        with pytest.raises(InvalidArgumentError, match=r"give one from 1\.25 to 1\.37"):
            Release.parse(nonsense)
