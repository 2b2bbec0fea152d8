"""Tests the autoscaler's connection to the server: certificates, a cloud-config file, and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from cloudgraft.certs.inspect import Severity, inspect_pair
from cloudgraft.client import CloudConfig, RemoteProvider
from cloudgraft.config import Config
from cloudgraft.doctor.inputs import Certificate, CloudConfigSeen, Role
from cloudgraft.documents import ForeignDocumentError, parse_yaml
from cloudgraft.sdk.errors import CloudgraftError, UnsupportedError
from cloudgraft.sdk.types import NodeTemplate

# -- certificates ------------------------------------------------------------------------------------------------------
# The certificates that can be read here: the server's by its configuration, the autoscaler's by a cloud-config.


def look_at_certificates(config: Config | None, cloud_config: CloudConfig | None, now: datetime) -> list[Certificate]:
    """Reads them from their files; those of a cloud-config only where it names files that are here."""
    tls = config.server.tls if config is not None else None
    client = cloud_config if cloud_config is not None and are_here(cloud_config) else None
    found: list[Certificate] = []
    if tls is not None:
        server_ca = Path(client.cacert) if client is not None else None
        found.append(_look(Role.SERVER, tls.cert, now, key=tls.key, ca=server_ca))
        found.append(_look(Role.CLIENT_CA, tls.client_ca, now))
    if client is not None:
        client_ca = tls.client_ca if tls is not None else None
        found.append(_look(Role.CLIENT, Path(client.cert), now, key=Path(client.key), ca=client_ca))
        if tls is None or Path(client.cacert).absolute() != tls.client_ca.absolute():
            found.append(_look(Role.SERVER_CA, Path(client.cacert), now))
    return found


def are_here(config: CloudConfig) -> bool:
    """Whether the files that a cloud-config names are files of this host, and not of the autoscaler's container."""
    return config.is_encrypted and all(Path(file).is_file() for file in (config.cert, config.key, config.cacert))


def _look(role: Role, file: Path, now: datetime, *, key: Path | None = None, ca: Path | None = None) -> Certificate:
    info, alone = inspect_pair(file, now=now)
    if info is None:
        return Certificate(role=role, where=str(file), trouble="; ".join(finding.message for finding in alone))
    seen = Certificate(role=role, where=str(file), info=info)
    if key is not None:
        _, findings = inspect_pair(file, key=key, now=now)
        troubles = [finding for finding in findings if finding not in alone]
        wrong = "; ".join(finding.message for finding in troubles if finding.severity is Severity.ERROR)
        is_open = any(finding.severity is Severity.WARNING for finding in troubles)
        seen = replace(seen, key_trouble=wrong, key_readable=str(key) if is_open else "")
    return replace(seen, untrusted="; ".join(_distrust(file, ca, now))) if ca is not None else seen


def _distrust(file: Path, ca: Path, now: datetime) -> Iterator[str]:
    """The problem that only the authority causes."""
    _, alone = inspect_pair(file, now=now)
    _, findings = inspect_pair(file, ca=ca, now=now)
    for finding in findings:
        if finding not in alone and finding.severity is Severity.ERROR:
            yield finding.message


# -- cloud-config and calls --------------------------------------------------------------------------------------------


_SECONDS: Final = 20.0


def read_cloud_config(path: Path) -> CloudConfigSeen:
    """A file, read as the autoscaler reads it."""
    try:
        config = CloudConfig.load(path)
    except CloudgraftError as error:
        return CloudConfigSeen(where=str(path), trouble=error.message)
    return CloudConfigSeen(where=str(path), config=config, has_timeout=_has_timeout(path.read_text()))


def parse_cloud_config(text: str, where: str) -> CloudConfigSeen:
    """The same for the text of a ConfigMap."""
    try:
        config = CloudConfig.parse(text)
    except CloudgraftError as error:
        return CloudConfigSeen(where=where, trouble=error.message)
    return CloudConfigSeen(where=where, config=config, has_timeout=_has_timeout(text))


async def try_calls(seen: CloudConfigSeen) -> tuple[CloudConfigSeen, Mapping[str, NodeTemplate]]:
    """Makes the autoscaler's first calls, where possible from here; reads only. Returns the groups' templates."""
    config = seen.config
    if config is None or (config.is_encrypted and not are_here(config)):
        return seen, {}
    try:
        provider = RemoteProvider.connect(config)
        try:
            async with asyncio.timeout(_SECONDS):
                return seen, await _templates(provider)
        finally:
            await provider.close()
    except CloudgraftError as error:
        return replace(seen, call_trouble=error.message), {}
    except TimeoutError:
        return replace(seen, call_trouble=f"{config.address} did not answer within {_SECONDS:g} s"), {}


async def _templates(provider: RemoteProvider) -> dict[str, NodeTemplate]:
    found: dict[str, NodeTemplate] = {}
    for group in await provider.node_groups():
        try:
            template = await provider.find_template(group.id)
        except UnsupportedError:
            continue
        if template is not None:
            found[group.id] = template
    return found


def _has_timeout(text: str) -> bool:
    """Reads a value of a text that was parsed already, but in which a value may still be invalid."""
    try:
        document = parse_yaml(text)
    except ForeignDocumentError:
        return False
    return isinstance(document, dict) and any(str(key).casefold() == "grpc_timeout" for key in document)
