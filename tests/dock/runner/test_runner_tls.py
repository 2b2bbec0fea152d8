"""A connection that TLS, or the hub, refuses: the driver's log says what to do, and nothing that is secret."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.dock.protocol.codes import Code
from cloudgraft.dock.runner import DockRunner, RunnerOptions, RunnerSettings, Tls
from cloudgraft.wire.pb import dock_pb2 as pb
from tests.conditions import until
from tests.dock.runner.drivers import API_VERSION, KIND, GatedDriver
from tests.dock.runner.small_hub import SmallHub


def credentials(bundle: Bundle) -> grpc.ServerCredentials:
    """Of a hub that asks for certificates."""
    return grpc.ssl_server_credentials(
        [(bundle.server_key.read_bytes(), bundle.server_cert.read_bytes())],
        root_certificates=bundle.ca_cert.read_bytes(),
        require_client_auth=True,
    )


async def told(hub: SmallHub, tls: Tls | None, words: str, log: pytest.LogCaptureFixture) -> None:
    log.clear()
    options = RunnerOptions(
        address=hub.address,
        kind=KIND,
        api_version=API_VERSION,
        tls=tls,
        settings=RunnerSettings(first_wait=0.02, longest_wait=0.1),
    )
    runner = DockRunner(GatedDriver(), options)
    await runner.start()
    try:
        await until(lambda: words in log.text, what=words)
    finally:
        await runner.stop()
    assert hub.hellos == []


async def test_a_failed_handshake_says_what_to_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = create_bundle(tmp_path / "own", hosts=["127.0.0.1"])
    foreign = create_bundle(tmp_path / "foreign", hosts=["127.0.0.1"])
    named = create_bundle(tmp_path / "named", hosts=["hub.example"])
    cert, key = own.client_cert, own.client_key
    closed, plain, elsewhere = SmallHub(), SmallHub(), SmallHub()
    await closed.start(credentials(own))
    await plain.start()
    await elsewhere.start(credentials(named))
    try:
        await told(closed, Tls(ca=foreign.ca_cert, cert=cert, key=key), "tls.ca is not who signed", caplog)
        await told(closed, Tls(ca=own.ca_cert), "the hub may have refused the certificate", caplog)
        await told(closed, None, "the hub may speak TLS: give tls", caplog)
        await told(plain, Tls(ca=own.ca_cert, cert=cert, key=key), "does not speak TLS: leave tls out", caplog)
        await told(elsewhere, Tls(ca=named.ca_cert), "is for another name: give server_name", caplog)
    finally:
        for hub in (closed, plain, elsewhere):
            await hub.stop()


async def test_a_hub_that_repeats_the_token_does_not_bring_it_into_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Law 9: the connection is closed by the time that its end is logged."""
    token = tmp_path / "token"
    token.write_text("correct-horse-battery\n")
    hub = await SmallHub().start()
    hub.reject = pb.Reject(code=Code.UNAUTHENTICATED, message="nobody has the token correct-horse-battery")
    settings = RunnerSettings(first_wait=0.02, longest_wait=0.1)
    options = RunnerOptions(
        address=hub.address, kind=KIND, api_version=API_VERSION, token_file=token, settings=settings
    )
    runner = DockRunner(GatedDriver(), options)
    await runner.start()
    await until(lambda: "nobody has the token" in caplog.text)
    await runner.stop()
    await hub.stop()
    assert "nobody has the token [secret]" in caplog.text
    assert "correct-horse" not in caplog.text
