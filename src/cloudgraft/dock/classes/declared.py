"""Reads machine classes and Secrets from Kubernetes objects of any source, and redacts secret values."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cloudgraft.dock.protocol.messages import Key, MachineClass
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.secrecy import hide, unhide

ClassId = tuple[Key, str]
SecretId = tuple[str, str]  # namespace and name
SecretData = Mapping[str, bytes]
GARDENER: Final = Key(kind="MachineClass", api_version="machine.sapcloud.io/v1alpha1")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
_LONGEST: Final = 253
_KIND: Final = re.compile("[A-Za-z][A-Za-z0-9]{0,126}")
_API_VERSION: Final = re.compile("([a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?/)?[a-z][a-z0-9]{0,62}")
# in this order: values of the second override those of the first
_REFERENCES: Final = ("secretRef", "credentialsSecretRef")
_NOISE: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A machine class as a source declares it."""

    value: MachineClass  # with the whole object as JSON in canonical form; the store numbers its revisions
    secrets: tuple[SecretId, ...] = ()  # that it names
    data: SecretData | None = field(default=None, repr=False)  # of all of them merged; None: unavailable
    missing: str = ""  # why it is unavailable
    deleting: bool = False  # its deletion was requested

    @property
    def id(self) -> ClassId:
        """Includes the kind, because names are unique only within it."""
        return self.value.key, self.value.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The content of a source at one moment, and its errors."""

    classes: tuple[Declared, ...] = ()
    problems: tuple[str, ...] = ()


def class_of(content: Mapping[str, object], find: Callable[[SecretId], SecretData | None]) -> Declared:
    """Builds a machine class from its object; ``find`` returns the data of a Secret. Raises InvalidArgumentError."""
    metadata = mapping_at(content, "metadata")
    name, namespace = named(metadata), text_at(metadata, "namespace")
    spec = mapping_at(content, "providerSpec" if "providerSpec" in content else "spec")  # the key used until 2019
    secrets = tuple(secret_ids(content, namespace))
    data, missing = _overlaid(secrets, find)
    lasting = {key: value for key, value in content.items() if key != "status"} | {"metadata": _lasting(metadata)}
    return Declared(
        value=MachineClass(
            name=name,
            key=_key(content),
            revision=0,
            provider_spec=spec,
            node_template=mapping_at(content, "nodeTemplate"),
            secret=secrets[-1][1] if secrets else "",
            also_named=secrets[0][1] if len(secrets) > 1 else "",
            namespace=namespace,
            json=_written(lasting),
        ),
        secrets=secrets,
        data=data,
        missing=missing,
        deleting=metadata.get("deletionTimestamp") is not None,
    )


def named(metadata: Mapping[str, object]) -> str:
    """Returns the name of an object. Raises InvalidArgumentError for one that Kubernetes would reject."""
    name = text_at(metadata, "name")
    if not is_name(name):
        raise InvalidArgumentError(
            f"the name {shown(name)} cannot be used: lower-case letters, digits, hyphens and dots, at most {_LONGEST}"
        )
    return name


def is_name(text: str) -> bool:
    """Whether a text is a valid object name. No path is one."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


def secret_ids(content: Mapping[str, object], namespace: str) -> Iterator[SecretId]:
    """The Secrets that a class names, in its own namespace only.

    A class could otherwise give its driver any Secret of the cluster that cloudgraft may read.
    """
    holder = content if "providerSpec" in content or "spec" not in content else mapping_at(content, "spec")
    for reference in (mapping_at(holder, key) for key in _REFERENCES):
        if reference:
            name, elsewhere = named(reference), text_at(reference, "namespace")
            if elsewhere not in {"", namespace}:
                raise InvalidArgumentError(
                    f"it names a secret of the namespace {shown(elsewhere)}: only those of its own can be read"
                )
            yield namespace, name


def secret_data(content: Mapping[str, object]) -> SecretData:
    """Returns the data of a Secret. Raises InvalidArgumentError, whose message contains none of it."""
    found: dict[str, bytes] = {}
    for name, value in mapping_at(content, "data").items():
        try:
            found[name] = base64.b64decode(value if isinstance(value, str) else "!", validate=True)
        except (binascii.Error, ValueError):
            raise InvalidArgumentError(f"data.{shown(name)} is not base64: plain text goes into stringData") from None
    for name, value in mapping_at(content, "stringData").items():
        if not isinstance(value, str):
            raise InvalidArgumentError(f"stringData.{shown(name)} is not text: put it into quotes")
        found[name] = value.encode()
    return found


def shown(text: str) -> str:
    """Makes foreign text safe for a message: short, and without control characters."""
    return repr(text[:80] + ("…" if len(text) > 80 else ""))


def _key(content: Mapping[str, object]) -> Key:
    kind, version = text_at(content, "kind"), text_at(content, "apiVersion")
    if not _KIND.fullmatch(kind) or not _API_VERSION.fullmatch(version):
        raise InvalidArgumentError("kind and apiVersion must be like AcmeMachineClass and machine.example/v1")
    key = Key(kind=kind, api_version=version)
    provider = text_at(content, "provider") if key == GARDENER else ""
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
    """Drops metadata that changes by itself, such as versions and managers."""
    kept: dict[str, object] = {key: metadata[key] for key in ("name", "namespace", "labels") if metadata.get(key)}
    notes = {key: value for key, value in mapping_at(metadata, "annotations").items() if key != _NOISE}
    return {**kept, "annotations": notes} if notes else kept


def mapping_at(content: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The mapping under a key; empty when there is none. Raises InvalidArgumentError for anything else."""
    value = content.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{key} is not a mapping")
    return value


def text_at(content: Mapping[str, object], key: str) -> str:
    """The text under a key; empty when there is none. Raises InvalidArgumentError for anything else."""
    value = content.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{key} is not text: put it into quotes")
    return value


# -- Redaction ---------------------------------------------------------------------------------------------------------
# A secret's values stay redacted until no operation can use them any more.


_KEPT_FOR: Final = 3600.0  # seconds; operations that began with the old value have ended by then


class SecretRedaction:
    """The values that are redacted at present (see :mod:`cloudgraft.sdk.secrecy`)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._new: list[SecretData] = []
        self._retired: deque[tuple[float, SecretData]] = deque()

    def begin(self, data: SecretData) -> None:
        """Redacts a secret's values from the next :meth:`apply` on, in plain text and in base64."""
        self._new.append(data)

    def end(self, data: SecretData) -> None:
        """Schedules the end of redaction. Not at once, because running operations still use the values."""
        self._retired.append((self._clock() + _KEPT_FOR, data))

    def apply(self) -> None:
        """Applies additions and expired removals together, because each call sorts all secrets."""
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
