"""Whether an HTTPS server keeps what its own description says: asked by schemathesis."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, cast
from zlib import crc32

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

# Without positive_data_acceptance: that a group is there, or that a text is a label selector, no schema can say.
_WANTED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)


@contextmanager
def in_a_thread(serving: AbstractAsyncContextManager[str]) -> Iterator[str]:
    """The address of a server that runs in a thread of its own: schemathesis waits for answers."""
    found: list[str] = []
    is_up, loop = threading.Event(), asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def run() -> None:
        async with serving as address:
            found.append(address)
            is_up.set()
            await stopping.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert is_up.wait(60)
    yield found[0]
    loop.call_soon_threadsafe(stopping.set)
    thread.join(60)
    loop.close()


def check_all(
    url: str,
    *,
    examples: int,
    headers: Mapping[str, str] | None = None,
    prepare: Callable[[Any], None] = lambda _: None,
) -> int:
    """Every operation, with requests that are right and requests that are wrong. Says how many operations there are.

    ``prepare`` may change a request before it is made.
    """
    load_all_checks()
    wanted: list[Any] = [CHECKS.get_one(name) for name in _WANTED]
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=dict(headers or {}))
    count = 0
    for result in schema.get_all_operations():
        operation: Any = cast("Any", result).ok()
        modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
        strategy: Any = st.one_of(*[operation.as_strategy(generation_mode=mode) for mode in modes])

        @given(case=strategy)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        def one(case: Any) -> None:
            prepare(case)
            answer = case.call(headers=dict(headers or {}))
            if answer.status_code != 413:  # a refusal that schemathesis does not take for one
                case.validate_response(answer, checks=wanted)

        if settings().derandomize:
            one = seed(crc32(operation.label.encode()))(one)  # not the same headers for every operation
        one()
        count += 1
    return count
