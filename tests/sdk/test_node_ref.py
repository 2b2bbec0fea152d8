"""What a provider can tell from the little it learns of a node."""

from __future__ import annotations

import pytest

from cloudgraft.sdk import NodeRef

REASON = "k8s.io/cluster-autoscaler/fake-node-reason"


@pytest.mark.parametrize("reason", ["unregistered", "create-error", ""])
def test_a_node_that_the_autoscaler_made_up_is_known_by_its_annotation(reason: str) -> None:
    """R16b: the reason may be empty."""
    node = NodeRef(name="x://1", provider_id="x://1", annotations={REASON: reason})
    assert node.is_fake
    assert node.fake_reason == reason


def test_a_real_node_is_not_fake() -> None:
    node = NodeRef(name="n", provider_id="x://1", annotations={"other": "unregistered"})
    assert not node.is_fake
    assert node.fake_reason == ""
