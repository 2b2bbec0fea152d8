from __future__ import annotations

from tests.kube.conftest import api, client  # noqa: F401 - fixtures
