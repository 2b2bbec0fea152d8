"""Credentials at rest (law 9): encrypted, bound to their cluster, and nowhere to be seen."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest

from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store import schema
from cloudgraft.discovery.store import vault as store_credentials
from cloudgraft.discovery.store.vault import Sealed, Vault, VaultKey, new_key
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError
from tests.discovery.core.markets import Place, spec

_SECRET = "apiVersion: v1\nusers: [{user: {token: hunter2-hunter2}}]\n"
_KEY = base64.b64encode(bytes(32)).decode()


def _vault(*ids: str) -> Vault:
    return Vault([VaultKey(id=id_, secret=id_.encode().ljust(32, b"!")) for id_ in ids])


def test_what_is_sealed_is_unsealed_and_differs_each_time() -> None:
    vault = _vault("k1")
    first, second = vault.seal("a", _SECRET), vault.seal("a", _SECRET)
    assert vault.unseal("a", first) == vault.unseal("a", second) == _SECRET
    assert first.ciphertext != second.ciphertext
    assert b"hunter2" not in first.ciphertext


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    old = _vault("k1").seal("a", _SECRET)
    ring = _vault("k2", "k1")
    assert ring.unseal("a", old) == _SECRET
    assert ring.seal("a", _SECRET).key_id == "k2"


def test_a_ciphertext_that_was_moved_or_altered_does_not_decrypt_and_the_error_has_nothing_of_it() -> None:
    vault = _vault("k1", "k2")
    sealed = vault.seal("a", _SECRET)
    wrong = [
        ("b", sealed),
        ("a", Sealed(key_id="k2", ciphertext=sealed.ciphertext)),
        *[("a", Sealed(key_id="k1", ciphertext=text)) for text in (b"", b"\x01", sealed.ciphertext[:-1], b"x" * 60)],
        ("a", Sealed(key_id="k1", ciphertext=sealed.ciphertext[:20] + b"?" + sealed.ciphertext[21:])),
    ]
    for cluster, one in wrong:
        with pytest.raises(PreconditionError, match="do not decrypt with the key") as caught:
            vault.unseal(cluster, one)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_key_that_is_not_there_is_told_by_its_id() -> None:
    with pytest.raises(PreconditionError, match="encrypted with the key k1, which this server does not have"):
        _vault("k2").unseal("a", _vault("k1").seal("a", _SECRET))


def test_a_key_ring_is_read_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = new_key(), new_key()
    (tmp_path / "keys").write_text(f"# the newest first\n2026-02: {first}\n\n{second}\n")
    by_file = Vault.from_file(tmp_path / "keys")
    monkeypatch.setenv("KEYS", f"2026-02:{first},{second}")
    by_environment = Vault.from_environment("KEYS")
    assert by_file.current == "2026-02"
    assert by_environment.unseal("a", by_file.seal("a", _SECRET)) == _SECRET
    alone = Vault.parse(second, where="a test")
    assert by_file.unseal("a", alone.seal("a", _SECRET)) == _SECRET
    assert first not in repr(by_file)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no key"),
        ("# nothing", "there is no key"),
        ("not base64 at all", "key 1 of a test is not base64"),
        (base64.b64encode(b"short-secret").decode(), "key 1 of a test has 12 bytes, and not 32"),
        (f"a b:{_KEY}", "the id of key 1 of a test"),
        (f"a:{_KEY}\na:{_KEY}", "two keys of the ring have the same id"),
    ],
)
def test_a_key_ring_that_is_wrong_is_refused_without_repeating_it(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        Vault.parse(text, where="a test")
    assert text not in str(caught.value) or not text


def test_keys_that_cannot_be_read_are_told_by_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PreconditionError, match="missing"):
        Vault.from_file(tmp_path / "missing")
    (tmp_path / "raw").write_bytes(b"\xff" * 32)
    with pytest.raises(PreconditionError, match="write them in base64"):
        Vault.from_file(tmp_path / "raw")
    monkeypatch.delenv("KEYS", raising=False)
    with pytest.raises(PreconditionError, match="the environment variable KEYS holds no key"):
        Vault.from_environment("KEYS")


async def test_credentials_come_back_and_only_their_ciphertext_is_kept(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    discovery = await place.opened(vault=_vault("k1"))
    with pytest.raises(NotFoundError):
        await discovery.set_credentials("a", _SECRET)
    await discovery.put_cluster(spec("a"))
    with pytest.raises(NotFoundError, match="upload them first"):
        await discovery.credentials("a")
    await discovery.set_credentials("a", "the former")
    await discovery.set_credentials("a", _SECRET)
    assert await discovery.credentials("a") == _SECRET
    sealed = await discovery._store.read(lambda connection: store_credentials.read_credentials(connection, "a"))
    assert b"hunter2" not in sealed.ciphertext
    await discovery.delete_cluster("a")
    await discovery.put_cluster(spec("a"))
    with pytest.raises(NotFoundError):
        await discovery.credentials("a")
    assert "hunter2" not in caplog.text
    if isinstance(place.where, Path):
        assert all(b"hunter2" not in file.read_bytes() for file in place.where.parent.iterdir())


async def test_without_a_key_nothing_is_kept(discovery: Discovery) -> None:
    await discovery.put_cluster(spec("a"))
    with pytest.raises(PreconditionError, match="no key to encrypt credentials with"):
        await discovery.set_credentials("a", _SECRET)
    for wrong in ("", " \n", "a\0b", "\ud800"):
        with pytest.raises(InvalidArgumentError):
            await discovery.set_credentials("a", wrong)


async def test_a_rotation_that_was_interrupted_is_resumed_and_all_is_readable_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudgraft.discovery.service._ROTATE_AT_ONCE", 2)
    discovery = await place.opened(vault=_vault("k1"))
    ids = [f"c{number}" for number in range(7)]
    for id_ in ids:
        await discovery.put_cluster(spec(id_))
        await discovery.set_credentials(id_, f"secret of {id_}")
    other = await place.opened(vault=_vault("k2", "k1"))
    seals = 0
    seal = Vault.seal

    def interrupted(self: Vault, cluster: str, secret: str) -> Sealed:
        nonlocal seals
        seals += 1
        if seals == 4:
            raise RuntimeError("the power fails")
        return seal(self, cluster, secret)

    with monkeypatch.context() as patched:
        patched.setattr(Vault, "seal", interrupted)
        with pytest.raises(RuntimeError):
            await other.rotate()
    assert await _key_ids(other) == ["k2", "k2", "k1", "k1", "k1", "k1", "k1"]
    assert [await other.credentials(id_) for id_ in ids] == [f"secret of {id_}" for id_ in ids]
    assert (await other.rotate()).rotated == 5
    assert (await other.rotate()).rotated == 0
    discovery.use_vault(_vault("k2"))
    assert [await discovery.credentials(id_) for id_ in ids] == [f"secret of {id_}" for id_ in ids]


async def test_a_rotation_tells_what_it_cannot_read_and_does_the_rest(place: Place) -> None:
    discovery = await place.opened(vault=_vault("lost"))
    await discovery.put_cluster(spec("a"))
    await discovery.put_cluster(spec("b"))
    await discovery.set_credentials("a", "gone")
    discovery.use_vault(_vault("k1"))
    await discovery.set_credentials("b", "here")
    discovery.use_vault(_vault("k2", "k1"))
    found = await discovery.rotate()
    assert (found.rotated, found.unreadable) == (1, ["a"])
    assert await discovery.credentials("b") == "here"


async def _key_ids(discovery: Discovery) -> list[str]:
    table = schema.credentials
    statement = table.select().order_by(table.c.cluster_id)
    return await discovery._store.read(lambda connection: [row.key_id for row in connection.execute(statement)])
