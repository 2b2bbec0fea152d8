"""Checks certificates, and whether the autoscaler's cloud-config fits the server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from cloudgraft.certs.inspect import CertificateInfo, Purpose
from cloudgraft.doctor.findings import Finding, found
from cloudgraft.doctor.inputs import Certificate, CloudConfigSeen, Inputs, Role, Settings
from cloudgraft.doctor.releases import Release
from cloudgraft.sdk.duration import format_duration

_SOON: Final = timedelta(days=30)
_SHARE: Final = 3  # cert-manager renews when a third of the time is left, by default
_PURPOSE: Final[dict[Role, Purpose]] = {
    Role.SERVER: "server",
    Role.CLIENT: "client",
    Role.CLIENT_CA: "ca",
    Role.SERVER_CA: "ca",
}
_FIXED_TIMEOUT: Final = timedelta(seconds=5)
_SINCE_TIMEOUT: Final = (1, 29)


def check(inputs: Inputs) -> Iterator[Finding]:
    """Checks all certificates, then each cloud-config."""
    if inputs.settings is not None and inputs.settings.is_insecure:
        yield found("tls-insecure", where=inputs.settings.file, what="server.insecure is true")
    if inputs.settings is not None and inputs.settings.gives_local_secrets:
        yield found("dock-local-secrets", where=inputs.settings.file, what="dock.allowLocalSecrets is true")
    for certificate in inputs.certificates:
        yield from _certificate(certificate, inputs)
    for seen in inputs.cloud_configs():
        yield from _cloud_config(seen, inputs)
    for autoscaler in inputs.autoscalers:
        if autoscaler.cloud_config is not None:
            yield from _timeout(autoscaler.cloud_config, autoscaler.release, inputs.settings)
    if not inputs.autoscalers and inputs.cloud_config is not None:
        yield from _timeout(inputs.cloud_config, None, inputs.settings)


# -- one certificate ---------------------------------------------------------------------------------------------------


def _certificate(certificate: Certificate, inputs: Inputs) -> Iterator[Finding]:
    where = f"{certificate.role} {certificate.where}"
    if certificate.info is None:
        yield found("tls-unreadable", where=where, what=certificate.trouble)
        return
    yield from _time(certificate.info, where, inputs)
    wanted = _PURPOSE[certificate.role]
    if certificate.info.purpose not in {wanted, "any"}:
        what = f"it is a certificate for {certificate.info.purpose!r} where one for {wanted!r} is needed"
        yield found("tls-wrong-purpose", where=where, what=what)
    if certificate.key_trouble:
        yield found("tls-key", where=where, what=certificate.key_trouble)
    if certificate.key_readable:
        what, fix = f"{certificate.key_readable} has rights for everybody", f"chmod 600 {certificate.key_readable}"
        yield found("tls-key-readable", where=where, what=what, fix=fix)
    if certificate.role is Role.SERVER and certificate.untrusted:
        yield found("tls-server-untrusted", where=where, what=certificate.untrusted)
    if certificate.role is Role.CLIENT:
        yield from _client(certificate, certificate.info, inputs.settings, where)


def _time(info: CertificateInfo, where: str, inputs: Inputs) -> Iterator[Finding]:
    now = inputs.now
    if now > info.not_after:
        yield found("tls-expired", where=where, what=f"it ended on {info.not_after:%Y-%m-%d %H:%M} UTC")
    elif now < info.not_before:
        yield found("tls-not-yet-valid", where=where, what=f"it begins on {info.not_before:%Y-%m-%d %H:%M} UTC")
    elif info.not_after - now < min(_SOON, (info.not_after - info.not_before) / _SHARE):
        what = f"it ends in {info.days_left(now)} days, on {info.not_after:%Y-%m-%d %H:%M} UTC"
        yield found("tls-expires-soon", where=where, what=what)


def _client(
    certificate: Certificate, info: CertificateInfo, settings: Settings | None, where: str
) -> Iterator[Finding]:
    if certificate.untrusted:
        yield found("tls-client-untrusted", where=where, what=certificate.untrusted)
    names = (*info.dns_names, info.common_name)
    if settings is not None and settings.has_tls and not set(names) & set(settings.allowed_clients):
        what = f"its names are {', '.join(dict.fromkeys(names))}; allowed is {', '.join(settings.allowed_clients)}"
        fix = f"server.tls.allowedClients: [{info.common_name}] in {settings.file}"
        yield found("tls-client-not-allowed", where=where, what=what, fix=fix)


# -- one cloud-config --------------------------------------------------------------------------------------------------


def _cloud_config(seen: CloudConfigSeen, inputs: Inputs) -> Iterator[Finding]:
    config = seen.config
    if config is None:
        yield found("cloud-config-invalid", where=seen.where, what=seen.trouble)
        return
    settings = inputs.settings
    if settings is not None and settings.has_tls != config.is_encrypted:
        server = "has server.tls" if settings.has_tls else "has none"
        what = f"the cloud-config {'has' if config.is_encrypted else 'has no'} cert, and {settings.file} {server}"
        yield found("tls-on-one-side", where=seen.where, what=what)
    if seen.call_trouble:
        fix = f"cloudgraft call NodeGroups --cloud-config {seen.where}"
        yield found("call-fails", where=seen.where, what=seen.call_trouble, fix=fix)
    for certificate in inputs.certificates:
        info, name = certificate.info, config.server_name or config.address.host
        if certificate.role is Role.SERVER and info is not None and config.is_encrypted and not info.accepts(name):
            what = f"the autoscaler looks for {name!r}, and it is for {', '.join(info.names) or 'no name at all'}"
            directory = info.file.parent
            fix = f"cloudgraft certs renew {directory} --what server --host {name}"
            yield found("tls-name-missing", where=f"server {certificate.where}", what=what, fix=fix)


def _timeout(seen: CloudConfigSeen, release: Release | None, settings: Settings | None) -> Iterator[Finding]:
    if seen.config is None:
        return
    timeout = seen.config.grpc_timeout
    if release is not None and release.is_of < _SINCE_TIMEOUT:
        if seen.has_timeout:
            yield found("timeout-ignored", where=seen.where, what=f"{release} does not know grpc_timeout")
        timeout = _FIXED_TIMEOUT
    if settings is not None and timeout <= settings.deadline:
        given, deadline = format_duration(timeout), format_duration(settings.deadline)
        what = f"a call is given up after {given}, and server.deadline is {deadline}"
        fix = f"server.deadline below {given} in {settings.file}, or a longer grpc_timeout"
        yield found("timeout-too-short", where=seen.where, what=what, fix=fix)
