"""Which objects a list or a watch is about: label selectors and field selectors, in Kubernetes' own syntax."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from cloudgraft.demo.fake_kubernetes.refusals import Json, RefusedError
from cloudgraft.demo.fake_kubernetes.resources import Resource

__all__ = ["Matches", "selection"]

Matches = Callable[[Json], bool]
_Labels = Mapping[str, str]

_TERMS: Final = re.compile(r",(?![^(]*\))")  # commas, but not those between parentheses
_IN: Final = re.compile(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)")
_EQUAL: Final = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*(\S*)")
_EXISTS: Final = re.compile(r"(!?)\s*([A-Za-z0-9./_-]+)")
_FOR_ALL: Final = ("metadata.name", "metadata.namespace")


def selection(resource: Resource, query: Mapping[str, str]) -> Matches:
    """Whether an object is asked for by a query. Raises RefusedError when the query cannot be understood."""
    labels = [_label_term(term.strip()) for term in _split(query.get("labelSelector", ""))]
    fields = [_field_term(resource, term.strip()) for term in _split(query.get("fieldSelector", ""))]

    def matches(item: Json) -> bool:
        own = item["metadata"].get("labels") or {}
        return all(term(own) for term in labels) and all(term(item) for term in fields)

    return matches


def _split(selector: str) -> list[str]:
    return _TERMS.split(selector) if selector.strip() else []


def _label_term(term: str) -> Callable[[_Labels], bool]:
    if among := _IN.fullmatch(term):
        key, values = among[1], {value.strip() for value in among[3].split(",")}
        if among[2] == "in":
            return lambda labels: key in labels and labels[key] in values
        return lambda labels: labels.get(key) not in values
    if equal := _EQUAL.fullmatch(term):
        key, value = equal[1], equal[3]
        if equal[2] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if exists := _EXISTS.fullmatch(term):
        wanted, key = not exists[1], exists[2]
        return lambda labels: (key in labels) is wanted
    raise RefusedError(400, "BadRequest", f"unable to parse requirement: {term!r}")


def _field_term(resource: Resource, term: str) -> Matches:
    equal = _EQUAL.fullmatch(term)
    if equal is None:
        raise RefusedError(400, "BadRequest", f"invalid field selector: {term!r}")
    path, value = equal[1], equal[3]
    if resource.is_custom and path not in _FOR_ALL:  # the real server knows no others of custom objects
        raise RefusedError(400, "BadRequest", f"field label not supported: {path}")
    wanted = equal[2] != "!="
    return lambda item: (_field(item, path) == value) is wanted


def _field(item: Json, path: str) -> str:
    found: object = item
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return "" if found is None else str(found)
