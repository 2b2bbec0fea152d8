"""Law 9: every route with every role, against a table; and what the table does not know is found."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx2

from cloudgraft.nodemanager.api.app import ROLES
from tests.engine.engine_rig import Rig
from tests.nodemanager.managed import TOKENS, managed

ALL, CHANGE, DECLARE = {*ROLES}, {"front", "operator"}, {"operator"}
TABLE = {
    "GET /metrics": ALL,
    "GET /v1/events": ALL,
    "GET /v1/gpu": ALL,
    "GET /v1/nodegroups": ALL,
    "GET /v1/nodegroups/{group}": ALL,
    "GET /v1/nodegroups/{group}/nodes": ALL,
    "GET /v1/nodegroups/{group}/options": ALL,
    "GET /v1/nodegroups/{group}/size": ALL,
    "GET /v1/nodegroups/{group}/template": ALL,
    "GET /v1/operations": ALL,
    "GET /v1/operations/{operation}": ALL,
    "GET /v1/snapshot": ALL,
    "POST /v1/nodes:lookup": ALL,
    "POST /v1/prices/node": ALL,
    "POST /v1/prices/pod": ALL,
    "POST /v1/cleanup": CHANGE,
    "POST /v1/refresh": CHANGE,
    "POST /v1/nodegroups/{group}:decreaseTarget": CHANGE,
    "POST /v1/nodegroups/{group}:deleteNodes": CHANGE,
    "POST /v1/nodegroups/{group}:increase": CHANGE,
    "POST /v1/nodegroups": DECLARE,
    "PUT /v1/nodegroups/{group}": DECLARE,
    "DELETE /v1/nodegroups/{group}": DECLARE,
}
OPEN = {"GET /healthz", "GET /readyz"}


async def test_law_9_every_route_is_open_to_the_roles_of_the_table_and_to_no_other(tmp_path: Path) -> None:
    """Whether a request makes sense is asked only after whether its caller may make it, so an empty one will do."""
    found: dict[str, set[str]] = {}
    async with managed(Rig(tmp_path), tmp_path, metrics=True) as there:
        context = ssl.create_default_context(cafile=str(there.bundle.ca_cert))
        async with httpx2.AsyncClient(verify=context, base_url=there.url, trust_env=False) as client:
            headers = {role: {"Authorization": f"Bearer {token}"} for role, token in TOKENS.items()}
            paths = (await client.get("/openapi.json", headers=headers["read-only"])).json()["paths"]
            for path, methods in paths.items():
                real = path.replace("{group}", "g").replace("{operation}", "create:x")
                for method in methods:
                    route = f"{method.upper()} {path}"
                    if route in OPEN:
                        continue
                    assert (await client.request(method, real)).status_code == 401, route
                    for role in ROLES:
                        status = (await client.request(method, real, headers=headers[role])).status_code
                        assert status < 500 or status == 501, (route, role, status)
                        if status != 403:
                            found.setdefault(route, set()).add(role)
    assert found == TABLE
