"""Whatever arrives as a request, there is an answer or a clear refusal, and never a bug."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudgraft.sdk.errors import CloudgraftError, InternalError
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.wire.externalgrpc import RPCS as SERVED
from tests.wire.release_messages import RELEASES, RPCS, filled
from tests.wire.small_provider import SmallProvider

repeatable = settings(
    derandomize=True, max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


def _requests() -> list[tuple[str, bytes]]:
    return [
        (rpc, filled(release.new(request)).SerializeToString())
        for release in RELEASES
        for rpc, (request, _) in RPCS.items()
    ]


async def _survives(rpc: str, data: bytes) -> None:
    """The bytes are refused as no message, or answered, or refused with an error that is not a bug of ours."""
    try:
        request = SERVED[rpc].request.FromString(data)
    except DecodeError:
        return
    try:
        response = await CloudProviderService(SmallProvider(), force_options=True).handle(rpc, request, Call())
    except InternalError:
        raise  # the provider is sound, so this is a bug of ours
    except CloudgraftError:
        return
    SERVED[rpc].response.FromString(response.SerializeToString())


@pytest.mark.parametrize("rpc", RPCS)
@repeatable
@given(data=st.binary(max_size=40))
async def test_any_bytes_as_a_request_are_answered_or_refused(rpc: str, data: bytes) -> None:
    await _survives(rpc, data)


@repeatable
@given(
    request=st.sampled_from(_requests()),
    places=st.lists(st.tuples(st.floats(0, 0.999), st.binary(max_size=3)), max_size=3),
)
async def test_a_damaged_request_is_answered_or_refused(
    request: tuple[str, bytes], places: list[tuple[float, bytes]]
) -> None:
    rpc, data = request
    for where, what in places:
        position = int(where * len(data))
        data = data[:position] + what + data[position + len(what) :]
    await _survives(rpc, data)


@pytest.mark.parametrize("rpc", RPCS)
async def test_an_empty_request_is_answered_or_refused(rpc: str) -> None:
    await _survives(rpc, b"")
