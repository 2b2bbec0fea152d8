"""Who is the driver of which machines: one at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cloudgraft.dock.hub.session import Session, State
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import AlreadyExistsError, UnavailableError

__all__ = ["Registry"]

log = logging.getLogger("cloudgraft.dock")


class Registry:
    """The drivers that are ready, by key.

    The same process that comes back takes its own place: its old connection is dead, and only it knows already. Another
    one waits until the holder has been asked for a sign of life. In v0 nobody can be asked and no process says which
    one it is: the first one keeps the place, as in 2018, until its connection ends. A frozen one's is ended by HTTP/2's
    keepalive.
    """

    def __init__(self, patience: float) -> None:
        """``patience`` is the seconds that a holder has to give a sign of life."""
        self._patience = patience
        self._holders: dict[Key, Session] = {}
        self._contested: set[Key] = set()  # somebody waits for the holder's sign of life

    def get(self, key: Key) -> Session | None:
        """The driver of these machines."""
        return self._holders.get(key)

    def sessions(self) -> Sequence[Session]:
        """All of them."""
        return list(self._holders.values())

    async def admit(self, newcomer: Session) -> None:
        """Makes it the driver of its key; raises AlreadyExistsError when there is another one, alive.

        It is the driver as soon as this returns, and nothing is awaited in between.
        """
        key = newcomer.key
        holder = self._holders.get(key)
        if holder is not None and not _same_process(holder, newcomer):
            await self._contest(holder, newcomer)
        holder = self._holders.get(key)
        if holder is not None:
            self._evict(holder)
        self._holders[key] = newcomer

    def release(self, session: Session) -> bool:
        """It is not the driver any more; False when it was not: another one has its place by then."""
        if self._holders.get(session.key) is not session:
            return False
        del self._holders[session.key]
        return True

    async def _contest(self, holder: Session, newcomer: Session) -> None:
        key = newcomer.key
        if key in self._contested:
            raise _taken(key)
        self._contested.add(key)
        try:
            alive = await holder.is_alive(self._patience)
        finally:
            self._contested.discard(key)
        # Meanwhile the holder may have left, or its place may have gone to its own next connection.
        now = self._holders.get(key)
        if now is not None and (alive or now is not holder):
            raise _taken(key)

    @staticmethod
    def _evict(holder: Session) -> None:
        log.warning(
            "a driver's place goes to a newer connection",
            extra={"driver": str(holder.key), "session": holder.session_id},
        )
        holder.end("its place went to a newer connection", UnavailableError("a newer connection has this place"))


def _same_process(holder: Session, newcomer: Session) -> bool:
    return (
        bool(newcomer.info.instance_id)
        and holder.info.instance_id == newcomer.info.instance_id
        and holder.identity == newcomer.identity
        and holder.state is not State.CLOSED
    )


def _taken(key: Key) -> AlreadyExistsError:
    return AlreadyExistsError(f"a driver for {key} is already registered, and alive", retry_after=5)
