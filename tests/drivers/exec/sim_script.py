"""The simulated cloud behind three commands: what an `exec` driver runs in the crash sweep. Standard library only.

python -I -S sim_script.py PORT
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from typing import Any


class Refused(Exception):  # noqa: N818 - what happened
    """The cloud has answered, and says no."""


def call(method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=5)
    connection.request(method, path, json.dumps(body) if body is not None else None)
    response = connection.getresponse()
    data = response.read()
    if response.status == 503:
        raise Refused("unavailable", "the cloud is away")
    if response.status >= 500:
        raise OSError(f"the cloud answered {response.status}")
    answer = json.loads(data)
    if response.status >= 400:
        raise Refused(answer["error"]["code"], answer["error"]["message"])
    return answer


def machine(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": data["name"],
        "machineID": data["machineId"],
        "providerID": data["providerId"],
        "state": data["state"],
        "tags": data["tags"],
        "createdAt": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(data["createdAt"])) + "Z",
        "reason": data["reason"],
    }


def create(wanted: dict[str, Any]) -> dict[str, Any]:
    order = {"name": wanted["name"], "token": wanted["name"], "tags": wanted["tags"], **wanted["settings"]}
    return {"machine": machine(call("POST", "/machines", order))}


def listed() -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    cursor, more = "", True
    while more:
        page = call("GET", f"/machines?limit=100&cursor={cursor}")
        found += [machine(one) for one in page["machines"]]
        cursor, more = page["cursor"], page["more"]
    return {"machines": found}


def shapes() -> dict[str, Any]:
    return {"shapes": call("GET", "/shapes")["shapes"]}


def delete(doomed: dict[str, Any]) -> dict[str, Any]:
    call("DELETE", f"/machines/{doomed['machineID']}")
    return {}


def main() -> int:
    request = json.load(sys.stdin)
    verbs = {"list": listed, "shapes": shapes}
    try:
        if request["operation"] in verbs:
            answer = verbs[request["operation"]]()
        else:
            answer = {"create": create, "delete": delete}[request["operation"]](request["machine"])
    except Refused as refused:
        code, message = refused.args
        print(json.dumps({"error": {"code": code, "message": message}}))
        return 1
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
