"""As much of JSON Schema as the description of a receiver uses, and nothing silently left out."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "null": (type(None),),
}
_WORDS = {"description", "examples", "default", "x-statuses", "x-meanings"}


class Described:
    """A description, by whose schemas values are checked."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.description = description

    def follow(self, part: dict[str, Any]) -> dict[str, Any]:
        """What a reference leads to."""
        if "$ref" not in part:
            return part
        here: Any = self.description
        for step in part["$ref"].removeprefix("#/").split("/"):
            here = here[step]
        found: dict[str, Any] = here
        return found

    def check(self, value: object, schema: dict[str, Any], where: str = "value") -> None:
        """Fails unless the value is as the schema says."""
        for word, expected in self.follow(schema).items():
            if word not in _WORDS:
                getattr(self, f"_{word}")(value, expected, where, self.follow(schema))

    def _type(self, value: object, expected: str | list[str], where: str, _: object) -> None:
        names = [expected] if isinstance(expected, str) else expected
        assert any(isinstance(value, _TYPES[name]) for name in names), f"{where} is {value!r}, not {names}"

    def _properties(self, value: dict[str, Any], expected: dict[str, Any], where: str, _: object) -> None:
        for key in value.keys() & expected.keys():
            self.check(value[key], expected[key], f"{where}.{key}")

    def _required(self, value: dict[str, Any], expected: list[str], where: str, _: object) -> None:
        assert set(expected) <= value.keys(), f"{where} has {list(value)}, and must have {expected}"

    def _additionalProperties(self, value: dict[str, Any], expected: Any, where: str, schema: dict[str, Any]) -> None:  # noqa: N802
        more = value.keys() - schema.get("properties", {}).keys()
        if expected is False:
            assert not more, f"{where} has the unknown keys {more}"
        else:
            for key in more:
                self.check(value[key], expected, f"{where}.{key}")

    def _items(self, value: list[object], expected: dict[str, Any], where: str, _: object) -> None:
        for index, item in enumerate(value):
            self.check(item, expected, f"{where}[{index}]")

    def _enum(self, value: object, expected: list[object], where: str, _: object) -> None:
        assert value in expected, f"{where} is {value!r}, not one of {expected}"

    def _minLength(self, value: str, expected: int, where: str, _: object) -> None:  # noqa: N802
        assert len(value) >= expected, f"{where} is too short"

    def _minimum(self, value: object, expected: float, where: str, _: object) -> None:
        assert not isinstance(value, int | float) or value >= expected, f"{where} is too small"

    def _format(self, value: object, expected: str, where: str, _: object) -> None:
        assert expected == "date-time"
        assert not isinstance(value, str) or datetime.fromisoformat(value).tzinfo, f"{where} has no time zone"

    # -- of requests ---------------------------------------------------------------------------------------------------

    def operation(self, method: str, target: str) -> dict[str, Any]:
        """The operation that a request is for."""
        path = target.partition("?")[0]
        for template, operations in self.description["paths"].items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) and method.lower() in operations:
                found: dict[str, Any] = operations[method.lower()]
                return found
        raise AssertionError(f"the description has no {method} {target}")

    def check_answer(self, method: str, target: str, status: int, answer: object) -> str:
        """Fails unless the operation has such an answer; the key under which it has it."""
        responses = self.operation(method, target)["responses"]
        key = str(status) if str(status) in responses else "default"
        content = self.follow(responses[key]).get("content")
        is_error = isinstance(answer, dict) and "error" in answer
        if content is None:
            assert answer is None or is_error, f"{method} {target}: {status} has no body"
        else:
            self.check(answer, content["application/json"]["schema"], f"{method} {target}: {status}")
        return key
