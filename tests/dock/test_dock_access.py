"""Who may dial in: certificates, tokens, and what changes while drivers are connected. Over a real listener."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from cloudgraft.certs.authority import Bundle, create_bundle, issue_client
from cloudgraft.config import parse
from cloudgraft.dock.access import CallerAccess, CallerIdentity, CallerRule, Role, admit, admit_engine, rules_of
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import AuthenticationError, CloudgraftError, PermissionDeniedError
from cloudgraft.sdk.secrecy import redacted
from cloudgraft.server.tls import ReloadingCredentials, TlsFiles
from tests.conditions import until

ACME = Key(kind="AcmeMachineClass", api_version="machine.example/v1")
OTHER = Key(kind="OtherMachineClass", api_version="machine.example/v1")
FIRST, SECOND = "first-token-0123456789", "second-token-0123456789"


def rule(name: str = "acme", *keys: Key, names: Sequence[str] = (), token: Path | None = None) -> CallerRule:
    return CallerRule(name=name, keys=frozenset(keys or {ACME}), client_names=frozenset(names), token_file=token)


def engine(name: str, *keys: Key, names: Sequence[str] = (), token: Path | None = None) -> CallerRule:
    return replace(rule(name, *keys, names=names, token=token), role=Role.ENGINE)


@dataclass
class Dock:
    """A listener that tells callers who they are; a stream is told anew at each message."""

    access: CallerAccess
    address: str = ""
    bundle: Bundle | None = None
    removed: list[str] = field(default_factory=list)

    async def once(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            if request.startswith(b"use "):
                key = Key(kind=request.removeprefix(b"use ").decode(), api_version=ACME.api_version)
                return admit_engine(self.access, context, key).name.encode()
            return admit(self.access, context, ACME if request == b"acme" else None).name.encode()
        except CloudgraftError as error:
            await context.abort(grpc.StatusCode[error.status.name], error.message)
            raise

    async def stay(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await self.once(request, context)

    def channel(self, cert: tuple[Path, Path] | None = None) -> grpc.aio.Channel:
        if self.bundle is None:
            return grpc.aio.insecure_channel(self.address)
        own = cert or (self.bundle.client_cert, self.bundle.client_key)
        credentials = grpc.ssl_channel_credentials(
            self.bundle.ca_cert.read_bytes(), own[1].read_bytes(), own[0].read_bytes()
        )
        return grpc.aio.secure_channel(self.address, credentials)

    async def call(
        self,
        token: str = "",
        *,
        request: bytes = b"acme",
        cert: tuple[Path, Path] | None = None,
        scheme: str = "Bearer",
    ) -> str:
        metadata = (("authorization", f"{scheme} {token}"),) if token else ()
        async with self.channel(cert) as channel:
            try:
                once: Any = channel.unary_unary("/test.Dock/Once")
                answer: bytes = await once(request, metadata=metadata, timeout=10)
            except grpc.aio.AioRpcError as error:
                return error.code().name
        return answer.decode()


@asynccontextmanager
async def dock(access: CallerAccess, bundle: Bundle | None = None) -> AsyncIterator[Dock]:
    served = Dock(access, bundle=bundle)
    access.on_removed(lambda identity: served.removed.append(identity.name))
    server = grpc.aio.server()
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Once": grpc.unary_unary_rpc_method_handler(served.once),
        "Stay": grpc.stream_stream_rpc_method_handler(served.stay),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Dock", methods),))
    if bundle is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        files = TlsFiles(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
        port = server.add_secure_port("127.0.0.1:0", ReloadingCredentials(files).server_credentials())
    await server.start()
    served.address = f"127.0.0.1:{port}"
    try:
        yield served
    finally:
        await server.stop(0)


def write(path: Path, *tokens: str) -> Path:
    """As Kubernetes and careful people replace a file: whole, by rename."""
    new = path.with_suffix(".new")
    new.write_text("\n".join(tokens) + "\n")
    new.rename(path)
    return path


# -- without TLS -------------------------------------------------------------------------------------------------------


async def test_on_this_host_alone_everybody_is_local_and_may_do_everything() -> None:
    async with dock(CallerAccess(secure=False)) as served:
        assert await served.call() == "local"
        assert await served.call("any-token-at-all-here") == "local"


async def test_on_this_host_alone_drivers_without_tokens_share_what_is_configured() -> None:
    async with dock(CallerAccess([rule("a", OTHER), rule("b", ACME)], secure=False)) as served:
        assert await served.call() == "local"
    async with dock(CallerAccess([rule("a", OTHER)], secure=False)) as served:
        assert await served.call(request=b"") == "local"
        assert await served.call() == "PERMISSION_DENIED"


async def test_a_driver_is_known_by_its_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules = [
        rule("acme", ACME, token=write(tmp_path / "acme", FIRST)),
        rule("other", OTHER, token=write(tmp_path / "other", SECOND)),
    ]
    async with dock(CallerAccess(rules, secure=False)) as served:
        assert await served.call(FIRST) == "acme"
        assert await served.call(FIRST, scheme="bearer") == "acme"
        assert await served.call(SECOND) == "PERMISSION_DENIED"  # known, but not for this kind
        assert await served.call(SECOND, request=b"") == "other"
        for stranger in ("", FIRST[:-1], FIRST + "x", FIRST.upper()):
            assert await served.call(stranger) == "UNAUTHENTICATED"
        assert await served.call(FIRST, scheme="Basic") == "UNAUTHENTICATED"
    told = [record for record in caplog.records if "neither dock.drivers nor dock.engines" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]  # once a minute, not once a call
    assert not [text for text in (FIRST, SECOND) if text in caplog.text or redacted(text) != "[secret]"]


async def test_a_token_file_is_read_again_and_may_hold_two_while_they_are_changed(tmp_path: Path) -> None:
    file = write(tmp_path / "acme", FIRST)
    async with dock(CallerAccess([rule(token=file)], secure=False)) as served:
        write(file, FIRST, SECOND)
        assert [await served.call(token) for token in (FIRST, SECOND)] == ["acme", "acme"]
        assert served.removed == []
        write(file, SECOND)
        assert [await served.call(token) for token in (FIRST, SECOND)] == ["UNAUTHENTICATED", "acme"]
        assert served.removed == ["acme"]  # whoever is connected with the old one is looked at again
        assert redacted(f"{FIRST} {SECOND}") == f"{FIRST} [secret]"


async def test_a_removed_token_is_noticed_without_a_call(tmp_path: Path) -> None:
    file = write(tmp_path / "acme", FIRST)
    access = CallerAccess([rule(token=file)], secure=False)
    removed: list[CallerIdentity] = []
    access.on_removed(removed.append)
    watching = asyncio.create_task(access.run(every=0.01))
    file.unlink()
    await until(lambda: len(removed) == 1)
    watching.cancel()
    async with dock(access) as served:
        assert await served.call(FIRST) == "UNAUTHENTICATED"


async def test_a_short_or_unreadable_token_admits_no_caller(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    short, broken = write(tmp_path / "short", "hunter2"), tmp_path / "directory"
    broken.mkdir()
    access = CallerAccess([rule("a", token=short), rule("b", token=broken)], secure=False)
    async with dock(access) as served:
        assert [await served.call(token) for token in ("hunter2", "")] == ["UNAUTHENTICATED"] * 2
    assert "a token has fewer than 16 characters" in caplog.text
    assert "the tokens of a caller cannot be read" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_token_in_a_mounted_secret_is_replaced_by_its_link(tmp_path: Path) -> None:
    """Kubernetes swaps a link to a directory; the file's own path, and perhaps its time and size, stay."""
    for number, token in (("1", FIRST), ("2", SECOND)):
        (tmp_path / number).mkdir()
        write(tmp_path / number / "token", token)
        os.utime(tmp_path / number / "token", (1, 1))
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "token").symlink_to("..data/token")
    async with dock(CallerAccess([rule(token=tmp_path / "token")], secure=False)) as served:
        assert await served.call(FIRST) == "acme"
        (tmp_path / "..new").symlink_to("2")
        (tmp_path / "..new").rename(tmp_path / "..data")
        assert [await served.call(token) for token in (FIRST, SECOND)] == ["UNAUTHENTICATED", "acme"]


# -- a new configuration -----------------------------------------------------------------------------------------------


async def test_only_removed_or_changed_identities_are_reported_at_once(tmp_path: Path) -> None:
    kept = rule("kept", token=write(tmp_path / "kept", FIRST))
    gone = rule("gone", token=write(tmp_path / "gone", SECOND))
    changed = rule("changed", ACME, OTHER, token=write(tmp_path / "changed", "third-token-0123456789"))
    access = CallerAccess([kept, gone, changed], secure=False)
    async with dock(access) as served:
        access.replace([kept, rule("changed", OTHER, token=tmp_path / "changed")])
        assert sorted(served.removed) == ["changed", "gone"]
        assert await served.call(FIRST) == "kept"
        assert await served.call(SECOND) == "UNAUTHENTICATED"
        assert await served.call("third-token-0123456789") == "PERMISSION_DENIED"


async def test_a_token_removed_before_a_reload_is_reported(tmp_path: Path) -> None:
    """Nobody may have looked at the file between its change and that of the configuration."""
    kept = rule("kept", token=write(tmp_path / "kept", FIRST, SECOND))
    access = CallerAccess([kept], secure=False)
    async with dock(access) as served:
        write(tmp_path / "kept", SECOND)
        access.replace([kept, rule("new", OTHER, token=write(tmp_path / "new", "third-token-0123456789"))])
        assert served.removed == ["kept"]


async def test_a_shut_dock_rejects_all_callers_until_it_has_rules_again(tmp_path: Path) -> None:
    access = CallerAccess(secure=False, for_engines=True)
    async with dock(access) as served:
        assert await served.call() == "local"
        access.shut()
        assert (served.removed, await served.call()) == (["local"], "UNAUTHENTICATED")
        access.replace([rule()])
        assert await served.call() == "local"


async def test_local_callers_are_reported_once_tokens_are_required(tmp_path: Path) -> None:
    access = CallerAccess(secure=False)
    async with dock(access) as served:
        access.replace([rule(token=write(tmp_path / "acme", FIRST))])
        assert served.removed == ["local"]
        assert [await served.call(token) for token in ("", FIRST)] == ["UNAUTHENTICATED", "acme"]


async def test_a_failing_listener_does_not_stop_the_others() -> None:
    access = CallerAccess([rule("a", ACME)], secure=False)
    access.on_removed(lambda _: 1 / 0)  # type: ignore[arg-type]  # raises before it returns anything
    async with dock(access) as served:
        access.replace([])
        assert served.removed == ["a", "local"]


async def test_a_driver_is_no_engine_and_an_engine_no_driver(tmp_path: Path) -> None:
    """A driver could otherwise have the machines of its kind made and deleted, and an engine take a driver's place."""
    rules = [
        rule("driver", ACME, token=write(tmp_path / "driver", FIRST)),
        engine("engine", ACME, token=write(tmp_path / "engine", SECOND)),
    ]
    async with dock(CallerAccess(rules, secure=False)) as served:
        assert [await served.call(token) for token in (FIRST, SECOND)] == ["driver", "PERMISSION_DENIED"]
        use = b"use AcmeMachineClass"
        assert [await served.call(token, request=use) for token in (FIRST, SECOND, "")] == [
            "PERMISSION_DENIED",
            "engine",
            "UNAUTHENTICATED",
        ]
        assert await served.call(SECOND, request=b"use OtherMachineClass") == "PERMISSION_DENIED"
        served.access.replace(rules[:1])
        assert served.removed == ["engine"]
        assert await served.call(SECOND, request=use) == "UNAUTHENTICATED"


@pytest.mark.parametrize(
    ("rules", "for_engines", "seen"),
    [
        ((), True, ["local", "local"]),
        ((), False, ["local", "PERMISSION_DENIED"]),
        ((rule("a"),), True, ["local", "PERMISSION_DENIED"]),
        ((rule("a", OTHER), engine("b")), False, ["PERMISSION_DENIED", "local"]),
        ((engine("b"),), False, ["local", "local"]),
    ],
    ids=["nobody named", "inside serve", "a driver named", "both named", "an engine named"],
)
async def test_on_this_host_alone_who_is_named_says_what_anybody_may_do(
    rules: Sequence[CallerRule], for_engines: bool, seen: list[str]
) -> None:
    async with dock(CallerAccess(rules, secure=False, for_engines=for_engines)) as served:
        assert [await served.call(request=request) for request in (b"acme", b"use AcmeMachineClass")] == seen


async def test_who_shows_a_token_is_not_taken_for_one_that_needs_none(bundle: Bundle, tmp_path: Path) -> None:
    """An engine on the host of a driver, with that one's certificate and a token of its own."""
    rules = [rule(names=["acme-driver"]), engine("engine", token=write(tmp_path / "engine", FIRST))]
    async with dock(CallerAccess(rules, secure=True), bundle) as served:
        assert await served.call(FIRST, request=b"use AcmeMachineClass") == "engine"
        assert await served.call() == "acme"


def test_the_rules_are_those_of_the_configuration(tmp_path: Path) -> None:
    write(tmp_path / "t", FIRST)
    write(tmp_path / "e", SECOND)
    entry = "{name: a, kinds: [{kind: A, apiVersion: v1}, {kind: B, apiVersion: v2}], tokenFile: t}"
    other = "{name: e, kind: B, apiVersion: v2, tokenFile: e}"
    config = parse(f"cluster: c\ndock: {{drivers: [{entry}], engines: [{other}]}}", tmp_path)
    assert config.dock is not None
    keys = (Key(kind="A", api_version="v1"), Key(kind="B", api_version="v2"))
    assert rules_of(config.dock) == (
        rule("a", *keys, token=tmp_path / "t"),
        engine("e", keys[1], token=tmp_path / "e"),
    )


def test_refusals_say_what_to_do() -> None:
    class Nobody:
        def identify(self, context: object) -> None:
            return None

    class Somebody:
        def identify(self, context: object) -> CallerIdentity:
            return CallerIdentity(name="acme")

    with pytest.raises(AuthenticationError, match="does not know this driver: it needs a certificate or a token"):
        admit(Nobody(), None)  # type: ignore[arg-type]
    with pytest.raises(PermissionDeniedError, match=r"acme may not register Acme.*dock\.drivers"):
        admit(Somebody(), None, ACME)  # type: ignore[arg-type]
    with pytest.raises(AuthenticationError, match=r"does not know this engine: .*dock\.engines"):
        admit_engine(Nobody(), None, ACME)  # type: ignore[arg-type]
    with pytest.raises(PermissionDeniedError, match=r"acme may not use .*Acme.*an entry to dock\.engines"):
        admit_engine(Somebody(), None, ACME)  # type: ignore[arg-type]


# -- mutual TLS --------------------------------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return create_bundle(tmp_path / "certs", hosts=["127.0.0.1"], client_name="acme-driver")


async def test_a_driver_is_known_by_a_name_of_its_certificate(bundle: Bundle) -> None:
    stranger = issue_client(bundle.directory, "somebody-else")
    other = issue_client(bundle.directory, "other-driver")
    rules = [rule("acme", names=["acme-driver"]), rule("other", OTHER, names=["x", "other-driver"])]
    async with dock(CallerAccess(rules, secure=True), bundle) as served:
        assert await served.call() == "acme"
        assert await served.call(cert=other) == "PERMISSION_DENIED"
        assert await served.call(cert=stranger) == "UNAUTHENTICATED"


async def test_with_names_and_a_token_both_are_asked_for(bundle: Bundle, tmp_path: Path) -> None:
    stranger = issue_client(bundle.directory, "somebody-else")
    rules = [
        rule("one", names=["acme-driver"], token=write(tmp_path / "one", FIRST)),
        rule("two", names=["acme-driver"], token=write(tmp_path / "two", SECOND)),
    ]
    async with dock(CallerAccess(rules, secure=True), bundle) as served:
        assert [await served.call(token) for token in (FIRST, SECOND, "")] == ["one", "two", "UNAUTHENTICATED"]
        assert await served.call(FIRST, cert=stranger) == "UNAUTHENTICATED"


async def test_with_tls_and_no_drivers_every_caller_is_unknown(bundle: Bundle) -> None:
    """Law 9: nothing is open by accident."""
    async with dock(CallerAccess(secure=True), bundle) as served:
        assert await served.call() == "UNAUTHENTICATED"


async def test_a_connected_driver_that_is_removed_is_a_stranger_at_its_next_word(bundle: Bundle) -> None:
    """The hub is told, and asks again who it is."""
    access = CallerAccess([rule(names=["acme-driver"])], secure=True)
    async with dock(access, bundle) as served, served.channel() as channel:
        stream: Any = channel.stream_stream("/test.Dock/Stay")(timeout=30)
        await stream.write(b"")
        assert await stream.read() == b"acme"
        access.replace([])
        assert served.removed == ["acme"]
        await stream.write(b"")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
