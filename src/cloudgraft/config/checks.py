"""Checks the parts of the file against each other.

The checks read the plain values of the file, not the models. So problems between two parts are reported together with
problems within each of them. A value of the wrong type is skipped here: its own validation reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from cloudgraft.config.model import Config
from cloudgraft.config.sections.dock import dock_checks
from cloudgraft.config.sections.groups import LONGEST_ID, fan_out
from cloudgraft.config.sections.node_manager import node_manager_checks
from cloudgraft.validation.document import Document
from cloudgraft.validation.explain import did_you_mean
from cloudgraft.validation.problems import KeyPath, Problem, printable


def cross_checks(document: Document) -> Iterator[Problem]:
    """All problems between parts of the file."""
    root = document.root.value
    if not isinstance(root, dict):
        return
    providers = root.get("providers", [])
    if providers == [] and "nodeGroups" not in root and "dock" not in root:
        yield document.problem(
            ("providers",),
            "there is nothing to serve: neither nodeGroups nor providers",
            "write clouds and nodeGroups, or for example providers: [{type: memory}]",
        )
    yield from _unknown_clouds(document, root)
    yield from _ids(document, root)
    yield from _currencies(document, root)
    yield from dock_checks(document, root)
    yield from node_manager_checks(document, root)


def _groups(root: dict[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    groups = root.get("nodeGroups")
    for index, group in enumerate(groups if isinstance(groups, list) else ()):
        if isinstance(group, dict):
            yield ("nodeGroups", index), group


def _unknown_clouds(document: Document, root: dict[str, Any]) -> Iterator[Problem]:
    clouds = root.get("clouds", {})
    if not isinstance(clouds, dict):
        return
    for path, group in _groups(root):
        cloud = group.get("cloud")
        if isinstance(cloud, str) and cloud.strip() and cloud not in clouds:
            hint = did_you_mean(cloud, list(clouds)) or (
                f"there is: {', '.join(map(printable, clouds))}" if clouds else "write clouds with its driver"
            )
            yield document.problem((*path, "cloud"), f"there is no cloud {printable(cloud)}", hint)


def _ids(document: Document, root: dict[str, Any]) -> Iterator[Problem]:
    """Ids are unique after the fan-out over zones and shapes (R10)."""
    first: dict[str, KeyPath] = {}
    for path, group in _groups(root):
        id_ = group.get("id")
        if not isinstance(id_, str):
            continue
        for full, _, _ in fan_out(id_, _unique(group.get("shapes")), _unique(group.get("zones"))):
            if full in first:
                entry = document.find((*first[full], "id"))
                where = f"first in line {entry.line}" if entry else "before"
                message = f"the id {printable(full)} is there twice, {where}"
                yield document.problem((*path, "id"), message, "every group needs an id of its own")
            elif len(full) > LONGEST_ID >= len(id_):
                yield document.problem((*path, "id"), f"is longer than {LONGEST_ID} characters with zone and shape")
            first.setdefault(full, path)


def _unique(value: Any) -> list[str]:
    """The distinct texts of a list; the list's own validation reports duplicates."""
    return list(dict.fromkeys(item for item in value if isinstance(item, str))) if isinstance(value, list) else []


def _currencies(document: Document, root: dict[str, Any]) -> Iterator[Problem]:
    """R84: prices are compared as bare numbers, so there is one currency in the whole file."""
    places: list[tuple[KeyPath, Any]] = [((*path, "price"), group.get("price")) for path, group in _groups(root)]
    places.append((("guards", "maxSpendPerDay"), _below(root, "guards", "maxSpendPerDay")))
    clouds = root.get("clouds")
    for name in clouds if isinstance(clouds, dict) else ():
        limits = ("clouds", name, "engine", "guards", "maxSpendPerDay")
        places.append((limits, _below(root, *limits)))
    found = [(path, _below(money, "currency")) for path, money in places]
    said = [(path, currency) for path, currency in found if isinstance(currency, str)]
    for path, currency in said[1:]:
        if currency != said[0][1]:
            entry = document.find((*said[0][0], "currency"))
            where = f" in line {entry.line}" if entry else ""
            message = f"is {printable(currency)}, but {printable(said[0][1])}{where}"
            yield document.problem((*path, "currency"), message, "all prices and limits are in one currency")


def _below(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def missing_prices(config: Config, unpriced: Collection[str]) -> list[Problem]:
    """Problems of groups, by id, that have no price, neither in the file nor from their driver.

    Under a spend guard, its cloud's or that of all clouds, every group needs a price (law 10).
    """
    problems: dict[int, Problem] = {}
    for group in config.groups():
        cloud = config.clouds.get(group.cloud)
        if cloud is None:
            continue  # that is reported already
        limits = (config.guards.max_spend_per_day, cloud.engine.guards.max_spend_per_day)
        if group.id in unpriced and limits != (None, None):
            where = config.where("nodeGroups", group.index, "price")
            message = (
                f"is missing: the driver {cloud.driver} knows no price, and maxSpendPerDay needs one of every group"
            )
            problem = where.document.problem(where.path, message, 'for example price: {hourly: "0.05", currency: EUR}')
            problems.setdefault(group.index, problem)
    return list(problems.values())
