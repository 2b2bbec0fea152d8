"""NodeGroupGetOptions: what may be told to which release, and in which fields.

Four fifths of all calls are this one, and no other has changed so often (B1 to B4, R73 to R76).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgraft.sdk.errors import CloudgraftError, StatusCode
from cloudgraft.sdk.types import AutoscalingOptions
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.wire.externalgrpc import RPCS as SERVED
from tests.wire import raw_wire
from tests.wire.go_client import GoClient, GoOptions, NotImplementedByServerError
from tests.wire.release_messages import NEXT, RELEASES, Release
from tests.wire.small_provider import OVERRIDES, PlainProvider, SmallProvider

every_release = pytest.mark.parametrize("release", RELEASES, ids=[release.name for release in RELEASES])
releases_up_to_1_28 = pytest.mark.parametrize("release", RELEASES[:2], ids=["1.25", "1.27"])
releases_since_1_29 = pytest.mark.parametrize("release", RELEASES[2:], ids=[r.name for r in RELEASES[2:]])
releases_since_1_35 = pytest.mark.parametrize("release", RELEASES[6:], ids=["1.35", "1.37"])
# On the wire these may be 1.29 to 1.32, which lose two options with any override (B2).
_LIKE_1_29 = RELEASES[2:5]
releases_that_look_like_1_29 = pytest.mark.parametrize("release", _LIKE_1_29, ids=["1.29", "1.33", "1.34.1"])
# Those to which an override that minds B2 does no harm; the next one can be told the startup time (B3).
_UNHARMED = (*RELEASES[2:6], NEXT)
releases_that_take_overrides = pytest.mark.parametrize("release", _UNHARMED, ids=[r.name for r in _UNHARMED])
releases_that_send_booleans = pytest.mark.parametrize("release", _UNHARMED[1:], ids=[r.name for r in _UNHARMED[1:]])


def _client(release: Release, provider: PlainProvider | None = None, *, force: bool = False) -> GoClient:
    return GoClient(release, CloudProviderService(provider or SmallProvider(), force_options=force))


MINDING_B2 = replace(OVERRIDES, ignore_daemon_sets_utilization=False)
FLAGS = GoOptions(
    unready=timedelta(minutes=7), provision=timedelta(seconds=90, microseconds=250_000), gpu_threshold=0.75
)
ZEROS = replace(FLAGS, unneeded=timedelta(0), unready=timedelta(0), provision=timedelta(0), threshold=0.0)


def _expected(release: Release, defaults: GoOptions) -> GoOptions:
    """OVERRIDES over the client's own values, as far as its wire carries them."""
    return replace(
        defaults,
        threshold=0.25,
        unneeded=timedelta(minutes=3),
        provision=defaults.provision if release.since("1.29-32") else timedelta(0),
        zero_or_max=defaults.zero_or_max and release.since("1.33"),
        ignore_daemon_sets=defaults.ignore_daemon_sets and release.since("1.33"),
        startup=defaults.startup if release.since("next") else timedelta(0),
    )


@every_release
async def test_a_provider_that_wants_the_defaults_leaves_the_options_unset(release: Release) -> None:
    """R73: right in all releases."""
    assert await _client(release, SmallProvider(overrides=None)).options("lab", FLAGS) is None
    assert await _client(release, SmallProvider(overrides=AutoscalingOptions())).options("lab", FLAGS) is None


@releases_up_to_1_28
async def test_a_provider_without_options_answers_old_clients_with_unset_options(release: Release) -> None:
    """R73, B9: code 12 would stop their scale-down."""
    assert await _client(release, PlainProvider()).options("lab", FLAGS) is None
    assert await _client(release, PlainProvider()).options("lab", ZEROS) is None


@releases_since_1_29
async def test_a_provider_without_options_says_so_with_code_12(release: Release) -> None:
    with pytest.raises(NotImplementedByServerError) as caught:
        await _client(release, PlainProvider()).options("lab", FLAGS)
    assert isinstance(caught.value.__cause__, CloudgraftError)
    assert caught.value.__cause__.status is StatusCode.UNIMPLEMENTED
    assert StatusCode.UNIMPLEMENTED.value == 12


@releases_that_take_overrides
async def test_overrides_come_with_everything_else_echoed(release: Release) -> None:
    """R74, R75: what is left out of a reply is zero, or a crash (GoPanicError)."""
    assert await _client(release, SmallProvider(MINDING_B2)).options("lab", FLAGS) == _expected(release, FLAGS)


@releases_that_send_booleans
async def test_booleans_that_the_client_set_are_echoed(release: Release) -> None:
    """B2: since 1.33 they are on the wire, and a reply without them would switch them off."""
    defaults = replace(FLAGS, zero_or_max=True, ignore_daemon_sets=True)
    assert await _client(release).options("lab", defaults) == _expected(release, defaults)


@releases_that_take_overrides
async def test_a_duration_of_zero_is_echoed_as_zero_and_not_left_out(release: Release) -> None:
    """B4: absent is a crash up to 1.34; a zero must be there."""
    assert await _client(release, SmallProvider(MINDING_B2)).options("lab", ZEROS) == _expected(release, ZEROS)


@releases_that_take_overrides
async def test_every_option_can_be_overridden(release: Release) -> None:
    """B2: those that may be unable to take all of it only get it by force."""
    wanted = AutoscalingOptions(
        scale_down_utilization_threshold=0.1,
        scale_down_gpu_utilization_threshold=0.2,
        scale_down_unneeded_time=timedelta(seconds=1),
        scale_down_unready_time=timedelta(seconds=2),
        max_node_provision_time=timedelta(milliseconds=3500),
        zero_or_max_node_scaling=True,
        ignore_daemon_sets_utilization=True,
        max_node_startup_time=timedelta(hours=4),
    )
    since_1_33 = release.since("1.33")
    client = _client(release, SmallProvider(wanted), force=release in _LIKE_1_29)
    assert await client.options("lab", FLAGS) == GoOptions(
        threshold=0.1,
        gpu_threshold=0.2,
        unneeded=timedelta(seconds=1),
        unready=timedelta(seconds=2),
        provision=timedelta(milliseconds=3500),
        zero_or_max=since_1_33,
        ignore_daemon_sets=since_1_33,
        startup=timedelta(hours=4) if release.since("next") else timedelta(0),
    )


@releases_up_to_1_28
async def test_overrides_are_withheld_from_clients_that_read_no_provision_time(release: Release) -> None:
    """B1: they would take it for zero and delete every new machine in the next loop."""
    assert await _client(release).options("lab", FLAGS) is None


@releases_that_look_like_1_29
async def test_overrides_are_withheld_from_clients_that_would_lose_a_flag_by_them(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    """B2: 1.29 to 1.32 would take --ignore-daemonsets-utilization for off, and with it off 1.33 looks the same."""
    client = _client(release)
    for _ in range(3):
        assert await client.options("lab", FLAGS) is None
    [warning] = [record.getMessage() for record in caplog.records if "B2" in record.getMessage()]
    assert "or set server.forceOptions" in warning


@releases_since_1_35
async def test_overrides_are_withheld_from_clients_without_a_startup_time(release: Release) -> None:
    """B3: they would take it for zero, and every booting node for unready."""
    assert await _client(release).options("lab", FLAGS) is None


@every_release
async def test_forced_overrides_reach_every_release_and_crash_none(release: Release) -> None:
    """B4: not one of the durations that this release reads is absent, with whatever defaults it came."""
    client = _client(release, force=True)
    for defaults in (FLAGS, ZEROS):
        assert await client.options("lab", defaults) == _expected(release, defaults)


@every_release
async def test_options_asked_for_without_any_defaults_are_complete_all_the_same(release: Release) -> None:
    """No autoscaler does that, but a hand-written client may; an absent duration must not crash it (R75)."""
    client = _client(release, force=True)
    response = await client.call("NodeGroupGetOptions", id="lab")
    reply = client._read_options(response.nodeGroupAutoscalingOptions)
    assert reply == _expected(release, GoOptions(startup=timedelta(0)))
    assert OVERRIDES.scale_down_unneeded_time == reply.unneeded


@releases_that_take_overrides
async def test_an_option_of_a_release_to_come_is_echoed_with_the_rest(release: Release) -> None:
    """A reply replaces all options: one that we have never heard of would be zero if it were left out (R74)."""
    client = _client(release, SmallProvider(MINDING_B2))
    defaults = client._options(FLAGS).SerializeToString() + raw_wire.field(99, 7)
    request = SERVED["NodeGroupGetOptions"].request.FromString(raw_wire.message((1, "lab"), (2, defaults)))
    response = await client.service.handle("NodeGroupGetOptions", request, Call())
    assert raw_wire.at(response.SerializeToString(), 1, 99) == [7]
