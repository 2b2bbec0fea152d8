"""Which of several machines for one intent are nodes: what is certain, and what nobody can tell."""

from __future__ import annotations

from typing import Any

from cloudgraft.joining.claims import Claim, Stage
from cloudgraft.joining.match import Rivals, Way, rivals
from cloudgraft.kube.objects import Node

HOUR = 3600.0
NAME = "x-g-aaaaaaaa"


def one(machine_id: str, **changes: Any) -> Claim:
    values: dict[str, Any] = {"provider_id": f"cloud://{machine_id}", "ordered_at": 10 * HOUR, **changes}
    return Claim(name=NAME, cloud="a", group="g", stage=Stage.WANTED, machine_id=machine_id, **values)


def a_node(**changes: Any) -> Node:
    return Node(**{"name": NAME, "uid": "u", "ready": True, "created_at": 10 * HOUR + 60, **changes})


def told(*claims: Claim, node: Node, ways: tuple[Way, ...] = (Way.NAME,)) -> Rivals:
    return rivals(claims, [node], ways)


def test_a_node_with_a_provider_id_is_the_machine_that_has_it_whatever_its_name() -> None:
    node = a_node(name="another", provider_id="cloud://m-2")
    assert told(one("m-1"), one("m-2"), node=node) == Rivals(frozenset({"m-2"}), frozenset({"m-2"}))


def test_one_that_is_not_ready_has_joined_too() -> None:
    found = told(one("m-1"), one("m-2"), node=a_node(provider_id="cloud://m-2", ready=False))
    assert (found.joined, found.ready, found.any) == ({"m-2"}, frozenset(), {"m-2"})


def test_a_foreign_node_proves_nothing() -> None:
    for node in (a_node(provider_id="cloud://m-3"), a_node(name="another")):
        assert told(one("m-1"), one("m-2"), node=node) == Rivals()


def test_a_node_that_has_but_their_name_may_be_any_of_them() -> None:
    assert told(one("m-1"), one("m-2"), node=a_node()).unclear == {"m-1", "m-2"}
    assert told(one("m-1"), one("m-2"), node=a_node(), ways=(Way.ADDRESS,)).unclear == {"m-1", "m-2"}


def test_a_provider_id_that_both_have_proves_nothing() -> None:
    node, shared = a_node(provider_id=f"cloud://{NAME}"), {"provider_id": f"cloud://{NAME}"}
    assert told(one("m-1", **shared), one("m-2", **shared), node=node).unclear == {"m-1", "m-2"}


def test_a_machine_whose_provider_id_is_not_known_yet_fits_by_name_unless_another_fits_exactly() -> None:
    node = a_node(provider_id="cloud://m-1")
    assert told(one("m-1"), one("m-2", provider_id=""), node=node).joined == {"m-1"}
    assert told(one("m-3"), one("m-2", provider_id=""), node=node).joined == {"m-2"}


def test_an_address_or_a_machine_id_decides_where_the_configuration_goes_by_it() -> None:
    node = a_node(addresses=("10.0.0.2",), system_uuid="M-2")
    first, second = one("m-1", addresses=("10.0.0.1",)), one("m-2", addresses=("10.0.0.2",))
    for way in (Way.ADDRESS, Way.MACHINE_ID):
        assert told(first, second, node=node, ways=(Way.NAME, way)).ready == {"m-2"}
    assert told(first, second, node=node).unclear == {"m-1", "m-2"}


def test_a_node_under_a_name_of_its_own_is_known_by_what_the_configuration_goes_by() -> None:
    """Such as the host name that its cloud gave it. No claim has the address or the id of a double."""
    claims = (one("m-1", addresses=("10.0.0.1",)), one("m-2", addresses=("10.0.0.2",)))
    by_address, by_id = a_node(name="ip-10-0-0-2", addresses=("10.0.0.2",)), a_node(name="host", system_uuid="m-2")
    assert told(*claims, node=by_address, ways=(Way.NAME, Way.ADDRESS)).ready == {"m-2"}
    assert told(*claims, node=by_id, ways=(Way.MACHINE_ID,)).ready == {"m-2"}
    assert told(*claims, node=by_address) == told(*claims, node=by_id) == Rivals()
    other = a_node(name="ip-10-0-0-2", addresses=("10.0.0.2",), provider_id="cloud://m-3")
    assert told(*claims, node=other, ways=(Way.ADDRESS,)) == Rivals(), "its providerID tells that it is another"


def test_a_match_on_which_two_ways_differ_is_not_certain() -> None:
    node = a_node(addresses=("10.0.0.1",), system_uuid="m-2")
    found = told(one("m-1", addresses=("10.0.0.1",)), one("m-2"), node=node, ways=(Way.ADDRESS, Way.MACHINE_ID))
    assert (found.joined, found.unclear) == (frozenset(), {"m-1", "m-2"})


def test_a_machine_that_was_made_long_after_the_node_came_is_not_it() -> None:
    """Somebody has cloned a machine that had joined."""
    assert told(one("m-1"), one("m-2", ordered_at=12 * HOUR), node=a_node()).ready == {"m-1"}


def test_clocks_that_differ_by_little_or_make_no_sense_prove_nothing() -> None:
    assert told(one("m-1"), one("m-2", ordered_at=10.5 * HOUR), node=a_node()).unclear == {"m-1", "m-2"}
    late = (one("m-1", ordered_at=20 * HOUR), one("m-2", ordered_at=22 * HOUR))
    assert told(*late, node=a_node()).unclear == {"m-1", "m-2"}
