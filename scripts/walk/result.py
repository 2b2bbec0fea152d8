"""What a walk through a flow has shown."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "cloudgraft"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One thing that happens in a server, from a beginning to an end that a client can see."""

    key: str
    title: str
    what: str  # a sentence or two: from where to where
    most_modules: int | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """A module that was passed."""

    name: str  # without the name of the whole package, such as engine.worker

    @property
    def package(self) -> str:
        """The package in which it is; its own name for a package's ``__init__``, and for a module at the top."""
        return self.name if self._file.name == "__init__.py" else self.name.rpartition(".")[0] or self.name

    @property
    def path(self) -> str:
        """Where it is below ``src``."""
        return self._file.relative_to(SOURCE.parent).as_posix()

    @property
    def lines(self) -> int:
        """How long it is."""
        return len(self._text.splitlines())

    @property
    def about(self) -> str:
        """The first paragraph of its docstring, in one line."""
        return " ".join((ast.get_docstring(ast.parse(self._text)) or "").split("\n\n")[0].split())

    @property
    def _file(self) -> Path:
        inside = SOURCE.joinpath(*self.name.split(".")) if self.name else SOURCE
        module = inside.with_suffix(".py")
        return module if module.is_file() else inside / "__init__.py"

    @property
    def _text(self) -> str:
        return _read(self._file)


@cache
def _read(path: Path) -> str:
    return path.read_text("utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The way that a flow takes through the modules."""

    flow: Flow
    modules: Sequence[Module]  # in the order of first entry
    entries: int  # into functions
    changes: int  # of module, from one entry to the next
    backs: int  # of these, to a module that was left before
    cloud_modules: int  # of the simulated cloud: passed beside those above, and in none of the figures above

    @property
    def packages(self) -> Mapping[str, Sequence[Module]]:
        """The packages in the order of first entry, with their modules."""
        found: dict[str, list[Module]] = {}
        for module in self.modules:
            found.setdefault(module.package, []).append(module)
        return found

    @property
    def top_packages(self) -> int:
        """How many there are right below ``cloudgraft``, each with what is inside it."""
        return len({name.partition(".")[0] for name in self.packages})

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "flow": self.flow.key,
            "title": self.flow.title,
            "modules": [
                {
                    "name": module.name,
                    "package": module.package,
                    "path": module.path,
                    "lines": module.lines,
                    "about": module.about,
                }
                for module in self.modules
            ],
            "packages": list(self.packages),
            "moduleCount": len(self.modules),
            "packageCount": len(self.packages),
            "topPackageCount": self.top_packages,
            "entries": self.entries,
            "changes": self.changes,
            "backs": self.backs,
            "cloudModuleCount": self.cloud_modules,
            "mostModules": self.flow.most_modules,
        }


def walk_of(flow: Flow, rounds: Sequence[Sequence[str]], *, cloud: str) -> Walk:
    """The way that is common to all rounds of one flow; each is the modules in the order in which they were entered.

    What was not entered in every round has happened beside the flow, and is left out. Of the rest, the round with the
    fewest changes is told: the others have waited longer, and were asked more often whether they are done. ``cloud`` is
    the package of the simulated cloud.
    """
    common = set(rounds[0]).intersection(*rounds[1:])
    of_cloud = {module for module in common if module == cloud or module.startswith(f"{cloud}.")}
    own = common - of_cloud
    entered = min(([module for module in one if module in own] for one in rounds), key=_changes)
    return Walk(
        flow=flow,
        modules=[Module(name.partition(".")[2]) for name in dict.fromkeys(entered)],
        entries=len(entered),
        changes=_changes(entered),
        backs=_backs(entered),
        cloud_modules=len(of_cloud),
    )


def _changes(entered: Sequence[str]) -> int:
    return sum(before != after for before, after in pairwise(entered))


def _backs(entered: Sequence[str]) -> int:
    seen: set[str] = set()
    backs = 0
    for before, after in pairwise(entered):
        seen.add(before)
        backs += before != after and after in seen
    return backs


def judged(walks: Sequence[Walk]) -> list[str]:
    """The flows that pass more modules than they may, in words."""
    return [
        f"{walk.flow.title}: {len(walk.modules)} modules, and at most {walk.flow.most_modules} are allowed"
        for walk in walks
        if walk.flow.most_modules is not None and len(walk.modules) > walk.flow.most_modules
    ]
