"""Certificates for mutual TLS: make them, renew them, and say what is wrong with them."""

from cloudgraft.certs.authority import Bundle, Renewal, create_bundle, issue_client, renew
from cloudgraft.certs.inspect import CertificateInfo, Finding, Report, Severity, inspect_pair, inspect_path

__all__ = [
    "Bundle",
    "CertificateInfo",
    "Finding",
    "Renewal",
    "Report",
    "Severity",
    "create_bundle",
    "inspect_pair",
    "inspect_path",
    "issue_client",
    "renew",
]
