"""Defines the `join` section: how machines become nodes. A group's own `join` overrides it key by key."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StrictStr, ValidationInfo, field_validator

from cloudgraft.config.fields import Kind, PositiveDuration, ReadableFile, is_readable_here, matching, refuse
from cloudgraft.config.section import Section
from cloudgraft.joining.claims import JoinPlan, ready_made
from cloudgraft.joining.tokens import public_key_hashes
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.secrecy import hide
from cloudgraft.validation.document import read_file, read_yaml
from cloudgraft.validation.problems import ConfigError

_KUBEADM_GROUP: Final = "system:bootstrappers:kubeadm:default-node-token"
# The group that may join, for each kind of cluster.
_GROUPS: Final[Mapping[str | None, str]] = {
    "k3s": "system:bootstrappers:k3s:default-node-token",
    "rke2": "system:bootstrappers:rke2:default-node-token",
    "talos": "system:bootstrappers:nodes",
}


_Group = Annotated[
    StrictStr,
    matching(
        "system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]",
        "must begin with system:bootstrappers: and go on in lower-case letters, digits, ':' and '-'",
        f"for example {_KUBEADM_GROUP}",
    ),
    Kind("string"),
]


def _server(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_good = parts.scheme == "https" and parts.hostname and parts.path in {"", "/"} and (parts.port or 443)
        is_good = is_good and not (parts.query or parts.fragment or "@" in parts.netloc)
    except ValueError:
        is_good = False
    if not is_good or not value.isprintable() or " " in value:
        raise refuse("must be an https URL without a path", "for example https://10.0.0.1:6443")
    return value.rstrip("/")


class JoinToken(Section):
    """The bootstrap tokens with which machines join: one for each, which is deleted when its node is there."""

    ttl: PositiveDuration = Field(
        timedelta(minutes=30),
        description="How long a token is valid: enough for the machine to boot and join. Machines try for as long.",
    )
    groups: tuple[_Group, ...] | None = Field(
        None,
        description="The groups of the machine in the cluster, beside `system:bootstrappers`; by default those that "
        f"the template's kind of cluster needs, such as `{_KUBEADM_GROUP}`.",
        examples=[f'["{_KUBEADM_GROUP}"]'],
    )

    @field_validator("ttl")
    @classmethod
    def _check_ttl(cls, value: timedelta) -> timedelta:
        if not timedelta(minutes=1) <= value <= timedelta(days=1):
            raise refuse("must be between a minute and a day", "for example 30m")
        return value


class Join(Section):
    """How machines become nodes: the user data with which they boot. Without it they get none.

    The how-to `let-machines-join.md` describes what a template can use.
    """

    template: Literal["kubeadm", "k3s", "rke2", "talos"] | None = Field(
        None, description="A template that comes with cloudgraft.", examples=["kubeadm"]
    )
    file: ReadableFile | None = Field(
        None, description="A template of your own, in Jinja2, instead of `template`.", examples=["join.yaml.j2"]
    )
    server: Annotated[StrictStr, AfterValidator(_server), Kind("URL")] | None = Field(
        None, description="Where machines find the cluster.", examples=["https://10.0.0.1:6443"]
    )
    ca_file: ReadableFile | None = Field(
        None, description="The certificate of the cluster's authority; by default that of `kubernetes`."
    )
    values: Annotated[Mapping[str, Any], Kind("mapping")] = Field(
        default_factory=dict,
        repr=False,
        description="Other values for the template, as `values.…`. Those of a group are added to those of the file.",
    )
    values_file: ReadableFile | None = Field(
        None, description="A YAML file with more values, for secret ones. `values` win over them."
    )
    token: JoinToken | None = Field(None, description="The tokens with which machines join. Needs `kubernetes`.")

    @field_validator("file")
    @classmethod
    def _check_file(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("template") is not None:
            raise refuse("does not go together with template", "remove one of the two")
        return value

    @field_validator("ca_file")
    @classmethod
    def _check_authority(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and is_readable_here(value, info):
            try:
                public_key_hashes(read_file(value))
            except InvalidArgumentError:
                raise refuse("holds no certificate in PEM form", "such as /etc/kubernetes/pki/ca.crt") from None
        return value

    @field_validator("values_file")
    @classmethod
    def _check_values(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and is_readable_here(value, info):
            try:
                _read_values(value)
            except ConfigError as error:
                raise refuse("; ".join(map(str, error.problems))) from None
        return value

    @property
    def has_template(self) -> bool:
        """Whether it has a template or a file."""
        return self.template is not None or self.file is not None

    def over(self, base: Self | None) -> Self:
        """This section, with missing keys taken from another one."""
        if base is None:
            return self
        own, theirs = _said(self), _said(base)
        if self.has_template:
            theirs = {key: value for key, value in theirs.items() if key not in {"template", "file"}}
        token = {**_said(base.token), **_said(self.token)}
        merged = {**theirs, **own, "values": {**base.values, **self.values}}
        return self.model_copy(update=merged | ({"token": JoinToken.model_construct(**token)} if token else {}))

    def as_plan(self, settings: Mapping[str, Any]) -> JoinPlan:
        """The plan for user data, with the files read. ``settings`` is the group's `machine` section.

        Raises ConfigError when a file cannot be read. Errors of a template are found when it is compiled.
        """
        token = self.token or JoinToken()
        if self.file is not None:
            text, name = read_file(self.file), str(self.file)
        else:
            text, name = ready_made(self.template or ""), f"the template {self.template}"
        groups = token.groups if token.groups is not None else (_GROUPS.get(self.template, _KUBEADM_GROUP),)
        return JoinPlan(
            template=text,
            file=name,
            server=self.server or "",
            ca_cert=read_file(self.ca_file) if self.ca_file else "",
            values={**(_read_values(self.values_file) if self.values_file else {}), **self.values},
            settings=settings,
            token_ttl=token.ttl,
            token_groups=groups,
        )


def _said(section: Section | None) -> dict[str, Any]:
    """The keys that are set in the file, without defaults."""
    return {} if section is None else {name: getattr(section, name) for name in section.model_fields_set}


def _read_values(path: Path) -> Mapping[str, Any]:
    """Reads values from a file; all of them are hidden as secrets from now on."""
    document = read_yaml(read_file(path), str(path))
    values = document.root.value
    _hide_all(values)
    if document.problems:
        raise ConfigError(document.problems)
    if not isinstance(values, dict):
        raise ConfigError([document.problem((), "must be a mapping of names to values", "for example token: …")])
    return values


def _hide_all(value: object) -> None:
    if isinstance(value, str):
        hide(value)
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _hide_all(each)
