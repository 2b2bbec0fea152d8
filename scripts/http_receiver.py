"""Generates the OpenAPI description of a receiver for the driver `http`, and the example receiver from it.

Both follow from the contract that the driver itself uses: :mod:`cloudgraft.drivers.http.contract`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cloudgraft.drivers.http import contract
from cloudgraft.sdk.driver import MachineState
from cloudgraft.sdk.errors import error_table
from cloudgraft.sdk.types import TAINT_EFFECTS

# -- endpoints ---------------------------------------------------------------------------------------------------------
# As the driver calls them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One endpoint. ``path`` is below the base URL."""

    id: str
    method: str
    path: str
    is_optional: bool = False


OPERATIONS: Final = (
    Operation(id="createMachine", method="PUT", path="/machines/{machine}"),
    Operation(id="deleteMachine", method="DELETE", path="/machines/{machine}"),
    Operation(id="listMachines", method="GET", path="/machines"),
    Operation(id="listShapes", method="GET", path="/shapes", is_optional=True),
    Operation(id="listPrices", method="GET", path="/prices", is_optional=True),
)


# -- schemas -----------------------------------------------------------------------------------------------------------
# The JSON of both directions as JSON Schemas, for the OpenAPI description. Tests compare them with the code that reads.

Schema = dict[str, object]


def ref(name: str, kind: str = "schemas") -> Schema:
    """Returns a reference to a part of the description."""
    return {"$ref": f"#/components/{kind}/{name}"}


def _text(words: str, example: str = "", **more: object) -> Schema:
    return {"type": "string", "description": words, **({"examples": [example]} if example else {}), **more}


def _texts(words: str) -> Schema:
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": words}


def _answer(properties: Schema, required: list[str], words: str) -> Schema:
    """Describes an object that a receiver sends. Unknown keys are refused, because they are most likely misspelt."""
    return {
        "type": "object",
        "description": words,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _list_of(name: str, items: str, words: str, more: Schema | None = None) -> Schema:
    return _answer({name: {"type": "array", "items": ref(items)}, **(more or {})}, [name], words)


_SPEC: Final[Schema] = {
    "type": "object",
    "description": "The machine to create. Ignore keys that you do not know: there may be more of them one day.",
    "properties": {
        "name": _text("Its name, which is final, unique, and the same as in the path.", "prod-abc123-small-x7k2"),
        "group": _text("The id of the node group that it is for.", "lab-small"),
        "settings": {"type": "object", "description": "The group's `machine:` section, as it is in the file."},
        "tags": _texts("Keep them with the machine, and give them back in every list, byte for byte."),
        "userData": _text("What the machine does when it boots. It holds secrets: put it into no log."),
    },
    "required": ["name", "group", "settings", "tags", "userData"],
}
_MACHINE: Final = _answer(
    {
        "name": _text("The name that it was created with."),
        "machineID": _text("Your own id for it: it stays the same, and no other machine ever has it.", minLength=1),
        "providerID": {
            "type": ["string", "null"],
            "description": "The spec.providerID of its node; null, or left out, while that is not known.",
        },
        "state": {
            "type": "string",
            "enum": [state.value for state in MachineState],
            "default": MachineState.RUNNING.value,
            "description": "What it does. A machine that is gone is not listed.",
        },
        "tags": _texts("The tags that it was created with; there may be others beside them."),
        "createdAt": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "When it was made, with the time zone.",
        },
        "reason": _text("Why it is in this state, for a person."),
        "addresses": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Addresses and host names under which its node may be known.",
        },
        "failure": _text("Of one that failed: the name of the error that says best why, such as `out_of_stock`."),
    },
    ["name", "machineID"],
    "A machine as you show it.",
)
_SHAPE: Final = _answer(
    {
        "name": _text("What `machine.shape` of a group says.", "small", minLength=1),
        "capacity": {
            "type": "object",
            "additionalProperties": {"type": ["string", "number"]},
            "description": "Amounts as Kubernetes writes them; cpu and memory at least.",
            "examples": [{"cpu": "2", "memory": "4Gi", "pods": 110}],
        },
        "labels": _texts("Labels that the nodes of this type have."),
        "taints": {
            "type": "array",
            "items": _answer(
                {
                    "key": _text("Its name.", "gpu", minLength=1),
                    "value": _text("Empty when left out."),
                    "effect": {"type": "string", "enum": list(TAINT_EFFECTS)},
                },
                ["key", "effect"],
                "A taint of Kubernetes.",
            ),
            "description": "Taints that the nodes of this type have by themselves.",
        },
    },
    ["name", "capacity"],
    "A machine type.",
)
_PRICE: Final = _answer(
    {
        "shape": _text("The name of a shape.", "small", minLength=1),
        "hourly": {"type": ["string", "number"], "description": "Best in quotes: it is read exactly.", "minimum": 0},
        "currency": _text("The same for all.", "EUR", minLength=1),
    },
    ["shape", "hourly", "currency"],
    "What an hour of a shape costs.",
)
_ERROR: Final[Schema] = {
    "type": "object",
    "description": "Why it was not done.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {
                    "type": "string",
                    "enum": [error.slug for error in error_table()],
                    "description": "It decides whether the call is made again, and what the autoscaler is told.",
                    "x-statuses": {error.slug: error.http_status for error in error_table()},
                    "x-meanings": {error.slug: error.meaning for error in error_table()},
                },
                "message": _text("For a person; it reaches logs and events, so keep secrets out."),
                "retryAfter": _text("When to come again; the header Retry-After says the same.", "30s"),
            },
            "required": ["code", "message"],
            "additionalProperties": False,
        }
    },
    "required": ["error"],
}
SCHEMAS: Final[dict[str, Schema]] = {
    "MachineSpec": _SPEC,
    "Machine": _MACHINE,
    "Created": _answer({"machine": ref("Machine")}, ["machine"], "The machine that was made, now or by a call before."),
    "Machines": _list_of(
        "machines",
        "Machine",
        "One page of all machines that may be cloudgraft's.",
        {
            "nextPageToken": {
                "type": ["string", "null"],
                "description": "Where the next page begins; empty, null or left out on the last one.",
            }
        },
    ),
    "Shape": _SHAPE,
    "Shapes": _list_of("shapes", "Shape", "All machine types, each once."),
    "Price": _PRICE,
    "Prices": _list_of("prices", "Price", "One price for each shape, all in one currency."),
    "Error": _ERROR,
}


# -- the description ---------------------------------------------------------------------------------------------------

_VERSION: Final = "1"  # of the contract, not of cloudgraft
_INTRODUCTION: Final = """\
What cloudgraft's driver `http` calls. Write these endpoints, and your cloud is behind the Kubernetes Cluster
Autoscaler.

Answer within a few seconds: a create answers when the machine was accepted, not when it runs. Whatever was answered
must survive a restart. Redirects are not followed. An answer has at most `maxBody` bytes (16 MiB unless the
configuration says otherwise); let a long list have pages.

A status 429 says that nothing was done, and so does 503 with an error code in its body. After any other 5xx, a broken
connection or no answer in time, cloudgraft looks into the list before it does anything again.
"""
_SIGNED: Final = f"""\
An HMAC over what is sent, with a key that both sides know: `t=<seconds since 1970>,n=<nonce>,\
{contract.SIGNATURE_VERSION}=<HMAC-SHA256 in hex>`. The signed text is these six, with a line feed between them and none
at the end: `{contract.SIGNATURE_VERSION}`; the method; the path with its query, byte for byte as in the request line;
the time; the nonce; the SHA-256 of the body in hex, also when it is empty. Refuse a time that is more than
{int(contract.SIGNATURE_AGE.total_seconds())} seconds off, and a nonce that was seen within twice that time.
"""
_WORDS: Final = {
    "createMachine": (
        "Make one machine",
        """\
The name is the idempotency key: when a machine of that name is there, answer with it and make no other, also when two
calls come at the same time. Keep the tags in the same step in which the machine is made.
""",
    ),
    "deleteMachine": (
        "Delete one machine",
        """\
With everything that was made for it. It may go on to be listed, as `deleting`, until it is gone. One that is gone
already is 404, which is fine.
""",
    ),
    "listMachines": (
        "List all machines",
        """\
All that may be cloudgraft's, of all groups; other people's do no harm. A machine that is missing from two lists counts
as gone, so answer with an error rather than with a part. Let the token say after which machine the next page begins,
not at which number: machines come and go meanwhile.
""",
    ),
    "listShapes": ("List the machine types", "Optional: answer 501 or 404 when you do not know them."),
    "listPrices": ("List the prices", "Optional: answer 501 or 404 when you do not know them."),
}
_ANSWERS: Final = {
    "createMachine": ("Created", {"200": "It was there already.", "201": "It was made.", "202": "It is being made."}),
    "deleteMachine": (None, {"202": "It is being deleted.", "204": "It is deleted.", "404": "It is gone already."}),
    "listMachines": ("Machines", {"200": "One page."}),
    "listShapes": ("Shapes", {"200": "All of them."}),
    "listPrices": ("Prices", {"200": "All of them."}),
}


def describe() -> Schema:
    """Returns the whole OpenAPI 3.1 document."""
    paths: dict[str, dict[str, object]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "A receiver for cloudgraft",
            "version": _VERSION,
            "description": _INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "https://machines.example:8443", "description": "The `url` of the cloud's configuration."}],
        "security": [{"mutualTLS": []}, {"signature": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "parameters": _parameters(),
            "responses": _responses(),
            "headers": {"RetryAfter": {"description": "Seconds, or a date.", "schema": {"type": "string"}}},
            "securitySchemes": _security(),
        },
    }


def description_json() -> str:
    """Returns the document as the text of a file."""
    return json.dumps(describe(), indent=2, ensure_ascii=False) + "\n"


def _operation(operation: Operation) -> Schema:
    summary, words = _WORDS[operation.id]
    described: Schema = {"operationId": operation.id, "summary": summary, "description": words}
    if parameters := _PARAMETERS_OF.get(operation.id):
        described["parameters"] = [ref(name, "parameters") for name in parameters]
    if operation.id == "createMachine":
        described["requestBody"] = {"required": True, "content": _content("MachineSpec")}
    schema, successes = _ANSWERS[operation.id]
    responses: dict[str, object] = {
        status: {"description": text, **({"content": _content(schema)} if schema else {})}
        for status, text in successes.items()
    }
    if operation.is_optional:
        responses["501"] = ref("Refused", "responses")
    responses["429"] = responses["503"] = ref("Later", "responses")
    responses["default"] = ref("Refused", "responses")
    return {**described, "responses": responses, **({"x-optional": True} if operation.is_optional else {})}


def _content(schema: str) -> Schema:
    return {"application/json": {"schema": ref(schema)}}


_PARAMETERS_OF: Final = {
    "createMachine": ("Name", "IdempotencyKey"),
    "deleteMachine": ("MachineID", "MachineName"),
    "listMachines": ("PageToken",),
}


def _parameters() -> Schema:
    def parameter(name: str, place: str, words: str) -> Schema:
        is_required = {"required": True} if place == "path" else {}
        return {"name": name, "in": place, "description": words, "schema": {"type": "string"}, **is_required}

    return {
        "Name": parameter("machine", "path", "The machine's name: lower case, digits and dashes."),
        "MachineID": parameter("machine", "path", "Your id of the machine, with %2F for a slash."),
        "MachineName": parameter(contract.NAME, "query", "The machine's name, to be sure: refuse when it has another."),
        "PageToken": parameter(contract.PAGE_TOKEN, "query", "The nextPageToken of the page before; not on the first."),
        "IdempotencyKey": parameter(contract.IDEMPOTENCY_KEY, "header", "The machine's name again."),
    }


def _responses() -> Schema:
    return {
        "Refused": {"description": "It was not done, and why.", "content": _content("Error")},
        "Later": {
            "description": "Nothing was done, and when to come again.",
            "headers": {contract.RETRY_AFTER: ref("RetryAfter", "headers")},
            "content": _content("Error"),
        },
    }


def _security() -> Schema:
    return {
        "mutualTLS": {"type": "mutualTLS", "description": "cloudgraft shows its `certFile`."},
        "signature": {
            "type": "apiKey",
            "in": "header",
            "name": contract.SIGNATURE,
            "description": _SIGNED,
            "x-version": contract.SIGNATURE_VERSION,
            "x-age": int(contract.SIGNATURE_AGE.total_seconds()),
            "x-shortest-key": contract.SHORTEST_KEY,
        },
        "bearer": {"type": "http", "scheme": "bearer", "description": "What is in `tokenFile`."},
    }


# -- the example receiver ----------------------------------------------------------------------------------------------

_TEMPLATE: Final = Path(__file__).with_name("http_receiver.py.tmpl")  # the suffix keeps tools from taking it for code
_PLACE: Final = re.compile(r"\$([a-z_]+)")


def receiver_source() -> str:
    """Returns the program of the example receiver, for the receiver that the driver calls."""
    facts = _facts(describe())

    def fact(match: re.Match[str]) -> str:
        if match[1] not in facts:
            raise LookupError(
                f"the template of the receiver asks for {match[1]!r}, which the description does not have"
            )
        return facts[match[1]]

    return _PLACE.sub(fact, _TEMPLATE.read_text("utf-8"))


def _facts(description: dict[str, Any]) -> dict[str, str]:
    """Returns the parts of the description that the program uses, as Python."""
    parts = description["components"]
    signature = parts["securitySchemes"]["signature"]
    parameters = parts["parameters"]
    signed = (signature["name"], signature["x-version"], signature["x-age"], signature["x-shortest-key"])
    error = parts["schemas"]["Error"]["properties"]["error"]["properties"]["code"]
    return {
        "version": description["info"]["version"],
        "routes": _several("(", ")", [_python(route) for route in _routes(description["paths"])]),
        "statuses": _several("{", "}", [f"{_python(code)}: {status}" for code, status in error["x-statuses"].items()]),
        "required": _python(tuple(parts["schemas"]["MachineSpec"]["required"])),
        "signature": _python(signed),
        "queries": _python((parameters["PageToken"]["name"], parameters["MachineName"]["name"])),
        "idempotency_key": _python(parameters["IdempotencyKey"]["name"]),
    }


def _routes(paths: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Returns method, regular expression of the path, and operation of each route."""
    return [
        (method.upper(), re.sub(r"\{\w+\}", "([^/]+)", path), operation["operationId"])
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]


def _several(begin: str, end: str, lines: list[str]) -> str:
    return "\n".join([begin, *(f"    {line}," for line in lines), end])


def _python(value: object) -> str:
    """Writes a value as the formatter would: with double quotes."""
    if isinstance(value, tuple):
        return f"({', '.join(_python(item) for item in value)})"
    return json.dumps(value)
