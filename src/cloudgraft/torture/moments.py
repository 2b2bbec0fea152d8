"""Waits for the moment of a kill, by what the server logs and the load does, and judges whether enough moments came."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cloudgraft.torture.plan import Kill, Moment
from cloudgraft.torture.server_process import LogLine

_LIFE: Final = 2.0  # seconds of a life that is ended at any time, at most
_PATIENCE: Final = 5.0  # seconds for a moment to come, at least; then the server is killed all the same
_LISTS: Final = 3  # times list_delay, until the engine knows that a machine is gone and that there is room again
_CHANGE: Final = 0.03  # seconds that a change takes, about
_BEYOND: Final = 1.3  # kills also a little later than a call takes
_FIRST_GUESS: Final = 0.1  # seconds of a call to the cloud, before one was seen
_START: Final = 0.5  # seconds of a start
# The state that a call to the cloud begins with, and those that end it.
_CALLS: Final = {Moment.CREATE: "creating", Moment.DELETE: "deleting"}
_ENDS: Final = {"booting": "creating", "running": "creating", "failed": "creating", "gone": "deleting"}


def patience(*, list_delay: float, create_limit: float, seconds_left: float, kills_left: int) -> float:
    """How long a kill waits for its moment: until deletions and creates of earlier lives are settled.

    Until then there may be no room for another machine. ``seconds_left`` of the run are shared by ``kills_left`` kills.
    """
    needed = _PATIENCE + _LISTS * list_delay + create_limit
    return max(_PATIENCE, min(needed, seconds_left / max(1, kills_left)))


def undisturbed(list_delay: float) -> float:
    """How long the load runs without a kill: machines are made, deleted, and made again."""
    return _LIFE + (_LISTS + 1) * list_delay


class Moments:
    """Knows when a call to the cloud begins, and how long such calls take."""

    def __init__(self, change_begins: asyncio.Event) -> None:
        self._change_begins = change_begins
        self._begins: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._open: dict[tuple[str, str], float] = {}  # state and machine -> since when
        self._took: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=20))
        self._has_come = False

    def begin_life(self) -> None:
        """Forgets the calls of a server that was killed."""
        self._open.clear()
        self._has_come = False

    def hear(self, line: LogLine) -> None:
        """Reads a line of the server's log."""
        state, machine = str(line.get("state", "")), str(line.get("machine", ""))
        if line.get("kind") != "state" or not machine:
            return
        now = time.monotonic()
        begun = self._open.pop((_ENDS.get(state, ""), machine), None)
        if begun is not None:
            self._took[_ENDS[state]].append(now - begun)
        if state in _CALLS.values():
            self._open[state, machine] = now
            self._begins[state].set()
            self._begins[state].clear()

    async def reached(self, kill: Kill, under_load: asyncio.Event, patience: Callable[[], float]) -> None:
        """Returns at the moment of this kill, or when the patience is over.

        ``under_load`` is set when the server serves and the load begins; the patience begins then, too.
        """
        if kill.moment is Moment.START:
            await asyncio.sleep(kill.delay * _START)
            self._has_come = True
            return
        await under_load.wait()
        if kill.moment is Moment.ANY:
            await asyncio.sleep(kill.delay * _LIFE)
            self._has_come = True
            return
        state = _CALLS.get(kill.moment)
        begins = self._change_begins if state is None else self._begins[state]
        if not self._is_open(state):  # a server that comes back sends at once what was ordered before
            try:
                async with asyncio.timeout(patience()):
                    await begins.wait()
            except TimeoutError:
                return
        self._has_come = True
        await asyncio.sleep(kill.delay * (_CHANGE if state is None else self._typical(state)))

    def came(self, kill: Kill, *, is_changing: bool) -> tuple[bool, Moment]:
        """Whether the planned moment came, and the real one, now that the server is killed."""
        under_way = [moment for moment, state in _CALLS.items() if self._is_open(state)]
        if is_changing:
            under_way.append(Moment.CHANGE)
        if kill.moment is Moment.START or kill.moment in under_way:
            return self._has_come, kill.moment
        if under_way:
            return self._has_come, under_way[0]
        is_after = self._has_come and kill.moment is not Moment.ANY
        return self._has_come, Moment.AFTER if is_after else Moment.BETWEEN

    def _is_open(self, state: str | None) -> bool:
        return any(state == open_state for open_state, _ in self._open)

    def _typical(self, state: str) -> float:
        took = self._took[state]
        return _BEYOND * (statistics.median(took) if took else _FIRST_GUESS)


# -- whether enough moments came ---------------------------------------------------------------------------------------
# Pure.


_HITS = (Moment.CREATE, Moment.DELETE, Moment.CHANGE)
_ADVICE = (
    "give it more time with --minutes or fewer --kills, raise --most-creates, see that the cloud may have as many "
    "machines as --machines, and set list_delay and engine.createTimeout no higher than the cloud needs"
)


@dataclass(slots=True)
class Coverage:
    """Counts the kills whose moment came, and those whose moment did not."""

    planned: int
    _done: Counter[Moment] = field(default_factory=Counter)
    _came: Counter[Moment] = field(default_factory=Counter)

    def add(self, kill: Kill, *, has_come: bool) -> None:
        """Counts one kill by the moment that was planned for it."""
        self._done[kill.moment] += 1
        self._came[kill.moment] += has_come

    def why_too_thin(self, made: int) -> str:
        """Why nothing can be concluded from a run without a violation; empty when enough kills hit a call.

        ``made`` is the number of machines that the cloud made.
        """
        done = self._done.total()
        if 2 * done < self.planned:
            return f"the time was up after {done} of {self.planned} kills, which proves too little: {_ADVICE}"
        for what, moments in (("create", (Moment.CREATE,)), ("call", _HITS)):
            wanted, came = (sum(counts[moment] for moment in moments) for counts in (self._done, self._came))
            if 2 * came < wanted:
                return (
                    f"only {came} of {wanted} kills that were to hit a {what} found one under way, because too little "
                    f"was ordered in the time; that proves too little: {_ADVICE}"
                )
        if 2 * made < done:
            return f"the cloud made only {made} machines in {done} kills, which proves too little: {_ADVICE}"
        return ""
