"""Every test of a server runs on both transports."""

from __future__ import annotations

import importlib.util
import sys

import pytest

_HAS_NATIVE = importlib.util.find_spec("cloudgraft_native") is not None
# The native one in `make test` where it is installed, then the other one in `make test-thorough`.
_GRPCIO = pytest.param("grpcio", marks=[pytest.mark.thorough] if _HAS_NATIVE else [])


@pytest.fixture(params=["native", _GRPCIO] if _HAS_NATIVE else [_GRPCIO], autouse=True)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one that ``auto`` takes: for grpcio, Python is told that the other is not installed."""
    if request.param == "grpcio":
        monkeypatch.setitem(sys.modules, "cloudgraft_native", None)
    return str(request.param)
