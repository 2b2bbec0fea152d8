"""Findings about certificates, and about the way from the autoscaler to the server."""

from __future__ import annotations

from typing import Final

from cloudgraft.doctor.findings import Entry, Severity

__all__ = ["ENTRIES"]

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(
        id="tls-insecure",
        severity=_WARNING,
        title="The server listens without TLS",
        why="Whoever reaches the port can create and delete machines.",
        fix="cloudgraft certs init certs --host NAME, then server.tls in place of server.insecure",
    ),
    Entry(
        id="tls-unreadable",
        severity=_ERROR,
        title="A certificate cannot be read",
        why="Who should show it cannot, and the connection fails.",
        fix="put it where the configuration says, PEM, readable by the user who needs it",
    ),
    Entry(
        id="tls-expired",
        severity=_ERROR,
        title="A certificate has ended",
        why="The other side refuses it: no call arrives any more.",
        fix="cloudgraft certs renew DIR",
    ),
    Entry(
        id="tls-expires-soon",
        severity=_WARNING,
        title="A certificate ends soon",
        why="From that day on no call arrives. The autoscaler reads its certificate only when it starts.",
        fix="cloudgraft certs renew DIR; restart the autoscaler if it is its certificate",
    ),
    Entry(
        id="tls-not-yet-valid",
        severity=_ERROR,
        title="A certificate is not valid yet",
        why="The other side refuses it until then.",
        fix="set the clock, or wait",
    ),
    Entry(
        id="tls-wrong-purpose",
        severity=_ERROR,
        title="A certificate is for something else",
        why="A server's certificate is refused as a client's, and the other way round.",
        fix="use the right file, or have it issued with the right key usage",
    ),
    Entry(
        id="tls-key",
        severity=_ERROR,
        title="A key does not belong to its certificate",
        why="The connection fails, or the server keeps the old pair.",
        fix="cloudgraft certs renew DIR",
    ),
    Entry(
        id="tls-key-readable",
        severity=_WARNING,
        title="A private key can be read by everybody",
        why="Who has it can pretend to be its owner.",
        fix="chmod 600 FILE",
    ),
    Entry(
        id="tls-name-missing",
        severity=_ERROR,
        title="The server's certificate is not for the name that the autoscaler looks for",
        why="The autoscaler takes the host of `address` in its cloud-config and refuses a certificate without it (R9).",
        fix="cloudgraft certs renew DIR --what server --host NAME",
    ),
    Entry(
        id="tls-server-untrusted",
        severity=_ERROR,
        title="The server's certificate was not signed by the authority that the autoscaler trusts",
        why="The autoscaler refuses it.",
        fix="name the authority of the server's certificate as cacert in the cloud-config",
    ),
    Entry(
        id="tls-client-untrusted",
        severity=_ERROR,
        title="The client's certificate was not signed by the server's clientCA",
        why="The server refuses the autoscaler in the handshake.",
        fix="cloudgraft certs client DIR NAME, signed by the authority that is server.tls.clientCA",
    ),
    Entry(
        id="tls-client-not-allowed",
        severity=_ERROR,
        title="The client's certificate has no name of allowedClients",
        why="Every call of the autoscaler is refused with PERMISSION_DENIED.",
        fix="add the name to server.tls.allowedClients",
    ),
    Entry(
        id="tls-on-one-side",
        severity=_ERROR,
        title="Only one side speaks TLS",
        why="The autoscaler uses TLS only if its cloud-config has `cert`; the two then do not understand each other.",
        fix="set key, cert and cacert in the cloud-config, and server.tls in the configuration file",
    ),
    Entry(
        id="cloud-config-invalid",
        severity=_ERROR,
        title="The autoscaler's cloud-config cannot be used",
        why="The autoscaler ends when it starts.",
        fix="the keys are address, key, cert, cacert and grpc_timeout",
    ),
    Entry(
        id="cloud-config-unknown",
        severity=_NOTE,
        title="The autoscaler's cloud-config was not looked at",
        why="Its address, timeout and certificates are not compared with the server's.",
        fix="cloudgraft doctor --cloud-config FILE",
    ),
    Entry(
        id="call-fails",
        severity=_ERROR,
        title="A call with the autoscaler's cloud-config fails",
        why="It fails for the autoscaler in the same way, if it is made from the same place.",
        fix="cloudgraft call NodeGroups --cloud-config FILE",
    ),
    Entry(
        id="timeout-too-short",
        severity=_WARNING,
        title="The autoscaler gives up before the server does",
        why="A call that is given up may still be carried out: a scale-up that worked counts as failed, and the group "
        "is backed off.",
        fix="server.deadline below the timeout: 4.5s for the autoscaler's 5s",
    ),
    Entry(
        id="timeout-ignored",
        severity=_NOTE,
        title="grpc_timeout has no effect in this release",
        why="Up to 1.28 every call is given up after 5 seconds.",
        fix="remove it, or upgrade the autoscaler",
    ),
)
