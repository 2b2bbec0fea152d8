"""What is known of a machine that is there anyway, however it is switched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws

__all__ = ["Host", "HostType", "refuse_bad_id", "refuse_twins"]


class Host(Protocol):
    """One machine of the list."""

    @property
    def id(self) -> str:
        """Its own in the list."""

    @property
    def provider_id(self) -> str:
        """What its node carries."""

    @property
    def addresses(self) -> Sequence[str]:
        """Under which its node may be known."""

    @property
    def labels(self) -> Mapping[str, str]:
        """By which a group selects."""

    @property
    def group(self) -> str:
        """The only group that it serves; empty: any."""


HostType = TypeVar("HostType", bound=Host)


def refuse_bad_id(ident: str) -> None:
    """One that cannot be shown in a message, or written into an account."""
    if not ident or not ident.isprintable():
        raise InvalidArgumentError("a machine needs an id, which is printable text")


def refuse_twins(hosts: Sequence[Host]) -> None:
    """Two entries for one machine, or two machines that would be one node."""
    flaws = Flaws()
    for what, values in (("id", [h.id for h in hosts]), ("providerID", [h.provider_id for h in hosts])):
        for value in (value for value, count in Counter(values).items() if count > 1):
            flaws.tell((), f"two machines have the {what} {value!r}; each must have its own")
    flaws.raise_any()
