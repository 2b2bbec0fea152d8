"""Defines the `dock` section: where drivers connect, which ones may, and the parts of their machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, StrictBool, StrictStr, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from cloudgraft.config.fields import (
    Directory,
    Kind,
    ListenAddress,
    LoadContext,
    Name,
    PositiveDuration,
    ReadableFile,
    Text,
    Variable,
    check_closed,
    matching,
    refuse,
)
from cloudgraft.config.section import Section
from cloudgraft.config.sections.server import DockLimits
from cloudgraft.config.sections.web_server import WebServerTls
from cloudgraft.sdk.secrecy import SHORTEST_TOKEN
from cloudgraft.validation.document import Document
from cloudgraft.validation.problems import KeyPath, Problem, printable

_MOST_TOKEN_BYTES: Final = 1 << 16
_SECRETS: Final = ("secret_file", "secret_dir", "secret_env")
_PROVE: Final = (
    "give the driver a tokenFile in dock.drivers, or, if it is one of 2018 and can send none, say "
    "dock.allowLocalSecrets: true"
)


_KindName = Annotated[
    StrictStr,
    matching(
        "[A-Za-z][A-Za-z0-9]{0,62}",
        "must be letters and digits, at most 63, the first a letter",
        "for example AcmeMachineClass",
    ),
    Kind("string"),
]
_ApiVersion = Annotated[
    StrictStr,
    matching(
        "(?=.{1,253}$)([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-z][a-z0-9]*",
        "must be group/version, in lower case",
        "for example machine.example/v1",
    ),
    Kind("string"),
]


class DockTls(WebServerTls):
    """TLS of the dock. `cloudgraft certs init DIR` makes the files; they are read again when they change."""

    client_ca: ReadableFile | None = Field(
        None,
        alias="clientCA",
        description="The authority that signs the drivers' certificates. With it a driver needs a certificate, even if "
        "it has a token; without it drivers authenticate by token only.",
        examples=["certs/ca.crt"],
    )


class DockKind(Section):
    """A kind of machine classes."""

    kind: _KindName = Field(description="Its kind.", examples=["AcmeMachineClass"])
    api_version: _ApiVersion = Field(description="Its API version.", examples=["machine.example/v1"])


def _tokens(path: Path | None, info: ValidationInfo) -> Path | None:
    if path is None or not isinstance(info.context, LoadContext):
        return path
    try:
        with path.open("rb") as stream:
            lines = stream.read(_MOST_TOKEN_BYTES).split()
    except OSError:
        return path  # the check of files reports it
    if not lines or any(len(line) < SHORTEST_TOKEN for line in lines):
        raise refuse(
            f"must hold a token of at least {SHORTEST_TOKEN} characters, or several, one a line",
            "for example by: openssl rand -hex 32",
        )
    return path


class DockCaller(Section):
    """A caller of the dock, and its kinds.

    :func:`dock_checks` reports missing values, and values that are the same as another caller's.
    """

    name: Name = Field(description="For logs and messages; unique among drivers and engines.", examples=["acme"])
    kinds: tuple[DockKind, ...] = Field(
        (),
        description="Its kinds, if it has more than one.",
        examples=["[{kind: AcmeMachineClass, apiVersion: machine.example/v1}]"],
    )
    kind: _KindName | None = Field(
        None, validate_default=True, description="Its one kind.", examples=["AcmeMachineClass"]
    )
    api_version: _ApiVersion | None = Field(
        None, description="The API version of `kind`, which needs one.", examples=["machine.example/v1"]
    )
    client_names: tuple[Text, ...] = Field(
        (),
        description="DNS names, URIs or common names of which its certificate must have one. Needs `tls.clientCA`.",
        examples=["[acme-driver]"],
    )
    token_file: Annotated[ReadableFile, AfterValidator(_tokens)] | None = Field(
        None,
        description="A file with its token, or with several, one a line, while they are changed. It is read again "
        "when it changes.",
        examples=["acme.token"],
    )

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, value: str | None, info: ValidationInfo) -> str | None:
        kinds = info.data.get("kinds")  # None: it is wrong, and has its own problem
        if value is None and kinds == ():
            raise refuse("is missing", "for example kind: AcmeMachineClass")
        if value is not None and kinds:
            raise refuse("does not go together with kinds", "write it as one of them")
        return value

    @field_validator("api_version")
    @classmethod
    def _check_api_version(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("kind", "") is None:
            raise refuse("only goes together with kind", "those of kinds stand with each of them")
        return value

    def all_kinds(self) -> frozenset[tuple[str, str]]:
        """Kinds and their API versions."""
        said = [(entry.kind, entry.api_version) for entry in self.kinds]
        if self.kind is not None and self.api_version is not None:
            said.append((self.kind, self.api_version))
        return frozenset(said)


class DockDriver(DockCaller):
    """A driver that may connect and register its kinds. With both `clientNames` and `tokenFile`, it needs both."""


class DockEngine(DockCaller):
    """An engine that runs elsewhere, and uses the drivers of its kinds: its file has a cloud with `driver: dock` and
    the `address` of this dock. It may not register as a driver. It authenticates as a driver does.
    """


class DockClass(Section):
    """A machine class: the driver's settings for machines. It has at most one of the keys that begin with `secret`.

    The page `machine-classes.md` describes what a driver gets of it.
    """

    kind: _KindName = Field(description="The kind whose driver it is for.", examples=["AcmeMachineClass"])
    api_version: _ApiVersion = Field(description="The API version of `kind`.", examples=["machine.example/v1"])
    provider_spec: Annotated[Mapping[str, Any], Kind("mapping")] = Field(
        default_factory=dict, repr=False, description="The driver's settings for the machines. The driver checks them."
    )
    node_template: Annotated[Mapping[str, Any], Kind("mapping")] = Field(
        default_factory=dict,
        description="The node that a machine will become: `capacity`, `instanceType`, `region`, `zone`, "
        "`architecture`, `labels`.",
    )
    secret_file: ReadableFile | None = Field(
        None, description="A YAML file of names and values: the driver's credentials.", examples=["acme-secret.yaml"]
    )
    secret_dir: Directory | None = Field(
        None, description="A directory with a file for each value, as Kubernetes mounts a Secret."
    )
    secret_env: Mapping[Text, Variable] | None = Field(
        None,
        description="The environment variable of each value, by the value's name.",
        examples=["{token: ACME_TOKEN}"],
    )

    @field_validator("secret_dir", "secret_env")
    @classmethod
    def _check_one_secret(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and any(info.data.get(name) is not None for name in _SECRETS):
            raise refuse("a class has one secret", "remove the others of secretFile, secretDir and secretEnv")
        return value


class DockKubernetes(Section):
    """Machine classes that are objects of the cluster: `MachineClass` of `machine.sapcloud.io/v1alpha1`."""

    namespace: Name = Field(
        description="The namespace of the classes and of the Secrets that they name.", examples=["machines"]
    )


class Dock(Section):
    """Where drivers connect: cloudgraft listens, and drivers connect from wherever they can reach it."""

    # `listen` comes after `tls`, which decides what it may be.
    tls: DockTls | None = Field(None, description="TLS; without it only drivers on this host can connect.")
    listen: ListenAddress = Field(
        "127.0.0.1:5000",
        description="Where drivers connect; port 0 takes a free one. Without `tls` it must be a loopback address.",
        examples=["0.0.0.0:5000"],
    )
    drivers: tuple[DockDriver, ...] = Field(
        (),
        description="The drivers that may connect. Without `tls` it may be left out: any program on this host may then "
        "register any kind.",
        examples=["[{name: acme, kind: AcmeMachineClass, apiVersion: machine.example/v1, tokenFile: acme.token}]"],
    )
    engines: tuple[DockEngine, ...] = Field(
        (),
        description="Engines that run elsewhere and use the drivers of this dock. No driver is one of them. Without "
        "`tls`, `drivers` and `engines`, any program on this host may use those of a `cloudgraft dock`.",
        examples=["[{name: prod, kind: AcmeMachineClass, apiVersion: machine.example/v1, tokenFile: prod.token}]"],
    )
    allow_local_secrets: StrictBool = Field(
        False,
        description="Give secrets and user data also to drivers that prove by nothing who they are: any program on "
        "this host can then register as a driver and read them. Only for drivers of 2018, which can send neither a "
        "token nor a certificate; it does not go together with `tls` and tokens.",
    )
    heartbeat: PositiveDuration = Field(
        timedelta(seconds=5),
        description="How often both sides send a heartbeat; three missed ones end a connection.",
    )
    limits: DockLimits = Field(DockLimits(), description="Limits on connections.")
    classes: Annotated[Mapping[Name, DockClass], Kind("mapping of mappings")] = Field(
        default_factory=dict, description="Machine classes, by name."
    )
    classes_dir: Directory | None = Field(
        None, description="A directory of files with machine classes and Secrets, which is read again when it changes."
    )
    kubernetes: DockKubernetes | None = Field(
        None, description="Machine classes and Secrets of the cluster. Needs `kubernetes` of the file."
    )

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str, info: ValidationInfo) -> str:
        """Law 9: closed by default."""
        tls = info.data.get("tls", "")  # a wrong `tls` has its own problem
        return check_closed(value, tls, section="dock.", power="read secrets")


# -- dock checks -------------------------------------------------------------------------------------------------------
# Each driver and engine of a dock must authenticate, and be distinct from all the others.
#
# As in :mod:`cloudgraft.config.checks`, this reads the plain values of the file, so that all is reported at once.


_LISTS = {"drivers": "driver", "engines": "engine"}


def dock_checks(document: Document, root: dict[str, Any]) -> Iterator[Problem]:
    """All problems between the callers of a dock."""
    dock = root.get("dock")
    if not isinstance(dock, dict):
        return
    callers = [caller for key, noun in _LISTS.items() for caller in _callers(dock, key, noun)]
    tls = dock.get("tls")
    if isinstance(tls, dict) and not dock.get("drivers"):
        hint = "for example [{name: acme, …, clientNames: [a]}]"
        yield document.problem(("dock", "drivers"), "is missing: with tls it says who may dial in", hint)
    for caller in callers:
        if caller.lacks_version:
            hint = "for example apiVersion: machine.example/v1"
            yield document.problem((*caller.path, "apiVersion"), "is missing", hint)
        yield from _proofs(document, caller, tls, has_tokens=any(other.token for other in callers))
    yield from _twice(document, callers)
    yield from _open_secrets(document, dock, has_proofs=tls is not None or any(caller.token for caller in callers))


def _open_secrets(document: Document, dock: dict[str, Any], *, has_proofs: bool) -> Iterator[Problem]:
    """Problems of secrets that no driver can get, and of the option that gives them to any local program."""
    is_allowed = dock.get("allowLocalSecrets")
    if has_proofs and is_allowed is True:
        message = "does not go together with tls and tokens: by them every driver proves who it is"
        yield document.problem(("dock", "allowLocalSecrets"), message, "remove it")
    if has_proofs or is_allowed is True:
        return
    classes = dock.get("classes")
    for name, entry in classes.items() if isinstance(classes, dict) else ():
        for key in map(to_camel, _SECRETS):
            if isinstance(entry, dict) and entry.get(key) is not None:
                message = "no driver can get this secret: without tls and tokens the dock does not know who asks for it"
                yield document.problem(("dock", "classes", name, key), message, _PROVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caller:
    path: KeyPath
    noun: str
    name: str
    client_names: list[str]
    token: object
    lacks_version: bool

    def __str__(self) -> str:
        return f"the {self.noun} {printable(self.name)}" if self.name else f"another {self.noun}"


def _callers(dock: dict[str, Any], key: str, noun: str) -> Iterator[_Caller]:
    entries = dock.get(key)
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            name, names = entry.get("name"), entry.get("clientNames")
            yield _Caller(
                path=("dock", key, index),
                noun=noun,
                name=name if isinstance(name, str) else "",
                client_names=[one for one in names if isinstance(one, str)] if isinstance(names, list) else [],
                token=entry.get("tokenFile"),
                lacks_version="kind" in entry and "kinds" not in entry and entry.get("apiVersion") is None,
            )


def _proofs(document: Document, caller: _Caller, tls: Any, *, has_tokens: bool) -> Iterator[Problem]:
    """Problems with the proofs of a caller: it must have one that it can use."""
    if tls is not None and not isinstance(tls, dict):
        return  # it has its own problem
    has_authority = tls is not None and tls.get("clientCA") is not None
    if caller.client_names and not has_authority:
        message = "needs dock.tls.clientCA, which signs such certificates"
        yield document.problem((*caller.path, "clientNames"), message)
    if (tls is not None or has_tokens) and not caller.client_names and caller.token is None:
        proof = "clientNames or tokenFile" if has_authority else "tokenFile"
        yield document.problem(caller.path, f"{caller} needs {proof}, to be known by")


def _twice(document: Document, callers: list[_Caller]) -> Iterator[Problem]:
    """Problems of callers with the same name or proof: which of them is meant would depend on their order."""
    names: dict[str, _Caller] = {}
    proofs: dict[tuple[str, str], _Caller] = {}
    for caller in callers:
        first = names.setdefault(caller.name, caller)
        if caller.name and first is not caller:
            hint = f"each {caller.noun} needs its own"
            yield document.problem((*caller.path, "name"), f"the name {caller.name} is already that of {first}", hint)
        token = caller.token if isinstance(caller.token, str) else ""
        for client in caller.client_names or [""]:
            other = proofs.setdefault((client, token), caller)
            if (client or token) and other is not caller:
                # A token's file may by mistake be the token: it is not repeated.
                shown, key = (printable(client), "clientNames") if client else ("this token", "tokenFile")
                message = f"{shown} is already one of {other}"
                yield document.problem((*caller.path, key), message, "one entry may have several kinds")
