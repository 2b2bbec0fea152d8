"""What a router can promise, from what its backends promise."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Final

from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy
from cloudgraft.sdk.errors import PreconditionError

__all__ = ["check_alike", "combined", "create_limit"]

_CREATE: Final = timedelta(minutes=2)  # what the engine gives a driver that does not say how long a create may take


def create_limit(traits: DriverTraits) -> timedelta:
    """How long one backend may take for a create."""
    return traits.create_timeout or _CREATE


@lru_cache(maxsize=64)
def combined(backends: tuple[DriverTraits, ...], listed: tuple[DriverTraits, ...] = ()) -> DriverTraits:
    """The weakest of all promises.

    ``listed`` are those that have listed their machines since the start; none: all. What lists prove goes by them
    alone: one that was never reached shows nothing and is asked for nothing, and a remote driver that nobody could ask
    yet declares that its lists prove nothing for a day, which must not hold for the others (law 6).

    A create is never idempotent: a token in one cloud, or a name that is taken there, keeps no other cloud from making
    a second machine. The engine therefore waits until a call that it gave up must be over, and settles by lists, before
    it calls again. Where the clouds show ownership in different ways, the name is what all of them keep.
    """
    limits = [traits.user_data_limit for traits in backends if traits.user_data_limit is not None]
    templates = {traits.provider_id for traits in backends}
    seen = listed or backends
    owned = {traits.ownership for traits in seen}
    return DriverTraits(
        ownership=owned.pop() if len(owned) == 1 else Ownership.NAME,
        idempotency=Idempotency.NONE,
        list_delay=max(traits.list_delay for traits in seen),
        complete_list=all(traits.complete_list for traits in seen),
        provider_id=templates.pop() if len(templates) == 1 else "",
        provider_id_by=backends[0].provider_id_by,
        user_data_limit=min(limits, default=None),
        catalog_lasts=min(traits.catalog_lasts for traits in backends),
        create_timeout=sum((create_limit(traits) for traits in backends), timedelta(0)),
    )


def check_alike(backends: Mapping[str, DriverTraits]) -> None:
    """Raises PreconditionError where one way for nodes to get their providerID would be wrong for some of them."""
    (first, one), *others = backends.items()
    for name, other in others:
        if other.provider_id_by is not one.provider_id_by:
            raise PreconditionError(
                f"the providerID of nodes is set by {_word(one)} in cloud {first} and by {_word(other)} in cloud "
                f"{name}: one group needs one way for all of its nodes. Set providerIDBy of one of these clouds, "
                "if its driver has that option, or give each a group of its own"
            )
        if one.provider_id_by is ProviderIdBy.KUBELET and other.provider_id != one.provider_id:
            raise PreconditionError(
                f"kubelets are told their providerID before it is known in which cloud they run: it is "
                f"{one.provider_id or 'not known beforehand'!r} in cloud {first} and "
                f"{other.provider_id or 'not known beforehand'!r} in cloud {name}. Give each a group of its own"
            )


def _word(traits: DriverTraits) -> str:
    return {
        ProviderIdBy.KUBELET: "the kubelet",
        ProviderIdBy.CLOUD_CONTROLLER: "a cloud controller manager",
        ProviderIdBy.CLOUDGRAFT: "cloudgraft",
    }[traits.provider_id_by]
