"""The transport to a vCenter."""

from __future__ import annotations

import http.client
import ssl
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from cloudgraft.drivers.vsphere import pyvmomi
from cloudgraft.drivers.vsphere.pyvmomi import StubAdapter
from tests.drivers.slow_server import HEAD, slow_server
from tests.drivers.vsphere.test_vsphere_options import options


def test_an_answer_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then would hold one of the driver's few threads for ever."""
    given = options(timeout=timedelta(seconds=0.3))
    with slow_server(HEAD) as url:
        plain = http.client.HTTPConnection(urlsplit(url).netloc)
        monkeypatch.setattr(StubAdapter, "GetConnection", lambda _: plain)
        connection = pyvmomi.Transport(given, ssl.create_default_context()).GetConnection()
        connection.request("POST", "/sdk", b"x")
        with pytest.raises(TimeoutError):
            connection.getresponse().read()
        connection.close()
