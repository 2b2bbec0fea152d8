"""The JSON of both directions as JSON Schemas, for the OpenAPI description. Tests hold them to what is really read."""

from __future__ import annotations

from typing import Final

from cloudgraft.sdk.driver import MachineState
from cloudgraft.sdk.errors import error_table
from cloudgraft.sdk.types import TAINT_EFFECTS

__all__ = ["SCHEMAS", "ref"]

Schema = dict[str, object]


def ref(name: str, kind: str = "schemas") -> Schema:
    """A reference to a part of the description."""
    return {"$ref": f"#/components/{kind}/{name}"}


def _text(words: str, example: str = "", **more: object) -> Schema:
    return {"type": "string", "description": words, **({"examples": [example]} if example else {}), **more}


def _texts(words: str) -> Schema:
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": words}


def _answer(properties: Schema, required: list[str], words: str) -> Schema:
    """An object that a receiver sends: a key that is not known is refused, because it is most likely misspelt."""
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
