"""Defines the options of the driver ``http``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy, check_provider_id
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.hosts import check_url

_LARGEST_BODY: Final = 1 << 30
_EXAMPLE: Final = "https://machines.example:8443/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One receiver: its address, authentication, timeouts, and the traits of its cloud."""

    url: str  # below which the endpoints are, such as https://machines.example:8443/v1
    insecure: bool = False  # True: allows http:// to another host; anyone on the network can read and change it
    ca_file: Path | None = None  # the CA of the receiver's certificate; None: the CAs that the system trusts
    cert_file: Path | None = None  # our certificate, and with it the key: mTLS
    key_file: Path | None = None
    hmac_key_file: Path | None = None  # a shared key that signs every call
    token_file: Path | None = None  # sent as a Bearer token
    connect_timeout: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=50)  # for one call with its retries; for a list, with all its pages
    retries: int = 3  # of a call whose response says when to retry, such as 429 or 503
    max_body: int = 16 * 1024 * 1024  # bytes of one answer
    ownership: Ownership = Ownership.TAGS
    idempotency: Idempotency = Idempotency.TOKEN
    list_delay: timedelta = timedelta(0)
    complete_list: bool = True
    providerID: str = ""  # noqa: N815 - the key in the file is spelt as Kubernetes spells it
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - the same
    user_data_limit: int | None = None

    def __post_init__(self) -> None:
        """Refuses invalid options, and those that would send secrets in the clear."""
        flaws = Flaws()
        with flaws.at("url"):
            check_url(self.url, example=_EXAMPLE, exposed="user data, which holds secrets,", insecure=self.insecure)
        are_both = (self.cert_file is None) == (self.key_file is None)
        flaws.expect(are_both, "certFile", "goes together with keyFile: give both, or neither")
        if not self.is_encrypted:
            for key, file in {"caFile": self.ca_file, "certFile": self.cert_file}.items():
                flaws.expect(file is None, key, "is for https: the url is http, where it does nothing")
        flaws.expect_positive(connectTimeout=self.connect_timeout, timeout=self.timeout)
        flaws.expect_not_negative(retries=self.retries, listDelay=self.list_delay, userDataLimit=self.user_data_limit)
        is_size = 1024 <= self.max_body <= _LARGEST_BODY
        flaws.expect(is_size, "maxBody", f"must be between 1024 and {_LARGEST_BODY} bytes")
        with flaws.at("providerID"):
            check_provider_id(self.providerID)
        flaws.raise_any()

    @property
    def is_encrypted(self) -> bool:
        """Whether calls are made over TLS."""
        return self.url.lower().startswith("https:")

    @property
    def base(self) -> str:
        """The URL without the slash at its end."""
        return self.url.rstrip("/")

    def traits(self) -> DriverTraits:
        """Returns the traits that the file declares."""
        return DriverTraits(
            ownership=self.ownership,
            idempotency=self.idempotency,
            list_delay=self.list_delay,
            complete_list=self.complete_list,
            provider_id=self.providerID,
            provider_id_by=self.providerIDBy,
            user_data_limit=self.user_data_limit,
        )
