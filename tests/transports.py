"""The transports of the autoscaler's listener, for tests that hold for all of them.

A folder whose tests do imports the fixture in its ``conftest.py``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Final

import pytest

from cloudgraft.server.listener import Access
from cloudgraft.server.serve import AutoscalerServer, Transport, choose_transport, make_server
from cloudgraft.service import CloudProviderService

NATIVE: Final = "native"
GRPCIO: Final = "grpcio"
_HAS_NATIVE = importlib.util.find_spec("cloudgraft_native") is not None
# The native one in `make test` where it is installed, then the other one in `make test-thorough`.
_SECOND = pytest.param(GRPCIO, marks=[pytest.mark.thorough] if _HAS_NATIVE else [])


@pytest.fixture(params=[NATIVE, _SECOND] if _HAS_NATIVE else [_SECOND], autouse=True)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one that ``auto`` takes: for grpcio, Python is told that the other is not installed."""
    if request.param == GRPCIO:
        monkeypatch.setitem(sys.modules, "cloudgraft_native", None)
    return str(request.param)


def server_of(
    service: CloudProviderService, access: Access, *, trouble: Callable[[], str] | None = None
) -> AutoscalerServer:
    """A listener over the transport that ``auto`` takes."""
    return make_server(service, access, choose_transport(Transport.AUTO), trouble=trouble)
