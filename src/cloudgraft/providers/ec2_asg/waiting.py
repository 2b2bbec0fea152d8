"""Instances that a group is to have and that AWS has not made yet: the autoscaler sees a placeholder for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, unquote

__all__ = ["Placeholder", "Waiting", "group_of_placeholder"]

_MARK = "/i-placeholder-"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Stands for an instance to come. ``since`` is by AWS's clock."""

    provider_id: str
    since: datetime


class Waiting:
    """The placeholders of one group, the oldest first.

    An instance that comes takes the place of the oldest, whose id stays a name of it for life (law 5). Numbers go on
    from the highest that was used: an id never means two things, as long as this program runs. After a restart the
    same numbers are given for the same gap.
    """

    def __init__(self, region: str, group: str) -> None:
        self._prefix = f"aws:///{region}{_MARK}{quote(group, safe='')}-"
        self._last = 0
        self.list: list[Placeholder] = []
        self.aliases: dict[str, str] = {}  # of placeholders that were fulfilled: the instance's id

    def fit(self, missing: int, living: int, arrived: Sequence[str], since: datetime) -> None:
        """Makes them as many as are ``missing``, after these instances have ``arrived``."""
        for instance_id in arrived:
            if self.list:
                self.aliases[self.list.pop(0).provider_id] = instance_id
        del self.list[max(0, missing) :]  # somebody lowered the desired capacity: the newest were given up
        while len(self.list) < missing:
            self._last = max(self._last, living + len(self.list)) + 1
            self.list.append(Placeholder(f"{self._prefix}{self._last}", since))

    def remove(self, provider_ids: Sequence[str]) -> None:
        """These will not come any more."""
        self.list = [one for one in self.list if one.provider_id not in provider_ids]

    def forget(self, instance_ids: Sequence[str]) -> None:
        """These instances are gone."""
        self.aliases = {key: value for key, value in self.aliases.items() if value not in instance_ids}


def group_of_placeholder(provider_id: str) -> str:
    """The group that a placeholder is of, by its id; empty when it is the id of something else."""
    _, mark, rest = provider_id.partition(_MARK)
    name, _, number = rest.rpartition("-")
    return unquote(name) if mark and number.isdecimal() else ""
