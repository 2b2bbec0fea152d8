"""Builds the programs from Go modules, once, into a cache outside the tree.

Every program is built in a module of its own that requires the exact version and repeats the ``replace`` lines of the
program's own go.mod, which count only in the main module. No version is ever looked up: what is to be had is what the
table says, or nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from e2e.modules import AUTOSCALER_MODULE, ETCD_MODULE, KUBERNETES_MODULE, ControlPlaneVersion, Release

__all__ = [
    "CannotBuildError",
    "Recipe",
    "Tell",
    "build",
    "build_all",
    "cache_directory",
    "go_mod",
    "node_recipe",
    "recipes_for",
    "replacements",
]

Tell = Callable[[str], None]
_KNOWN_SUMS: Final = Path(__file__).with_name("known.sum")  # of modules that not every checksum database has
_LONGEST_BUILD: Final = 45 * 60.0  # seconds, for one program on a slow machine
_LONGEST_DOWNLOAD: Final = 15 * 60.0


class CannotBuildError(Exception):
    """A program is not to be had here. The text is one line for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Programs of one module at one version. ``local`` is the version of the modules that lie inside its own tree."""

    key: str  # of the cache
    module: str
    version: str
    programs: Mapping[str, str]  # the name of a binary -> its package
    local: str = ""
    tags: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)  # set while linking, such as what it says it is
    source: Path | None = None  # a main of our own, whose program's package is "."

    @property
    def directory(self) -> str:
        """Where it is built, and kept: for each state of our own main another one."""
        if self.source is None:
            return self.key
        return f"{self.key}-{hashlib.sha256(self.source.read_bytes()).hexdigest()[:12]}"


def recipes_for(wanted: Release | ControlPlaneVersion) -> Sequence[Recipe]:
    """What has to be built for an autoscaler, or for a control plane."""
    if isinstance(wanted, Release):
        return (_autoscaler(wanted),)
    kubernetes = _kubernetes(wanted, "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    etcd = Recipe(key=f"etcd-{wanted.etcd}", module=ETCD_MODULE, version=wanted.etcd, programs={"etcd": ETCD_MODULE})
    return kubernetes, etcd


def node_recipe(version: ControlPlaneVersion) -> Recipe:
    """Lists the programs that a machine runs to join a control plane, to be built."""
    return _kubernetes(version, "kubeadm", "kubelet")


def _kubernetes(version: ControlPlaneVersion, *names: str) -> Recipe:
    return Recipe(
        key=f"kubernetes-{version.kubernetes}",
        module=KUBERNETES_MODULE,
        version=version.kubernetes,
        programs={name: f"{KUBERNETES_MODULE}/cmd/{name}" for name in names},
        local=version.staging,
        variables=_kubernetes_version(version.kubernetes),
    )


def _autoscaler(release: Release) -> Recipe:
    return Recipe(
        key=f"cluster-autoscaler-{release.version}",
        module=AUTOSCALER_MODULE,
        version=release.version,
        programs={"cluster-autoscaler": AUTOSCALER_MODULE},
        local=release.apis,
        tags="externalgrpc",  # one cloud provider instead of thirty
    )


def _kubernetes_version(version: str) -> dict[str, str]:
    """Without these an API server says that it is v0.0.0, and clients do as they would with a very old one."""
    package = "k8s.io/component-base/version"
    major, number, _ = version.removeprefix("v").split(".", 2)
    return {f"{package}.gitVersion": version, f"{package}.gitMajor": major, f"{package}.gitMinor": number}


def cache_directory() -> Path:
    """Where binaries are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cloudgraft" / "e2e"


def build(recipe: Recipe, tell: Tell, *, cache: Path | None = None) -> Mapping[str, Path]:
    """The paths of the programs, built if they are not there yet. Raises CannotBuildError."""
    root = cache or cache_directory()
    binaries = {name: root / "bin" / recipe.directory / name for name in recipe.programs}
    if all(path.exists() for path in binaries.values()):
        return binaries
    with _lock(root, tell):
        missing = [name for name, path in binaries.items() if not path.exists()]  # after the wait for the lock
        if missing:
            _build(recipe, missing, root, tell)
    return binaries


def build_all(tell: Tell, *wanted: Release | ControlPlaneVersion) -> dict[str, Path]:
    """The programs of autoscalers and control planes, as :func:`build` gives them."""
    return {name: path for one in wanted for recipe in recipes_for(one) for name, path in build(recipe, tell).items()}


@contextmanager
def _lock(root: Path, tell: Tell) -> Iterator[None]:
    """One build at a time: a build needs the whole machine."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another build is under way; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(recipe: Recipe, missing: Sequence[str], root: Path, tell: Tell) -> None:
    if shutil.which("go") is None:
        raise CannotBuildError(f"{recipe.module} cannot be built here: there is no Go toolchain (https://go.dev/dl)")
    work = root / "build" / recipe.directory
    work.mkdir(parents=True, exist_ok=True)
    tell(f"getting {recipe.module} {recipe.version}")
    _prepare(recipe, work)
    flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in recipe.variables.items())])
    for name in missing:
        tell(f"building {name} {recipe.version} (minutes, once)")
        target = root / "bin" / recipe.directory / name
        unfinished = work / name
        arguments = ["build", "-mod=mod", "-trimpath", f"-tags={recipe.tags}", f"-ldflags={flags}"]
        _go([*arguments, "-o", str(unfinished), recipe.programs[name]], work, recipe, seconds=_LONGEST_BUILD)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished.replace(target)


def _prepare(recipe: Recipe, work: Path) -> None:
    """Writes the building module, with the ``replace`` lines that the program's own go.mod has."""
    shutil.copy(_KNOWN_SUMS, work / "go.sum")
    if recipe.source is not None:
        shutil.copy(recipe.source, work / "main.go")
    (work / "go.mod").write_text(go_mod(recipe, "1.21", {}), "utf-8")
    own = json.loads(_go(["mod", "edit", "-json", str(_own_go_mod(recipe, work))], work, recipe, seconds=60.0))
    replace = replacements(own.get("Replace") or (), recipe.local)
    (work / "go.mod").write_text(go_mod(recipe, own.get("Go", "1.21"), replace), "utf-8")
    package = next(iter(recipe.programs.values()))
    asked = ["list", "-mod=mod", "-find", "-f", "{{.Module.Dir}}", package]
    sums = Path(_go(asked, work, recipe, seconds=_LONGEST_DOWNLOAD).strip()) / "go.sum"
    with (work / "go.sum").open("a", encoding="utf-8") as file:  # what upstream has built it with
        file.write(sums.read_text("utf-8") if sums.exists() else "")


def _own_go_mod(recipe: Recipe, work: Path) -> Path:
    """The go.mod of the module, in Go's own cache.

    Not by ``go mod download``, which also wants to know when a version was made, and not every registry that has a
    module can tell. The graph of its requirements cannot be complete yet, but to find that out, its go.mod is read.
    """
    cache = _go(["env", "GOMODCACHE"], work, recipe, seconds=60.0).strip()
    path = Path(cache) / "cache" / "download" / recipe.module / "@v" / f"{recipe.version}.mod"
    if not path.exists():
        try:
            _go(["mod", "graph"], work, recipe, seconds=_LONGEST_DOWNLOAD)
        except CannotBuildError:
            if not path.exists():
                raise
    return path


def replacements(lines: Sequence[Mapping[str, Mapping[str, str]]], local: str) -> dict[str, str]:
    """``replace`` lines as ``go mod edit -json`` shows them, for another main module.

    A directory of the module's own tree (``./apis``, ``./staging/src/…``) becomes the module of that name at the
    version ``local``; without one it is not replaced, and the version that is required anyway is taken.
    """
    found = {}
    for line in lines:
        old, new = line["Old"], line["New"]
        left = f"{old['Path']} {old['Version']}" if old.get("Version") else old["Path"]
        if not new["Path"].startswith((".", "/")):
            found[left] = f"{new['Path']} {new['Version']}"
        elif local:
            found[left] = f"{old['Path']} {local}"
    return found


def go_mod(recipe: Recipe, go: str, replace: Mapping[str, str]) -> str:
    """The building module."""
    lines = ["module cloudgraft.example/e2e", "", f"go {go}", "", f"require {recipe.module} {recipe.version}", ""]
    if replace:
        lines += ["replace (", *(f"\t{old} => {new}" for old, new in replace.items()), ")", ""]
    return "\n".join(lines)


def _go(arguments: Sequence[str], work: Path, recipe: Recipe, *, seconds: float) -> str:
    # A toolchain that is too old says so instead of fetching another one; no repository is asked for a commit.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}
    command = ["nice", "-n", "10", "go", *arguments]
    try:
        done = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotBuildError(_cannot(recipe, f"go {arguments[0]} took more than {seconds / 60:.0f} min")) from None
    (work / "go.log").write_text(done.stdout + done.stderr, "utf-8")
    if done.returncode:
        raise CannotBuildError(_cannot(recipe, _reason(done.stderr)))
    return done.stdout


def _cannot(recipe: Recipe, why: str) -> str:
    return f"{recipe.module} {recipe.version} cannot be built here: {why}"


def _reason(stderr: str) -> str:
    """The last word of the go command, on one line."""
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("go: downloading")]
    text = " ".join(lines[-2:]) if lines else "the go command failed without a word"
    return " ".join(text.split())[:400]
