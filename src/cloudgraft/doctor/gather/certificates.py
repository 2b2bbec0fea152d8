"""The certificates that can be read here: the server's by its configuration, the autoscaler's by a cloud-config."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from cloudgraft.certs.inspect import Severity, inspect_pair
from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.config import Config
from cloudgraft.doctor.picture import Certificate, Role

__all__ = ["are_here", "look_at_certificates"]


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
    """What is wrong only because of the authority."""
    _, alone = inspect_pair(file, now=now)
    _, findings = inspect_pair(file, ca=ca, now=now)
    for finding in findings:
        if finding not in alone and finding.severity is Severity.ERROR:
            yield finding.message
