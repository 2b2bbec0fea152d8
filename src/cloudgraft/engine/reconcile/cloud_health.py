"""Whether a cloud can be reached, from how its lists go."""

from __future__ import annotations

from dataclasses import dataclass

from cloudgraft.engine.machines.backoff import hinted
from cloudgraft.engine.machines.decide import failure
from cloudgraft.sdk.errors import AuthenticationError, CloudgraftError, PermissionDeniedError, PreconditionError
from cloudgraft.store.records import ErrorRecord

__all__ = ["Health"]

_FAILURES = 2  # one list that fails may be bad luck
_CERTAIN = (AuthenticationError, PermissionDeniedError, PreconditionError)  # no luck will change these
_LONG = 60.0  # seconds: a cloud that wants to be left alone for longer is not asked a second time to be sure


@dataclass(slots=True)
class Health:
    """What is known of one cloud."""

    cloud: str
    listed_at: float | None = None  # when the latest list that worked began
    failures: int = 0  # in a row
    error: str = ""
    code: str = ""
    since: float | None = None  # since when it has been failing
    machines: int = 0  # in the latest list
    retry_after: float | None = None  # seconds for which the cloud asked to be left alone, when the latest list failed

    @property
    def is_down(self) -> bool:
        """True when a machine asked for now would not come."""
        return bool(self.error)

    def good(self, began: float, machines: int) -> bool:
        """A list worked; returns whether that is news."""
        was_down = self.is_down
        self.listed_at, self.machines, self.failures = began, machines, 0
        self.error, self.code, self.since, self.retry_after = "", "", None, None
        return was_down

    def bad(self, error: CloudgraftError, now: float) -> bool:
        """A list failed; returns whether the cloud counts as down only since this one."""
        was_down = self.is_down
        self.failures += 1
        self.retry_after = error.retry_after
        self.since = self.since or now
        is_certain = isinstance(error, _CERTAIN) or hinted(error.retry_after) > _LONG
        if self.failures >= _FAILURES or is_certain or self.listed_at is None:
            self.error, self.code = error.message, error.slug
        return self.is_down and not was_down

    def refusal(self) -> ErrorRecord | None:
        """What a machine that is asked for now is told."""
        if not self.is_down:
            return None
        return failure(self.code, f"cloud {self.cloud} cannot be used: {self.error}")
