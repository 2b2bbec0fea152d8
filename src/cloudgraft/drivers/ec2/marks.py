"""The tags by which instances are found again, and what EC2 allows as a tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cloudgraft.sdk.flaws import Flaws

__all__ = ["CLUSTER_ID_TAG", "MACHINE_TAG", "NAME_TAG", "check_tags", "is_reserved"]

NAME_TAG: Final = "Name"  # what AWS's console shows; a person may change it, so nothing hangs on it
CLUSTER_ID_TAG: Final = "cloudgraft-cluster-id"  # every machine that cloudgraft makes has it
MACHINE_TAG: Final = "cloudgraft-name"
_OURS: Final = "cloudgraft-"
_THEIRS: Final = "aws:"
_LONGEST_KEY, _LONGEST_VALUE, _MOST = 128, 256, 50


def is_reserved(key: str) -> bool:
    """Whether a configuration may not set this tag."""
    return key == NAME_TAG or key.lower().startswith((_OURS, _THEIRS))


def check_tags(tags: Mapping[str, str]) -> None:
    """Raises InvalidArgumentError for what EC2 would refuse: nothing is cut."""
    flaws = Flaws()
    flaws.expect(len(tags) <= _MOST, (), f"{len(tags)} tags are too many: EC2 keeps {_MOST} at most")
    for key, value in tags.items():
        is_key = 1 <= len(key) <= _LONGEST_KEY
        flaws.expect(is_key, (), f"the tag {key[:80]!r} must have between 1 and {_LONGEST_KEY} characters")
        told = f"the tag {key[:80]} has {len(value)} characters; EC2 keeps {_LONGEST_VALUE} at most"
        flaws.expect(len(value) <= _LONGEST_VALUE, (), told)
    flaws.raise_any()
