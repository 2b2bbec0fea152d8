"""Finds and loads drivers and providers that Python packages install, through their entry points.

A package offers one by naming a class in its ``pyproject.toml``::

    [project.entry-points."cloudgraft.drivers"]
    acme = "cloudgraft_acme:AcmeDriver"

The class is a Driver, BlockingDriver, Provider or BlockingProvider; :class:`cloudgraft.sdk.driver.DriverDeclarations`
says how it declares its options. It is imported only when it is needed. One that cannot be imported reports why, and
the others still work. An error of options lists all problems at once, and never repeats a value, which may be a secret.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib.util
import inspect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from cloudgraft.config import ConfigError, Where, parse_options
from cloudgraft.sdk.blocking import AnyDriver, AnyProvider, BlockingDriver, BlockingProvider
from cloudgraft.sdk.common.extras import OURS, install_command, not_installed
from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.driver import Driver, DriverDeclarations, Place
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.sdk.provider import Provider
from cloudgraft.validation.document import Document
from cloudgraft.validation.explain import keys_of

Author = AnyDriver | AnyProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a class, with its name in the configuration."""

    name: str
    is_required: bool


def check_declarations(cls: type[Author]) -> None:
    """Raises InvalidArgumentError for a class that declares what cannot be used."""
    declared: dict[str, Any] = {"Options": cls.Options}
    if issubclass(cls, DriverDeclarations):
        declared["MachineSettings"] = cls.MachineSettings
        if cls.sets_node_labels and not keys_of(cls.MachineSettings).keys() >= {"labels", "taints"}:
            message = f"{cls.__name__}.sets_node_labels needs MachineSettings with the fields labels and taints"
            raise InvalidArgumentError(message)
    for name, model in declared.items():
        is_model = isinstance(model, type) and (dataclasses.is_dataclass(model) or issubclass(model, BaseModel | dict))
        if model is not None and not is_model:
            raise InvalidArgumentError(f"{cls.__name__}.{name} must be a dataclass, a pydantic model or dict")


def arguments(
    cls: type[Author],
    given: Mapping[str, object],
    where: Where,
    places: Mapping[Place, Path] | None = None,
    *,
    name: str = "",
) -> tuple[object, ...]:
    """Returns what to construct the class with: an object of its ``Options``, or nothing. Raises ConfigError.

    ``name`` is what messages call the class.
    """
    if cls.Options is not None:
        return (parse_options(cls.Options, given, where, places),)
    if given:
        message = f"{name or cls.__name__} takes no options, but got: {', '.join(sorted(given))}"
        raise ConfigError([where.document.problem(where.path, message)])
    return ()


def construct(cls: type[Author], options: Mapping[str, object]) -> Author:
    """Constructs the class with these options; raises InvalidArgumentError that says what is wrong with them."""
    check_declarations(cls)
    where = Where(document=Document.without_file("options"), base_dir=Path.cwd(), path=())
    return cls(*arguments(cls, options, where))


def options_of(cls: type[Author]) -> tuple[Option, ...]:
    """Returns the options of a class, required ones first."""
    required = _required(cls.Options) if keys_of(cls.Options) else set()
    found = [Option(name=name, is_required=key.field in required) for name, key in keys_of(cls.Options).items()]
    return tuple(sorted(found, key=lambda option: not option.is_required))


def _required(model: Any) -> set[str]:
    if issubclass(model, BaseModel):
        return {name for name, field in model.model_fields.items() if field.is_required()}
    missing = dataclasses.MISSING
    return {
        field.name
        for field in dataclasses.fields(model)
        if field.init and field.default is missing and field.default_factory is missing
    }


class Kind(enum.Enum):
    """The kinds of entry points; the value is the name of the entry point group."""

    DRIVER = "cloudgraft.drivers"
    PROVIDER = "cloudgraft.providers"

    @property
    def word(self) -> str:
        """The kind in one word, for messages."""
        return "driver" if self is Kind.DRIVER else "provider"

    @property
    def classes(self) -> tuple[type, ...]:
        """The base classes, of which the class must have one."""
        return (Driver, BlockingDriver) if self is Kind.DRIVER else (Provider, BlockingProvider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """An extension as listings show it; ``error`` says why it cannot be used."""

    name: str
    kind: Kind
    target: str  # module:Class
    distribution: str
    version: str
    summary: str = ""
    options: tuple[Option, ...] = ()
    extras: tuple[str, ...] = ()  # of its distribution, that it needs
    lacks_extras: bool = False  # it cannot be imported without them
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """An installed entry point, not yet imported."""

    kind: Kind
    entry_point: EntryPoint
    is_ambiguous: bool = False  # another package offers the same name

    @property
    def name(self) -> str:
        """Its name in a configuration."""
        return self.entry_point.name

    @property
    def package(self) -> str:
        """The distribution that installs it, with its version."""
        dist = self.entry_point.dist
        return f"{dist.name} {dist.version}" if dist else "an unknown package"

    def load(self) -> type[Any]:
        """Imports the class; raises CloudgraftError that says why it cannot be used."""
        what = f"the {self.kind.word} {self.name!r} of {self.package}"
        if self.is_ambiguous:
            raise PreconditionError(f"{what}: another package offers the same name, uninstall one of the two")
        try:
            found: Any = self.entry_point.load()
        except (Exception, SystemExit) as error:  # whatever a module may do when it is imported
            message = f"{what} cannot be imported: {type(error).__name__}: {error}"
            raise PreconditionError(f"{message}{self._installation(error)}") from error
        if not (isinstance(found, type) and issubclass(found, self.kind.classes)):
            wanted = " or ".join(f"cloudgraft.sdk.{cls.__name__}" for cls in self.kind.classes)
            raise PreconditionError(f"{what} is {self.entry_point.value}, which is not derived from {wanted}")
        if inspect.isabstract(found):
            missing = getattr(found, "__abstractmethods__", ())
            raise PreconditionError(f"{what} lacks the methods {', '.join(sorted(missing))}")
        cls: type[Any] = found
        check_declarations(cls)
        return cls

    def _installation(self, error: BaseException) -> str:
        """Says how to install its extra, if its entry point names one: ``name = "module:Class [extra]"``."""
        dist, extras = self.entry_point.dist, self.entry_point.extras
        if not (isinstance(error, ImportError) and dist and extras):
            return ""
        return f"; {install_command(*extras, package=dist.name)}"

    def _documented(self) -> str:
        """Returns the summary of a class from its source, without an import; empty when that cannot be read."""
        try:
            return _documented(self.entry_point.module, self.entry_point.attr)
        except (ImportError, OSError, ValueError, SyntaxError):
            return ""

    def glance(self) -> Listing:
        """Describes the extension without its options, and never raises.

        What cloudgraft itself has is not imported: that takes seconds with the libraries of all clouds. What others
        have is, since it may be broken.
        """
        dist = self.entry_point.dist
        if dist is None or dist.name != OURS or self.is_ambiguous:
            return self.listing()
        lacks = not_installed(dist, self.entry_point.extras)
        trouble = f"{', '.join(lacks)} not installed; {install_command(*self.entry_point.extras)}" if lacks else ""
        return self._listing(summary=self._documented(), lacks_extras=bool(lacks), error=trouble)

    def listing(self) -> Listing:
        """Describes the extension. Imports the class, and never raises."""
        try:
            cls = self.load()
            return self._listing(summary=_summary(cls), options=options_of(cls))
        except CloudgraftError as error:
            lacks_extras = isinstance(error.__cause__, ImportError) and bool(self.entry_point.extras)
            return self._listing(summary=self._documented(), lacks_extras=lacks_extras, error=error.message)

    def _listing(
        self, *, summary: str, options: tuple[Option, ...] = (), lacks_extras: bool = False, error: str = ""
    ) -> Listing:
        dist = self.entry_point.dist
        return Listing(
            name=self.name,
            kind=self.kind,
            target=self.entry_point.value,
            distribution=dist.name if dist else "",
            version=dist.version if dist else "",
            summary=summary,
            options=options,
            extras=tuple(self.entry_point.extras),
            lacks_extras=lacks_extras,
            error=error,
        )


def _documented(module: str, name: str) -> str:
    """Reads the first line of a class's docstring; a module that only exports the class says where it is."""
    for node in ast.parse(_source(module)).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _documented(node.module, alias.name)
    return ""


def _source(module: str) -> str:
    """Reads a module's source; find_spec would import the packages around it."""
    top, *rest = module.split(".")
    found = importlib.util.find_spec(top)
    if found is None:
        return ""
    if not rest:
        return Path(found.origin).read_text("utf-8") if found.origin else ""
    for directory in found.submodule_search_locations or ():
        path = Path(directory, *rest)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file.read_text("utf-8")
    return ""


def extensions(kind: Kind) -> list[Extension]:
    """Returns all entry points of one kind, sorted by name. Imports nothing."""
    found = sorted(entry_points(group=kind.value), key=lambda point: (point.name, point.value))
    uses = Counter(point.name for point in found)
    return [Extension(kind=kind, entry_point=point, is_ambiguous=uses[point.name] > 1) for point in found]


def list_all() -> list[Listing]:
    """Returns every installed driver and provider with its options, also those that cannot be used."""
    return [extension.listing() for kind in Kind for extension in extensions(kind)]


def glance_at_all() -> list[Listing]:
    """Returns the same without options, and does not import what cloudgraft itself has."""
    return [extension.glance() for kind in Kind for extension in extensions(kind)]


def find(kind: Kind, name: str) -> Extension:
    """Returns the extension of that name; raises NotFoundError that lists the installed ones."""
    known = {extension.name: extension for extension in extensions(kind)}
    if name in known:
        return known[name]
    close = nearest(name, known)
    hint = f"did you mean {close!r}?" if close else f"there is: {', '.join(known) or 'none'}"
    raise NotFoundError(f"no installed package offers the {kind.word} {name!r}; {hint} (see `cloudgraft drivers`)")


def driver_class(name: str) -> type[AnyDriver]:
    """Imports the driver of that name; raises CloudgraftError that says why it cannot be used."""
    return find(Kind.DRIVER, name).load()


def provider_class(name: str) -> type[AnyProvider]:
    """Imports the provider of that name; raises CloudgraftError that says why it cannot be used."""
    return find(Kind.PROVIDER, name).load()


def _summary(cls: type) -> str:
    doc = inspect.cleandoc(cls.__doc__ or "")
    return doc.partition("\n")[0]
