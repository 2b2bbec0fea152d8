"""Builds cert-manager's controllers from its Go module, and defines its kinds in an API server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.build import Recipe, Tell, build
from e2e.control_plane import ControlPlane
from e2e.kubectl import kubeconfig_of, kubectl
from e2e.liqo_definitions import define
from e2e.module_files import module_directory
from e2e.processes import Program, free_ports

__all__ = ["NAMESPACE", "RELEASES", "CertManager", "controller", "define_kinds"]

NAMESPACE: Final = "cert-manager"
_MODULE: Final = "github.com/cert-manager/cert-manager"
_BINARY: Final = "cert-manager"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertManager:
    """A release, and how its controllers are built and started."""

    name: str  # as in --cert-manager
    what: str  # for people
    recipe: Recipe
    definitions: str  # a pattern of files in the module

    @property
    def is_its_own_program(self) -> bool:
        """Tells if cert-manager's own program is built, and not our small one."""
        return self.recipe.source is None


def _recipe(version: str, package: str, **more: Any) -> Recipe:
    return Recipe(key=f"cert-manager-{version}", module=_MODULE, version=version, programs={_BINARY: package}, **more)


RELEASES: Final = {
    release.name: release
    for release in (
        CertManager(
            name="1.11",
            what="1.11.5, its own program",
            recipe=_recipe("v1.11.5", f"{_MODULE}/cmd/controller"),
            definitions="crd-*.yaml",
        ),
        CertManager(
            name="1.21",
            what="1.21.2, its controllers under a main of ours",
            recipe=_recipe("v1.21.2", ".", source=Path(__file__).with_name("controllers.go")),
            definitions="*cert-manager.io_*.yaml",
        ),
    )
}


def define_kinds(release: CertManager, plane: ControlPlane, directory: Path) -> None:
    """Has the API server serve the kinds of that release. Raises CannotBuildError."""
    found = module_directory(_MODULE, release.recipe.version, directory) / "deploy" / "crds"
    definitions = directory / "definitions"
    definitions.mkdir()
    for path in sorted(found.glob(release.definitions)):
        one = yaml.safe_load(path.read_text("utf-8"))
        one["metadata"].pop("labels", None)  # in older releases they are templates of its chart
        (definitions / path.name).write_text(yaml.safe_dump(one), "utf-8")
    define(plane, definitions)


def controller(release: CertManager, plane: ControlPlane, directory: Path, tell: Tell) -> Program:
    """The controllers, not started yet, with an account of their own. Raises CannotBuildError."""
    binary = build(release.recipe, tell)[_BINARY]
    kubectl(plane, "create", "namespace", NAMESPACE)
    kubectl(plane, "-n", NAMESPACE, "create", "serviceaccount", "cert-manager")
    account = f"--serviceaccount={NAMESPACE}:cert-manager"
    kubectl(plane, "create", "clusterrolebinding", "cert-manager", "--clusterrole=cluster-admin", account)
    kubeconfig = kubeconfig_of(plane, "cert-manager", directory / "cert-manager.conf", namespace=NAMESPACE)
    words = [f"--kubeconfig={kubeconfig}", f"--cluster-resource-namespace={NAMESPACE}", "--v=2"]
    if release.is_its_own_program:
        words += _of_its_own_program()
    return Program("cert-manager", [binary, *words], directory / "cert-manager.log")


def _of_its_own_program() -> Sequence[str]:
    (port,) = free_ports(1)
    return (f"--leader-election-namespace={NAMESPACE}", f"--metrics-listen-address=127.0.0.1:{port}")
