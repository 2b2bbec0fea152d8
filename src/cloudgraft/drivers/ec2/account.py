"""Who calls, and where: the options that everything which calls AWS has in common."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.hosts import is_loopback_host

__all__ = ["AccountOptions", "AssumeRole"]

_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_ARN: Final = re.compile(r"arn:[a-z0-9-]+:iam::\d{12}:role/\S+")
_FORM: Final = "write it like https://ec2.example:8773/"
_SHORTEST_LOAN, _LONGEST_LOAN = timedelta(minutes=15), timedelta(hours=12)  # what STS takes


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumeRole:
    """A role that is taken on with the credentials at hand, and taken on anew before it ends."""

    role_arn: str  # such as arn:aws:iam::123456789012:role/nodes
    session_name: str = "cloudgraft"  # by which AWS's logs tell who it was
    external_id: str = ""  # what the role's owner asks for, if anything
    duration: timedelta = timedelta(hours=1)  # for how long it is taken on at a time
    endpoint_url: str = ""  # the address of STS; empty: AWS's own in the region

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        if not _ARN.fullmatch(self.role_arn):
            raise InvalidArgumentError("roleArn must be the ARN of a role, like arn:aws:iam::123456789012:role/nodes")
        if not re.fullmatch(r"[\w+=,.@-]{2,64}", self.session_name, re.ASCII):
            raise InvalidArgumentError("sessionName must be 2 to 64 letters, digits, or one of _+=,.@-")
        if not _SHORTEST_LOAN <= self.duration <= _LONGEST_LOAN:
            raise InvalidArgumentError("duration must be between 15m and 12h")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOptions:
    """An account in a region. Without keys or a profile, AWS's usual chain of credentials is followed."""

    region: str  # such as eu-central-1
    profile: str = ""  # a profile of ~/.aws/config or ~/.aws/credentials; empty: the usual chain
    access_key_id_file: Path | None = None  # with the id of a key; read again when it changes
    secret_access_key_file: Path | None = None  # with the secret of that key; read again when it changes
    session_token_file: Path | None = None  # with its token; only for a key that is lent
    assume_role: AssumeRole | None = None  # a role that is taken on with whatever credentials there are
    endpoint_url: str = ""  # the address of another cloud that speaks EC2; empty: AWS's own
    ca_file: Path | None = None  # with the certificate of who signed its own; without it, a public authority
    insecure: bool = False  # yes: http to another host is fine, though everybody on the way can read it
    connect_timeout: timedelta = timedelta(seconds=5)  # until AWS answers at all
    timeout: timedelta = timedelta(seconds=25)  # for the answer to one request

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        if not _REGION.fullmatch(self.region):
            raise InvalidArgumentError("region must be the name of a region, such as eu-central-1")
        if (self.access_key_id_file is None) != (self.secret_access_key_file is None):
            raise InvalidArgumentError("accessKeyIdFile and secretAccessKeyFile go together")
        if self.session_token_file is not None and self.access_key_id_file is None:
            raise InvalidArgumentError("sessionTokenFile needs accessKeyIdFile and secretAccessKeyFile")
        if self.profile and self.access_key_id_file is not None:
            raise InvalidArgumentError("profile and accessKeyIdFile are two ways to say who calls: remove one")
        if min(self.connect_timeout, self.timeout) <= timedelta(0):
            raise InvalidArgumentError("connectTimeout and timeout must be more than zero")
        endpoints = {"endpointUrl": self.endpoint_url}
        if self.assume_role is not None:
            endpoints["assumeRole.endpointUrl"] = self.assume_role.endpoint_url
        for key, url in endpoints.items():
            if url:
                _check_url(key, url, insecure=self.insecure)


def _check_url(key: str, url: str, *, insecure: bool) -> None:
    """Without repeating it: somebody may have put a password into it."""
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise InvalidArgumentError(f"{key} is not an address; {_FORM}") from None
    if not is_fine or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidArgumentError(f"{key} is not an address; {_FORM}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidArgumentError(f"{key} must be without credentials, query and fragment; {_FORM}")
    if parts.scheme == "http" and not insecure and not is_loopback_host(parts.hostname or ""):
        raise InvalidArgumentError(
            f"{key} is http to another host: user data, which holds secrets, would be readable on the way. Use https, "
            "or say `insecure: true` if that is really what you want"
        )
