#!/usr/bin/env python3
"""The same as lab.sh in Python: the request is JSON on stdin, the answer is JSON on stdout, and so is an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LABCTL = Path(__file__).with_name("labctl")
ERRORS = {4: "quota_exceeded", 5: "already_exists", 6: "unauthenticated", 7: "invalid_argument", 8: "unavailable"}
STATES = {"booting": "pending", "running": "running"}


def labctl(*arguments: str) -> str:
    return subprocess.run([str(LABCTL), *arguments], capture_output=True, text=True, check=True).stdout.rstrip("\n")


def machine(machine_id: str, name: str, state: str, tags: dict[str, str]) -> dict[str, Any]:
    provider_id = f"lab://{machine_id}"
    return {"machineID": machine_id, "name": name, "providerID": provider_id, "state": STATES[state], "tags": tags}


def create(wanted: dict[str, Any]) -> dict[str, Any]:
    name, size, tags = wanted["name"], wanted["settings"].get("size", "small"), wanted["tags"]
    user_data = os.environ["CLOUDGRAFT_USER_DATA_FILE"]  # what is in wanted["userData"], as a file
    options = ["--name", name, "--size", size, "--tags", json.dumps(tags), "--user-data", user_data]
    return {"machine": machine(labctl("create", *options), name, "booting", tags)}


def delete(doomed: dict[str, Any]) -> dict[str, Any]:
    try:
        labctl("delete", doomed["machineID"])
    except subprocess.CalledProcessError as error:
        if error.returncode != 3:  # it is gone already
            raise
    return {}


def listed() -> dict[str, Any]:
    rows = [line.split("\t") for line in labctl("list").splitlines()]
    return {"machines": [machine(row[0], row[1], row[2], json.loads(row[3])) for row in rows]}


def main() -> int:
    request = json.load(sys.stdin)
    try:
        match request["operation"]:
            case "create":
                answer = create(request["machine"])
            case "delete":
                answer = delete(request["machine"])
            case _:
                answer = listed()
    except subprocess.CalledProcessError as error:
        sys.stderr.write(error.stderr)
        if error.returncode in ERRORS:  # any other code: it may have been done, or not, and cloudgraft will look
            told = {"code": ERRORS[error.returncode], "message": error.stderr.strip()}
            json.dump({"error": told}, sys.stdout)
        return 1
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
