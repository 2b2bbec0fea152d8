"""Hetzner's own Python client works with the fake: the fake responds as the client expects."""

from __future__ import annotations

import pytest
from hcloud import APIException, Client
from hcloud.images import Image
from hcloud.locations import Location
from hcloud.server_types import ServerType
from hcloud.servers import Server, ServerCreatePublicNetwork

from clouds.servers.hetzner_fake import FakeHetzner
from clouds.servers.hetzner_fake.selectors import matches


def test_the_vendors_client_makes_lists_and_deletes_servers(fake: FakeHetzner) -> None:
    client = Client(fake.token, fake.url, poll_interval=0.01)
    made = client.servers.create(
        name="m-1",
        server_type=ServerType(name="cax11"),
        image=Image(id=161547270),
        location=Location(name="hel1"),
        labels={"a": "b"},
        public_net=ServerCreatePublicNetwork(enable_ipv6=False),
    )
    for action in (made.action, *made.next_actions):
        action.wait_until_finished()
    (server,) = client.servers.get_all(label_selector="a=b")
    assert (server.name, server.status, server.labels) == ("m-1", Server.STATUS_RUNNING, {"a": "b"})
    assert server.location is not None
    assert server.image is not None
    assert server.public_net is not None
    assert (server.location.name, server.image.architecture) == ("hel1", "arm")
    assert server.public_net.ipv6 is None
    with pytest.raises(APIException) as caught:
        client.servers.create(name="m-1", server_type=ServerType(name="cx23"), image=Image(name="ubuntu-24.04"))
    assert caught.value.code == "uniqueness_error"
    client.servers.delete(server)
    assert client.servers.get_all() == []
    assert next(kind.name for kind in client.server_types.get_all()) == "cx11"


@pytest.mark.parametrize(
    ("selector", "holds"),
    [
        ("a", True),
        ("!a", False),
        ("!z", True),
        ("a=1", True),
        ("a==2", False),
        ("a!=2,b", True),
        ("a in (1, 2)", True),
        ("a notin (1,2)", False),
        ("a=1,b=1", False),
    ],
)
def test_a_selector_holds_or_not(selector: str, holds: bool) -> None:
    assert matches(selector, {"a": "1", "b": "2"}) is holds
