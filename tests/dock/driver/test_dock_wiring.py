"""From a configuration file to a dock: who gets in, and who is sent away when the file or the leader changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.certs.authority import create_bundle, issue_client, renew
from cloudgraft.config import Config, ConfigError, parse
from cloudgraft.dock.driver import DockDriver
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.dock.runner import DockRunner, RunnerOptions, RunnerSettings, Tls
from cloudgraft.sdk.errors import AuthenticationError, PermissionDeniedError, UnavailableError
from tests.conditions import until
from tests.dock.driver.connected_driver import dock_options
from tests.dock.runner.small_hub import read
from tests.engine.scripted_cloud import Cloud

KEY = Key(kind="AcmeMachineClass", api_version="machine.example/v1")
CLASSES = (
    "classes: {small: {kind: AcmeMachineClass, apiVersion: machine.example/v1, "
    "nodeTemplate: {instanceType: m1, capacity: {cpu: 2}}}}"
)
DRIVER = "{name: acme, kind: AcmeMachineClass, apiVersion: machine.example/v1, tokenFile: acme.token}"
ENGINE = DRIVER.replace("acme,", "prod,").replace("acme.token", "engine.token")
TOKEN = "a-token-of-some-length"


def config_of(directory: Path, *lines: str) -> Config:
    text = "\n".join(
        ["cluster: test", "dock:", "  listen: 127.0.0.1:0", f"  {CLASSES}", *(f"  {line}" for line in lines)]
    )
    return parse(text, directory)


def link_of(config: Config) -> DockLink:
    assert config.dock is not None
    return DockLink(config, config.dock, for_engines=True)


@asynccontextmanager
async def dialled_in(link: DockLink, **how: Any) -> AsyncIterator[DockRunner]:
    settings = RunnerSettings(first_wait=0.01, longest_wait=0.05)
    options = RunnerOptions(
        address=link.listener.address, kind=KEY.kind, api_version=KEY.api_version, settings=settings, **how
    )
    runner = DockRunner(Cloud(), options)
    await runner.start()
    try:
        yield runner
    finally:
        await runner.stop(0)


async def test_without_tls_any_program_of_this_host_may_dial_in(tmp_path: Path) -> None:
    link = link_of(config_of(tmp_path))
    async with link.running(), dialled_in(link) as runner:
        await runner.wait_connected()
        answer: Any = await link.methods()["DockDrivers"]({})
        (driver,) = answer["drivers"]
        assert (driver["kind"], driver["identity"], driver["state"]) == (KEY.kind, "local", "ready")


async def test_over_tls_drivers_and_engines_are_known_by_their_tokens(tmp_path: Path) -> None:
    """Law 9, and a token that is replaced cuts off who came with the old one."""
    token, ca = tmp_path / "acme.token", create_bundle(tmp_path / "certs", hosts=["localhost"]).ca_cert
    token.write_text(TOKEN)
    (tmp_path / "engine.token").write_text("the-token-of-an-engine")
    tls = "tls: {cert: certs/server.crt, key: certs/server.key}"
    link = link_of(config_of(tmp_path, tls, f"drivers: [{DRIVER}]", f"engines: [{ENGINE}]"))
    async with link.running(), dialled_in(link, tls=Tls(ca=ca, server_name="localhost"), token_file=token) as runner:
        await runner.wait_connected()
        where = {"address": link.listener.address, "ca_file": ca, "server_name": "localhost"}
        engine = DockDriver(dock_options(**where, token_file=tmp_path / "engine.token"))
        await engine.start()
        assert [shape.name for shape in await engine.shapes()] == ["m1"]
        await engine.close()
        driver = DockDriver(dock_options(**where, token_file=token))
        with pytest.raises(PermissionDeniedError, match=r"acme may not use .* add an entry to dock\.engines"):
            await driver.start()
        await driver.close()
        stranger = DockDriver(dock_options(**where))
        with pytest.raises(AuthenticationError):
            await stranger.start()
        await stranger.close()
        token.write_text("another-token-of-some-length")
        await until(lambda: runner.connections > 1, what="it was cut off, and is back with the new token")


async def test_over_mtls_a_driver_is_known_by_its_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bundle = create_bundle(tmp_path / "certs", hosts=["127.0.0.1"])
    cert, key = issue_client(tmp_path / "certs", "acme-driver")
    tls = "tls: {cert: certs/server.crt, key: certs/server.key, clientCA: certs/ca.crt}"
    driver = DRIVER.replace("tokenFile: acme.token", "clientNames: [acme-driver]")
    link = link_of(config_of(tmp_path, tls, f"drivers: [{driver}]"))
    async with link.running():
        async with dialled_in(link, tls=Tls(ca=bundle.ca_cert, cert=cert, key=key)) as runner:
            await runner.wait_connected()
            assert [report.identity for report in link.hub.drivers()] == ["acme"]
        other = Tls(ca=bundle.ca_cert, cert=bundle.client_cert, key=bundle.client_key)
        async with dialled_in(link, tls=other) as stranger:
            await until(lambda: "refused a caller" in caplog.text, what="it was sent away")
            assert not stranger.is_connected


def short_lived(directory: Path, seconds: float) -> datetime:
    """A certificate of that name, in place of the one before; when it ends."""
    for old in directory.glob("short-lived.*"):
        old.unlink()
    now = datetime.now(UTC)
    end = now + timedelta(seconds=seconds)
    issue_client(directory, "short-lived", not_before=now - timedelta(days=1), not_after=end)
    return end


async def connected_with_what_ends(runner: DockRunner, directory: Path) -> datetime:
    """When the certificate ends with which it came in: a busy machine may need longer than the first one lives."""
    for seconds in (3, 10, 30):
        end = short_lived(directory, seconds)
        await until(lambda end=end: runner.is_connected or datetime.now(UTC) > end, seconds=40)  # type: ignore[misc]
        if runner.is_connected:
            return end
    raise AssertionError("it never came in")


@pytest.mark.timeout(150)
async def test_case_33_certificates_expire_and_rotate_while_drivers_are_connected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who is connected stays so when its certificate ends, or the dock's changes; it is a new connection that counts.

    The driver's next connection with the ended certificate is refused, and with a renewed one it is let in: by a dock
    that was never restarted, and by itself.
    """
    certs = tmp_path / "certs"
    bundle = create_bundle(certs, hosts=["127.0.0.1"])
    tls = "tls: {cert: certs/server.crt, key: certs/server.key, clientCA: certs/ca.crt}"
    driver = DRIVER.replace("tokenFile: acme.token", "clientNames: [short-lived]")
    link = link_of(config_of(tmp_path, tls, f"drivers: [{driver}]"))
    own = Tls(ca=bundle.ca_cert, cert=certs / "short-lived.crt", key=certs / "short-lived.key")
    async with link.running(), dialled_in(link, tls=own) as runner:
        end = await connected_with_what_ends(runner, certs)
        renew(certs, what="server")
        await until(lambda: datetime.now(UTC) > end + timedelta(seconds=1), seconds=40)
        assert await link.hub.call(KEY, read()) == [], "it is served as before"
        assert runner.connections == 1
        caplog.clear()
        next(iter(link.hub._sessions)).end("for this test")
        await until(lambda: caplog.text.count("no connection") >= 3, what="it is cut off, and refused twice")
        assert (runner.connections, link.hub.drivers()) == (1, [])
        renew(certs, what="client")
        await until(lambda: runner.connections == 2 and bool(link.hub.drivers()), what="it is back")


async def test_a_certificate_that_is_replaced_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    token = tmp_path / "acme.token"
    token.write_text(TOKEN)
    create_bundle(tmp_path / "certs", hosts=["127.0.0.1"])
    (tmp_path / "engine.token").write_text("the-token-of-an-engine")
    tls = "tls: {cert: certs/server.crt, key: certs/server.key}"
    link = link_of(config_of(tmp_path, tls, f"drivers: [{DRIVER}]", f"engines: [{ENGINE}]"))
    new = create_bundle(tmp_path / "new", hosts=["127.0.0.1"])
    async with link.running():
        for name in ("server.key", "server.crt"):
            (tmp_path / "new" / name).replace(tmp_path / "certs" / name)
        own = tmp_path / "engine.token"
        engine = DockDriver(dock_options(address=link.listener.address, ca_file=new.ca_cert, token_file=own))
        await engine.start()  # it says that no driver is there, and not that it does not trust the dock
        with pytest.raises(UnavailableError, match="not connected"):
            await engine.list()
        await engine.close()


async def test_a_driver_that_is_taken_out_of_the_file_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "acme.token").write_text(TOKEN)
    link = link_of(config_of(tmp_path, f"drivers: [{DRIVER}]"))
    async with link.running(), dialled_in(link, token_file=tmp_path / "acme.token") as runner:
        await runner.wait_connected()
        other = config_of(tmp_path, f"drivers: [{DRIVER.replace('AcmeMachineClass', 'OtherMachineClass')}]").dock
        assert other is not None
        link.replace(other)
        await until(lambda: not link.hub.drivers(), what="it may not be here any more")


async def test_an_engine_that_is_taken_out_of_the_file_may_call_no_more_and_an_engine_never_dials_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "engine.token"
    own.write_text("the-token-of-an-engine")
    (tmp_path / "acme.token").write_text(TOKEN)
    link = link_of(config_of(tmp_path, f"drivers: [{DRIVER}]", f"engines: [{ENGINE}]"))
    async with link.running():
        engine = DockDriver(dock_options(address=link.listener.address, token_file=own))
        await engine.start()
        with pytest.raises(UnavailableError, match="not connected"):
            await engine.list()
        async with dialled_in(link, token_file=own) as impostor:
            await until(lambda: "prod may not register" in caplog.text, what="it was sent away")
            assert not impostor.is_connected
        other = config_of(tmp_path, f"drivers: [{DRIVER}]").dock
        assert other is not None
        link.replace(other)
        with pytest.raises(AuthenticationError, match=r"dock\.engines"):
            await engine.list()
        await engine.close()


async def test_only_the_process_that_leads_has_drivers(tmp_path: Path) -> None:
    """Case 35: the port is open on the leader alone, so that drivers find it."""
    link = link_of(config_of(tmp_path))
    leads = asyncio.Event()
    async with link.running(leads.is_set, look_every=0.01):
        assert not link.listener.is_open
        leads.set()
        await until(lambda: link.listener.is_open, what="it leads now")
        address = link.listener.address
        async with dialled_in(link) as runner:
            await runner.wait_connected()
            leads.clear()
            await until(lambda: not link.listener.is_open and not link.hub.drivers(), what="it leads no more")
            leads.set()
            await until(lambda: bool(link.hub.drivers()), what="and again")
            assert link.listener.address == address


async def test_a_port_in_use_is_an_error_at_the_start(tmp_path: Path) -> None:
    first = link_of(config_of(tmp_path))
    async with first.running():
        text = "cluster: test\ndock:\n  listen: " + first.listener.address
        second = link_of(parse(text, tmp_path))
        with pytest.raises(UnavailableError, match="another program"):
            async with second.running():
                pass


def test_the_error_for_unusable_certificates_has_a_location(tmp_path: Path) -> None:
    (tmp_path / "acme.token").write_text(TOKEN)
    for name in ("server.crt", "server.key"):
        (tmp_path / name).write_text("nothing")
    config = config_of(tmp_path, "tls: {cert: server.crt, key: server.key}", f"drivers: [{DRIVER}]")
    with pytest.raises(ConfigError, match="dock"):
        link_of(config)
