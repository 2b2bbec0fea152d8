"""Objects that hold something for others, from the API's JSON: ConfigMaps, Secrets, and kinds of others' own."""

from __future__ import annotations

from typing import Any

import msgspec

from cloudgraft.kube.decode_meta import Meta, common, seconds
from cloudgraft.kube.objects import ConfigMapObject, CustomObject, MachineClassObject, Object, SecretObject

__all__ = [
    "AnyJson",
    "ConfigMapJson",
    "Content",
    "SecretJson",
    "config_map",
    "custom",
    "machine_class",
    "named",
    "secret",
]


class ConfigMapJson(msgspec.Struct):
    """A ConfigMap."""

    metadata: Meta
    data: dict[str, str] | None = None


class AnyJson(msgspec.Struct):
    """An object of which nothing but its name is read."""

    metadata: Meta


class SecretJson(msgspec.Struct):
    """A Secret."""

    metadata: Meta
    data: dict[str, bytes] | None = None  # base64 on the wire


Content = dict[str, Any]


def config_map(wire: ConfigMapJson) -> ConfigMapObject:
    """With the texts that it holds."""
    return ConfigMapObject(**common(wire.metadata), data=wire.data or {})


def named(wire: AnyJson) -> Object:
    """Only its name, and what is beside it."""
    return Object(**common(wire.metadata))


def secret(wire: SecretJson) -> SecretObject:
    """With what it holds."""
    return SecretObject(**common(wire.metadata), data=wire.data or {})


def machine_class(wire: Content) -> MachineClassObject:
    """All of it."""
    # Items of a list need not say what they are.
    content = {**wire, "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass"}
    metadata = msgspec.convert(wire.get("metadata"), Meta)
    # Left out are the parts that change by themselves: what remains differs only if the class does.
    kept = {key: value for key, value in wire["metadata"].items() if key not in {"managedFields", "resourceVersion"}}
    return MachineClassObject(**common(metadata), content={**content, "metadata": kept})


class _NotedMeta(Meta):
    annotations: dict[str, str] | None = None


msgspec.json.Decoder(_NotedMeta)  # learned by one thread, as in decode.py


def custom(wire: Content) -> CustomObject:
    """All of it."""
    metadata = msgspec.convert(wire.get("metadata"), _NotedMeta)
    return CustomObject(
        **common(metadata),
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        created_at=seconds(metadata.creation_timestamp),
        content=wire,
    )
