"""What a test keeps of a demo that it has played."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloudgraft.demo.events import Frame, Kind, Summary


@dataclass
class Keeper:
    """A presenter that remembers what it was shown."""

    frames: list[Frame] = field(default_factory=list)

    async def show(self, frame: Frame) -> None:
        self.frames.append(frame)


@dataclass(frozen=True)
class PlayedDay:
    """All that was shown, and the figures."""

    frames: tuple[Frame, ...]
    summary: Summary

    @property
    def news(self) -> list[Frame]:
        return [frame for frame in self.frames if frame.is_news]

    def first(self, kind: Kind) -> Frame:
        """The moment at which that happened for the first time."""
        return next(frame for frame in self.news if frame.events[-1].kind is kind)
