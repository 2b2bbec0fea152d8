"""A call of an author's code: it ends in time and with an error of ours, whatever it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cloudgraft.sdk.common.event_loop import EscapedError, within
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InternalError, NotFoundError


async def ask(call: Callable[[], Awaitable[str]], seconds: float = 60.0) -> str:
    return await within(
        seconds, call, late=lambda: DeadlineError("late"), failed=lambda error: InternalError(type(error).__name__)
    )


async def answer() -> str:
    return "answer"


async def never() -> str:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def raising(error: BaseException) -> Callable[[], Awaitable[str]]:
    async def call() -> str:
        raise error

    return call


async def test_the_answer_is_the_answer() -> None:
    assert await ask(answer) == "answer"


async def test_a_call_that_takes_too_long_is_late() -> None:
    with pytest.raises(DeadlineError, match="late") as caught:
        await ask(never, 0.01)
    assert isinstance(caught.value.__cause__, TimeoutError)


async def test_an_error_of_ours_goes_through_as_it_is() -> None:
    error = NotFoundError("gone")
    with pytest.raises(CloudgraftError) as caught:
        await ask(raising(error))
    assert caught.value is error


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ValueError("x"), "ValueError"),
        (TimeoutError("of its own"), "TimeoutError"),
        (SystemExit(1), EscapedError.__name__),
        (asyncio.CancelledError(), EscapedError.__name__),
    ],
)
async def test_whatever_else_it_raises_has_failed(raised: BaseException, told: str) -> None:
    with pytest.raises(InternalError, match=f"^{told}$") as caught:
        await ask(raising(raised))
    assert caught.value.__cause__ is not None


async def test_so_has_a_call_that_cannot_even_be_made() -> None:
    def call() -> Awaitable[str]:
        raise TypeError("not async at all")

    with pytest.raises(InternalError, match="TypeError"):
        await ask(call)


async def test_who_is_cancelled_is_cancelled() -> None:
    task = asyncio.create_task(ask(never))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
