"""Machine classes and Secrets as objects in Kubernetes' form, from any source, and the redaction of their values."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.secrecy import hide, unhide

__all__ = [
    "GARDENER",
    "ClassId",
    "Declared",
    "SecretData",
    "SecretId",
    "SecretRedaction",
    "Snapshot",
    "class_of",
    "named",
    "secret_data",
    "secret_ids",
    "shown",
]


ClassId = tuple[Key, str]
SecretId = tuple[str, str]  # namespace and name
SecretData = Mapping[str, bytes]
GARDENER: Final = Key(kind="MachineClass", api_version="machine.sapcloud.io/v1alpha1")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
_LONGEST: Final = 253
_KIND: Final = re.compile("[A-Za-z][A-Za-z0-9]{0,126}")
_API_VERSION: Final = re.compile("([a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?/)?[a-z][a-z0-9]{0,62}")
_REFERENCES: Final = ("secretRef", "credentialsSecretRef")  # in this order: the second is laid over the first
_NOISE: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A machine class as a source tells it."""

    name: str
    key: Key
    provider_spec: Mapping[str, object] = field(default_factory=dict, repr=False)
    node_template: Mapping[str, object] = field(default_factory=dict)
    json: str = field(repr=False)  # the whole object, always written in the same way
    namespace: str = ""
    secrets: tuple[SecretId, ...] = ()  # that it names
    data: SecretData | None = field(default=None, repr=False)  # of all of them together; None: not to be had
    missing: str = ""  # why it is not
    deleting: bool = False  # its deletion was asked for

    @property
    def id(self) -> ClassId:
        """Names are unique only within a kind."""
        return self.key, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a source has at one moment, and what is wrong with the rest."""

    classes: tuple[Declared, ...] = ()
    problems: tuple[str, ...] = ()


def class_of(content: Mapping[str, object], find: Callable[[SecretId], SecretData | None]) -> Declared:
    """A machine class from its object; ``find`` gives the data of a Secret. Raises InvalidArgumentError."""
    metadata = _mapping(content, "metadata")
    name, namespace = named(metadata), _text(metadata, "namespace")
    spec = _mapping(content, "providerSpec" if "providerSpec" in content else "spec")  # as until 2019
    secrets = tuple(secret_ids(content, namespace))
    data, missing = _overlaid(secrets, find)
    return Declared(
        name=name,
        key=_key(content),
        provider_spec=spec,
        node_template=_mapping(content, "nodeTemplate"),
        json=_written(
            {key: value for key, value in content.items() if key != "status"} | {"metadata": _lasting(metadata)}
        ),
        namespace=namespace,
        secrets=secrets,
        data=data,
        missing=missing,
        deleting=metadata.get("deletionTimestamp") is not None,
    )


def named(metadata: Mapping[str, object]) -> str:
    """The name of an object. Raises InvalidArgumentError for what Kubernetes would not take as one."""
    name = _text(metadata, "name")
    if not is_name(name):
        raise InvalidArgumentError(
            f"the name {shown(name)} cannot be used: lower-case letters, digits, hyphens and dots, at most {_LONGEST}"
        )
    return name


def is_name(text: str) -> bool:
    """Whether a text can be the name of an object. No path can."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


def secret_ids(content: Mapping[str, object], namespace: str) -> Iterator[SecretId]:
    """The Secrets that a class names. They are in its own namespace, and nowhere else.

    A class could otherwise hand its driver any Secret of the cluster that cloudgraft may read.
    """
    holder = content if "providerSpec" in content or "spec" not in content else _mapping(content, "spec")
    for reference in (_mapping(holder, key) for key in _REFERENCES):
        if reference:
            name, elsewhere = named(reference), _text(reference, "namespace")
            if elsewhere not in {"", namespace}:
                raise InvalidArgumentError(
                    f"it names a secret of the namespace {shown(elsewhere)}: only those of its own can be read"
                )
            yield namespace, name


def secret_data(content: Mapping[str, object]) -> SecretData:
    """What a Secret holds. Raises InvalidArgumentError, without any of it."""
    found: dict[str, bytes] = {}
    for name, value in _mapping(content, "data").items():
        try:
            found[name] = base64.b64decode(value if isinstance(value, str) else "!", validate=True)
        except (binascii.Error, ValueError):
            raise InvalidArgumentError(f"data.{shown(name)} is not base64: plain text goes into stringData") from None
    for name, value in _mapping(content, "stringData").items():
        if not isinstance(value, str):
            raise InvalidArgumentError(f"stringData.{shown(name)} is not text: put it into quotes")
        found[name] = value.encode()
    return found


def shown(text: str) -> str:
    """Somebody else's text for a message: short, and without anything that a terminal would act on."""
    return repr(text[:80] + ("…" if len(text) > 80 else ""))


def _key(content: Mapping[str, object]) -> Key:
    kind, version = _text(content, "kind"), _text(content, "apiVersion")
    if not _KIND.fullmatch(kind) or not _API_VERSION.fullmatch(version):
        raise InvalidArgumentError("kind and apiVersion must be like AcmeMachineClass and machine.example/v1")
    key = Key(kind=kind, api_version=version)
    provider = _text(content, "provider") if key == GARDENER else ""
    if provider and not _KIND.fullmatch(provider):
        raise InvalidArgumentError(f"provider is {shown(provider)}: it must be letters and digits")
    return Key(kind=provider + kind, api_version=version)


def _overlaid(
    secrets: tuple[SecretId, ...], find: Callable[[SecretId], SecretData | None]
) -> tuple[SecretData | None, str]:
    found = [(secret, find(secret)) for secret in secrets]
    missing = [secret[1] for secret, data in found if data is None]
    if missing:
        return None, f"there is no secret {' and no secret '.join(missing)}"
    return ({name: value for _, data in found for name, value in (data or {}).items()} if found else None), ""


def _written(content: Mapping[str, object]) -> str:
    try:
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgumentError("it holds something that JSON cannot: .inf, .nan, or too deep a nesting") from None


def _lasting(metadata: Mapping[str, object]) -> dict[str, object]:
    """What says something about machines; versions and managers change by themselves."""
    kept: dict[str, object] = {key: metadata[key] for key in ("name", "namespace", "labels") if metadata.get(key)}
    notes = {key: value for key, value in _mapping(metadata, "annotations").items() if key != _NOISE}
    return {**kept, "annotations": notes} if notes else kept


def _mapping(content: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = content.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{key} is not a mapping")
    return value


def _text(content: Mapping[str, object], key: str) -> str:
    value = content.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{key} is not text: put it into quotes")
    return value


# -- Redaction: a secret's values appear in no log line until no operation can use them any more -----------------------


_KEPT_FOR: Final = 3600.0  # seconds; an operation that began with the old one has long ended


class SecretRedaction:
    """What is hidden at present (see :mod:`cloudgraft.sdk.secrecy`)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._new: list[SecretData] = []
        self._retired: deque[tuple[float, SecretData]] = deque()

    def begin(self, data: SecretData) -> None:
        """Has a secret's values hidden by the next :meth:`apply`, as they are and as Kubernetes writes them."""
        self._new.append(data)

    def end(self, data: SecretData) -> None:
        """Shows them again, but not yet: operations that are under way have them."""
        self._retired.append((self._clock() + _KEPT_FOR, data))

    def apply(self) -> None:
        """Hides what is new, and shows again what has had its time. All at once: each call sorts all secrets."""
        hide(*(form for data in self._new for form in _forms(data)))
        self._new.clear()
        ended: list[SecretData] = []
        while self._retired and self._retired[0][0] <= self._clock():
            ended.append(self._retired.popleft()[1])
        if ended:
            unhide(*(form for data in ended for form in _forms(data)))


def _forms(data: SecretData) -> Iterator[str]:
    for value in data.values():
        text = value.decode("utf-8", "backslashreplace")
        yield text
        yield text.strip()
        yield base64.b64encode(value).decode()
        if "-----BEGIN" in text:  # a message may quote a line of a key
            yield from (line for line in text.splitlines() if line and not line.startswith("-----"))
