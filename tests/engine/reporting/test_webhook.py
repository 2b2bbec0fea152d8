"""Events at a webhook: which, in which form, how often it is tried, and that nobody waits for it."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.certs.issue import Validity, new_authority, server_pair
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.reporting.webhook import Webhook, WebhookSettings
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store.records import State
from tests.conditions import until
from tests.engine.webhook_receiver import Receiver, serving

SECRET = "s3cr3t-t0ken"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from serving(Receiver())


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def webhook(receiver: Receiver, pauses: list[float]) -> Iterator[Webhook]:
    """Waits for nothing before it tries again, but notes how long it would have waited."""
    made = Webhook(WebhookSettings(url=f"http://{receiver.address}/hook?a=b"), "prod", pause=pauses.append)
    made.start()
    yield made
    made.close()


def event(kind: str = "guard", number: int = 0) -> Any:
    return happened(kind, 1_800_000_000.0, f"event {number}", cloud="sim", group="g", number=number)


def changed(webhook: Webhook, **changes: Any) -> None:
    webhook.settings = replace(webhook.settings, **changes)


async def test_an_event_is_sent_as_json(webhook: Webhook, receiver: Receiver) -> None:
    webhook.tell(replace(event(), machine="m", state=State.FAILED))
    await until(lambda: webhook.results["sent"] == 1)
    ((headers, body),) = receiver.got
    assert (headers["path"], headers["Content-Type"]) == ("/hook?a=b", "application/json")
    assert body == {
        "cluster": "prod",
        "at": "2027-01-15T08:00:00Z",
        "kind": "guard",
        "level": "warning",
        "message": "event 0",
        "cloud": "sim",
        "group": "g",
        "machine": "m",
        "state": "failed",
        "data": {"number": 0},
    }


async def test_only_loud_events_are_sent_and_those_that_are_asked_for(webhook: Webhook, receiver: Receiver) -> None:
    for kind in ("increase", "guard", "state", "cloud_down"):
        webhook.tell(event(kind))
    await until(lambda: webhook.results["sent"] == 2)
    assert [body["kind"] for _, body in receiver.got] == ["guard", "cloud_down"]
    changed(webhook, kinds=("increase",))
    webhook.tell(event("state"))
    webhook.tell(event("increase"))
    await until(lambda: webhook.results["sent"] == 3)
    assert receiver.got[-1][1]["kind"] == "increase"


async def test_what_fails_is_tried_again_with_growing_pauses_in_order(
    webhook: Webhook, receiver: Receiver, pauses: list[float]
) -> None:
    receiver.statuses = [503, 429, 500]
    for number in range(2):
        webhook.tell(event(number=number))
    await until(lambda: webhook.results["sent"] == 2)
    assert [body["data"]["number"] for _, body in receiver.got] == [0, 0, 0, 0, 1]
    assert [0.5 <= pause / full <= 1.0 for pause, full in zip(pauses, (1, 2, 4), strict=True)] == [True] * 3


async def test_it_gives_up_after_some_attempts_and_goes_on_with_the_next(webhook: Webhook, receiver: Receiver) -> None:
    changed(webhook, attempts=2)
    receiver.statuses = [500, 500]
    for number in range(2):
        webhook.tell(event(number=number))
    await until(lambda: webhook.results == {"sent": 1, "failed": 1, "dropped": 0})
    assert [body["data"]["number"] for _, body in receiver.got] == [0, 0, 1]


@pytest.mark.parametrize("status", [302, 400, 401, 404])
async def test_what_is_refused_is_not_tried_again(webhook: Webhook, receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    webhook.tell(event())
    await until(lambda: webhook.results["failed"] == 1)
    assert len(receiver.got) == 1


async def test_when_it_is_slow_nobody_waits_and_the_oldest_are_dropped(webhook: Webhook, receiver: Receiver) -> None:
    changed(webhook, queue=3)
    receiver.may_answer.clear()
    webhook.tell(event(number=0))
    await until(lambda: len(receiver.got) == 1)
    for number in range(1, 7):
        webhook.tell(event(number=number))
    assert webhook.results["dropped"] == 3
    receiver.may_answer.set()
    await until(lambda: webhook.results["sent"] == 4)
    assert [body["data"]["number"] for _, body in receiver.got] == [0, 4, 5, 6]


async def test_a_receiver_that_is_away_is_a_failure_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    settings = WebhookSettings(url="http://127.0.0.1:1/secret-path", attempts=3)
    webhook = Webhook(settings, "prod", pause=lambda _seconds: None)
    webhook.start()
    webhook.tell(event())
    await until(lambda: webhook.results["failed"] == 1)
    webhook.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]  # once, not for every attempt
    assert "secret-path" not in str(caplog.records[0].__dict__)


async def test_the_token_and_headers_come_from_files_that_may_change(
    webhook: Webhook, receiver: Receiver, tmp_path: Path
) -> None:
    token, headers = tmp_path / "token", tmp_path / "headers"
    token.write_text(f"{SECRET}\n")
    headers.write_text("X-Tenant: a\n\nX-Other : b: c\n")
    changed(webhook, token_file=token, headers_file=headers)
    webhook.tell(event())
    await until(lambda: webhook.results["sent"] == 1)
    sent = receiver.got[0][0]
    assert (sent["Authorization"], sent["X-Tenant"], sent["X-Other"]) == (f"Bearer {SECRET}", "a", "b: c")
    token.write_text("other")
    webhook.tell(event())
    await until(lambda: webhook.results["sent"] == 2)
    assert receiver.got[1][0]["Authorization"] == "Bearer other"


@pytest.mark.parametrize(
    ("token", "headers"),
    [(f"{SECRET}\x00", ""), ("", ""), (f"{SECRET}é", ""), ("ok", f"{SECRET}"), ("ok", f"bad name: {SECRET}")],
)
async def test_what_is_wrong_with_a_secret_is_told_without_it(
    webhook: Webhook, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture, token: str, headers: str
) -> None:
    (tmp_path / "token").write_text(token)
    (tmp_path / "headers").write_text(headers)
    changed(webhook, token_file=tmp_path / "token", headers_file=tmp_path / "headers")
    webhook.tell(event())
    await until(lambda: webhook.results["failed"] == 1)
    assert receiver.got == []
    assert len(caplog.records) == 1
    assert SECRET not in str(caplog.records[0].__dict__)


async def test_the_end_does_not_wait_for_a_receiver_that_fails(receiver: Receiver) -> None:
    receiver.statuses = [500] * 10
    webhook = Webhook(WebhookSettings(url=f"http://{receiver.address}/", first_pause=3600, longest_pause=3600), "prod")
    webhook.start()
    webhook.tell(event(number=1))
    await until(lambda: len(receiver.got) == 1)
    webhook.tell(event(number=2))
    webhook.close()
    assert [body["data"]["number"] for _, body in receiver.got] == [1, 2]  # one attempt for what was left
    assert webhook.results["failed"] == 2


async def test_https_is_verified(tmp_path: Path) -> None:
    day = Validity.days(1)
    authority = new_authority(day)
    pair = server_pair(authority, [ip_address("127.0.0.1")], day)
    files = {"ca": authority.certificate_pem, "cert": pair.certificate_pem, "key": pair.key_pem}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    for receiver in serving(Receiver(), lambda socket: context.wrap_socket(socket, server_side=True)):
        settings = WebhookSettings(url=f"https://{receiver.address}/", attempts=1)
        for ca, result in ((None, "failed"), (tmp_path / "ca", "sent")):
            webhook = Webhook(replace(settings, ca=ca), "prod")
            webhook.start()
            webhook.tell(event())
            await until(lambda webhook=webhook, result=result: webhook.results[result] == 1)  # type: ignore[misc]  # mypy knows no default of a lambda
            webhook.close()
        assert len(receiver.got) == 1


@pytest.mark.parametrize(
    "url", ["http://alerts.example/", "ftp://x/", "https://", "https://x:port/", "https://x/\n", "https://x/é", "x"]
)
def test_a_url_that_is_none_or_in_the_clear_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        Webhook(WebhookSettings(url=url), "prod")
    assert "example" not in str(refused.value)
    assert "alerts" not in repr(WebhookSettings(url=url))
