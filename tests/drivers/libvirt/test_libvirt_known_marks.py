"""Marks of domains that run are remembered; nothing else is, and nothing for ever."""

from __future__ import annotations

from datetime import UTC, datetime

from cloudgraft.drivers.libvirt.domains import KnownMarks, Marks

RUNNING, SHUT_OFF, NOT_KNOWN = 1, 5, 0
MARKS = Marks(name="one", pool="default", since=datetime(2026, 1, 1, tzinfo=UTC), tags={"cloudgraft-name": "one"})


class Host:
    """Answers for one domain, and counts how often."""

    def __init__(self) -> None:
        self.now = 0.0
        self.marks: Marks | None = MARKS
        self.asked = 0
        self.known = KnownMarks(clock=lambda: self.now)

    def read(self, state: int = RUNNING, name: str = "one") -> Marks | None:
        return self.known.read("id", name, state, self._ask)

    def _ask(self) -> Marks | None:
        self.asked += 1
        return self.marks


def test_a_domain_that_runs_is_asked_once() -> None:
    host = Host()
    assert [host.read() for _ in range(5)] == [MARKS] * 5
    assert host.asked == 1


def test_it_is_asked_again_after_a_while_so_that_lost_marks_are_seen() -> None:
    host = Host()
    host.read()
    host.marks = None
    host.now = 599.0
    assert host.read() == MARKS
    host.now = 1201.0
    assert host.read() is None
    assert host.read() is None  # what is not ours may become ours any time
    assert host.asked == 3


def test_one_that_does_not_run_or_does_not_answer_is_asked_each_time() -> None:
    for state in (SHUT_OFF, NOT_KNOWN):
        host = Host()
        assert [host.read(state), host.read(state)] == [MARKS, MARKS]
        assert host.asked == 2


def test_one_that_has_stopped_is_not_answered_by_what_it_was() -> None:
    host = Host()
    host.read()
    host.marks = None
    assert host.read(SHUT_OFF) is None
    assert host.read() is None


def test_one_of_another_name_or_that_was_gone_meanwhile_is_asked_anew() -> None:
    host = Host()
    host.read()
    host.read(name="renamed")
    assert host.asked == 2
    host.known.keep({"another"})
    host.read(name="renamed")
    assert host.asked == 3
    host.known.keep({"id"})
    host.read(name="renamed")
    assert host.asked == 3
