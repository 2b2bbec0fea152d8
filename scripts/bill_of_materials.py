"""Lists everything that is in an installed cloudgraft as a CycloneDX document: Python packages and Rust crates."""

from __future__ import annotations

import json
import subprocess
import tomllib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["Component", "bill_of_materials", "crates", "packages"]

_NATIVE: Final = "cloudgraft-native"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One package or crate of one version."""

    kind: str  # of its package URL: pypi or cargo
    name: str
    version: str
    license: str
    needs: tuple[str, ...]  # package URLs
    sha256: str = ""  # of the archive that it was built from, where a lock file says it

    @property
    def url(self) -> str:
        """By which it is known all over the document."""
        return _url(self.kind, self.name, self.version)


def _url(kind: str, name: str, version: str) -> str:
    return f"pkg:{kind}/{name}@{version}"


# -- what is there -----------------------------------------------------------------------------------------------------


def packages(site_packages: Path, name: str, extras: Iterable[str] = ()) -> list[Component]:
    """The package and what it needs, and what that needs, as installed there."""
    found_there = distributions(path=[str(site_packages)])
    installed: dict[str, Distribution] = {canonicalize_name(found.name): found for found in found_there}
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(name), frozenset(extras))]
    needed: dict[str, set[str]] = {}
    seen = set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        needs = list(_needs(installed[current[0]], current[1]))
        needed.setdefault(current[0], set()).update(need for need, _ in needs)
        waiting += needs
    return [_package(installed, name, needs) for name, needs in sorted(needed.items())]


def _needs(distribution: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for requirement in map(Requirement, distribution.requires or ()):
        contexts = [{"extra": extra} for extra in extras or {""}]
        if requirement.marker is None or any(requirement.marker.evaluate(context) for context in contexts):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def _package(installed: Mapping[str, Distribution], name: str, needs: Iterable[str]) -> Component:
    distribution = installed[name]
    urls = tuple(sorted(_url("pypi", need, installed[need].version) for need in needs))
    licensed = _license(distribution)
    return Component(kind="pypi", name=name, version=distribution.version, license=licensed, needs=urls)


def _license(distribution: Distribution) -> str:
    """As the package says it: an expression, a name in a line, or its classifier; in this order."""
    metadata = distribution.metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    named = metadata["License"].strip() if "License" in metadata else ""
    if named and "\n" not in named:
        return named
    classifiers = [line for line in metadata.get_all("Classifier") or () if line.startswith("License ::")]
    return classifiers[0].rpartition(" :: ")[2] if classifiers else ""


def crates(directory: Path) -> list[Component]:
    """The crate in the directory, and what is compiled into it on this platform: neither tests nor build scripts."""
    version = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    (platform,) = [line.removeprefix("host: ") for line in version.splitlines() if line.startswith("host: ")]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", platform]
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=True)
    graph = json.loads(done.stdout)
    sums = _checksums(directory / "Cargo.lock")
    about = {package["id"]: package for package in graph["packages"]}
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    found: dict[str, list[str]] = {}
    waiting = [graph["resolve"]["root"]]
    while waiting:
        if (current := waiting.pop()) not in found:
            found[current] = [need["pkg"] for need in nodes[current]["deps"] if _is_compiled_in(need)]
            waiting += found[current]
    return sorted((_crate(about, id_, needs, sums) for id_, needs in found.items()), key=lambda one: one.url)


def _is_compiled_in(need: Mapping[str, Any]) -> bool:
    return any(kind["kind"] is None for kind in need["dep_kinds"])


def _checksums(lock: Path) -> dict[tuple[str, str], str]:
    listed = tomllib.loads(lock.read_text("utf-8"))["package"]
    return {(one["name"], one["version"]): one.get("checksum", "") for one in listed}


def _crate(
    about: Mapping[str, Mapping[str, Any]], id_: str, needs: Iterable[str], sums: Mapping[tuple[str, str], str]
) -> Component:
    name, version = about[id_]["name"], about[id_]["version"]
    return Component(
        kind="cargo",
        name=name,
        version=version,
        # Older crates write MIT/Apache-2.0.
        license=" ".join((about[id_]["license"] or "").replace("/", " OR ").split()),
        needs=tuple(sorted(_url("cargo", about[need]["name"], about[need]["version"]) for need in needs)),
        sha256=sums[name, version],
    )


# -- the document ------------------------------------------------------------------------------------------------------


def bill_of_materials(components: Iterable[Component], *, root: str, made_at: datetime) -> str:
    """CycloneDX 1.6 in JSON. The same components at the same time make the same bytes."""
    listed = sorted(components, key=lambda one: one.url)
    (subject,) = [one for one in listed if one.kind == "pypi" and one.name == root]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "",
        "version": 1,
        "metadata": {
            "timestamp": made_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": _described(subject, "application"),
        },
        "components": [_described(one, "library") for one in listed if one is not subject],
        "dependencies": [{"ref": one.url, "dependsOn": list(_all_needs(one, listed))} for one in listed],
    }
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True)).urn
    return json.dumps(document, indent=1) + "\n"


def _described(component: Component, type_: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "type": type_,
        "bom-ref": component.url,
        "name": component.name,
        "version": component.version,
        "purl": component.url,
    }
    if component.license:
        described["licenses"] = [{"license": {"name": component.license}}]
    if component.sha256:
        described["hashes"] = [{"alg": "SHA-256", "content": component.sha256}]
    return described


def _all_needs(component: Component, listed: Iterable[Component]) -> Iterator[str]:
    """The wheel of the native transport is made of its crate."""
    yield from component.needs
    if component.kind == "pypi" and component.name == _NATIVE:
        yield from (one.url for one in listed if one.kind == "cargo" and one.name == _NATIVE)
