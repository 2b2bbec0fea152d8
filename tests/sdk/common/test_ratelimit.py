"""Rate limits hold on average, allow a burst, and count what they refuse."""

from __future__ import annotations

from cloudgraft.sdk.common.ratelimit import LogLimit, RepeatLimit, TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_allows_its_burst_and_then_its_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(rate=2, burst=5, clock=clock)
    assert sum(bucket.take() for _ in range(100)) == 5
    clock.now += 3
    assert sum(bucket.take() for _ in range(100)) == 5  # six were due, five fit
    clock.now += 0.5
    assert sum(bucket.take() for _ in range(100)) == 1


def test_an_amount_above_the_burst_leaves_a_debt() -> None:
    clock = Clock()
    bucket = TokenBucket(rate=10, burst=10, clock=clock)
    assert bucket.take(100)
    clock.now += 5
    assert not bucket.take(1)
    clock.now += 4.2
    assert bucket.take(1)


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    clock = Clock()
    bucket = TokenBucket(rate=1, burst=1, clock=clock)
    assert bucket.take()
    clock.now -= 50
    assert not bucket.take()


def test_a_flood_of_lines_is_counted_and_reported_once_per_interval() -> None:
    clock = Clock()
    limit = LogLimit(lines_per_second=1, bytes_per_second=1000, burst_seconds=5, report_every=10, clock=clock)
    assert [limit.admit(10) for _ in range(8)] == [True] * 5 + [False] * 3
    assert limit.dropped() is None
    limit.drop(7, 700)
    clock.now += 10
    assert str(limit.dropped()) == "10 lines (730 bytes) in 10 s"
    assert limit.dropped() is None
    clock.now += 10
    assert limit.dropped() is None  # nothing was dropped since


def test_long_lines_are_held_to_bytes() -> None:
    limit = LogLimit(lines_per_second=100, bytes_per_second=100, burst_seconds=1, clock=Clock())
    assert limit.admit(90)
    assert not limit.admit(90)


def test_the_last_report_does_not_wait() -> None:
    clock = Clock()
    limit = LogLimit(lines_per_second=1, burst_seconds=1, clock=clock)
    assert limit.admit()
    assert not limit.admit(4)
    report = limit.dropped(is_last=True)
    assert report is not None
    assert (report.lines, report.size) == (1, 4)


def test_names_that_never_come_back_leave_room_for_others() -> None:
    clock = Clock()
    limit = RepeatLimit(clock=clock)
    for number in range(100):
        assert [limit.admit(number), limit.admit(number)] == [0, None]  # each has one that was dropped
    assert limit.admit("it shares a place") == 0
    assert limit.admit("with all that find no room") is None
    clock.now += 3601
    assert limit.admit("one") == 0
    assert limit.admit("another") == 0
