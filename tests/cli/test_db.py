"""`cloudgraft db` from the outside: what it prints, what it writes, how it ends."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cloudgraft.app.journals import journal_from
from cloudgraft.cli.db import command
from cloudgraft.config import load
from cloudgraft.sdk.errors import AlreadyExistsError, NotFoundError
from cloudgraft.store.databases.address import PostgresAddress
from cloudgraft.store.journal import JournalLockedError
from cloudgraft.store.records import Change
from cloudgraft.store.schema import HEAD
from cloudgraft.store.sql import SqlJournal
from tests.postgres import PostgresServer, postgres
from tests.store.places import event, machine, machines

__all__ = ["postgres"]


def _run(*arguments: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], input=text)


def _json(*arguments: str | Path) -> Any:
    return json.loads(_run(*arguments, "-o", "json").stdout)


@pytest.fixture
def journal_file(tmp_path: Path) -> Path:
    async def fill(path: Path) -> None:
        journal = SqlJournal.sqlite(path)
        await journal.open()
        await journal.write(Change(machines=machines(5), events=[event()] * 3))
        await journal.close()

    asyncio.run(fill(tmp_path / "journal.db"))
    return tmp_path / "journal.db"


def test_check_tells_what_is_in_the_journal(journal_file: Path) -> None:
    result = _run("check", "--store", journal_file)
    assert result.exit_code == 0, result.output
    assert "machines running" in result.stdout
    assert result.stdout.endswith("It is sound.\n")
    told = _json("check", "--store", journal_file)
    assert (told["ok"], told["machines"]["running"], told["rows"]["events"]) == (True, 5, 3)
    assert told["problems"] == []


def test_check_ends_with_1_and_what_to_do_when_something_is_wrong(journal_file: Path) -> None:
    with sqlite3.connect(journal_file) as connection:
        connection.execute("UPDATE machines SET state = 'asleep' WHERE name = 'm-0001'")
    connection.close()
    result = _run("check", "--store", journal_file)
    assert result.exit_code == 1
    assert "error: machine m-0001: 'asleep' is not a valid State\n  fix: stop cloudgraft" in result.stdout
    assert result.stdout.endswith("It is NOT sound.\n")
    assert _run("check", "--store", journal_file, "-o", "json").exit_code == 1


def test_a_journal_is_named_in_exactly_one_way(journal_file: Path, tmp_path: Path) -> None:
    file = _config(tmp_path, "{path: journal.db}")
    for verb in ("check", "upgrade", "export"):
        assert _run(verb).exit_code == 2
        assert _run(verb, "--store", journal_file, "--config", file).exit_code == 2
    assert _run("check", "--config", tmp_path / "nowhere.yaml").exit_code == 2


def test_the_configuration_says_where_the_journal_is(journal_file: Path, tmp_path: Path) -> None:
    told = _json("check", "--config", _config(tmp_path, "{path: journal.db}"))
    assert (told["journal"], told["ok"]) == (str(journal_file), True)


def test_upgrade_makes_what_is_missing_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    assert _run("upgrade", "--store", path).stdout == f"{path} is now of schema {HEAD}; it was empty.\n"
    assert _run("upgrade", "--store", path).stdout == f"{path} is up to date (schema {HEAD}).\n"
    assert _json("check", "--store", path)["ok"]
    assert _json("upgrade", "--store", path) == {"journal": str(path), "before": HEAD, "after": HEAD}


def test_upgrade_and_import_are_refused_while_a_server_has_the_journal(journal_file: Path) -> None:
    lines = _run("export", "--store", journal_file).stdout

    async def meanwhile() -> list[Result]:
        journal = SqlJournal.sqlite(journal_file)
        await journal.open()
        try:
            return [_run("upgrade", "--store", journal_file), _run("import", "-", "--store", journal_file, text=lines)]
        finally:
            await journal.close()

    for result in asyncio.run(meanwhile()):
        assert isinstance(result.exception, JournalLockedError)


@pytest.mark.thorough
def test_an_export_is_imported_into_postgresql_and_back(
    journal_file: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    with postgres.borrowed() as url:
        _there_and_back(journal_file, tmp_path, url)


def _there_and_back(journal_file: Path, tmp_path: Path, url: str) -> None:
    file = tmp_path / "journal.jsonl"
    assert _run("export", "--store", journal_file, "--to", file).exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    result = _run("import", file, "--store", url)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Imported 8 rows into postgresql://")
    back = tmp_path / "back.db"
    again = _run("export", "--store", url).stdout
    assert again == file.read_text()
    result = CliRunner().invoke(command, ["import", "-", "--store", str(back), "-o", "json"], input=again)
    assert json.loads(result.stdout) == {"journal": str(back), "rows": 8}
    assert _json("check", "--store", back)["machines"]["running"] == 5


def test_an_export_overwrites_nothing_and_leaves_no_half_file(journal_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("precious")
    assert isinstance(_run("export", "--store", journal_file, "--to", target).exception, AlreadyExistsError)
    assert target.read_text() == "precious"
    result = _run("export", "--store", tmp_path / "nowhere.db", "--to", tmp_path / "other.jsonl")
    assert isinstance(result.exception, NotFoundError)
    assert not [path for path in tmp_path.iterdir() if "jsonl" in path.name and path != target]


async def test_the_configurations_journal_in_postgresql_comes_with_a_lease(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with postgres.borrowed() as url:
        await _leads(tmp_path, PostgresAddress.parse(url))


async def _leads(tmp_path: Path, address: PostgresAddress) -> None:
    store = f"{{postgresql: '{address.host}/{address.database}', user: postgres, leaseDuration: 7s}}"
    config = load(_config(tmp_path, store, "clusterId: abcdefghij\n"))
    journal, lease = journal_from(config)
    assert lease is not None
    assert lease.seconds == 7.0
    await journal.open()
    assert await lease.acquire() == 1
    assert (await journal.load()).cluster_id == "abcdefghij"
    await journal.write(Change(machines=[machine("m-1")]))
    await lease.release()
    await journal.close()
    assert _json("check", "--config", tmp_path / "cloudgraft.yaml")["machines"]["running"] == 1


async def test_the_configurations_journal_in_a_file_needs_no_lease(tmp_path: Path) -> None:
    journal, lease = journal_from(load(_config(tmp_path, "{path: journal.db}", "clusterId: abcdefghij\n")))
    assert lease is None
    await journal.open()
    assert (await journal.load()).cluster_id == "abcdefghij"
    await journal.close()


def _config(directory: Path, store: str, more: str = "") -> Path:
    file = directory / "cloudgraft.yaml"
    file.write_text(f"cluster: prod\n{more}providers: [{{type: memory}}]\nstore: {store}\n")
    return file


async def test_a_renamed_cluster_is_told_by_check_and_repair_shows_before_it_acts(tmp_path: Path) -> None:
    config = _config(tmp_path, "{path: journal.db}")
    journal, _ = journal_from(load(config))
    await journal.open()
    await journal.write(Change(machines=[machine("m-1"), machine("m-2")]))
    await journal.close()
    assert _json("check", "--config", config)["cluster"] == "prod"
    config.write_text(config.read_text().replace("cluster: prod", "cluster: other"))
    result = _run("check", "--config", config)
    assert result.exit_code == 1
    assert "is the journal of the cluster prod" in result.output
    with sqlite3.connect(tmp_path / "journal.db") as connection:
        connection.execute("UPDATE machines SET cloud = 'nowhere' WHERE name = 'm-2'")
    connection.close()
    result = _run("repair", "--store", tmp_path / "journal.db")
    assert "machines m-2: the row does not match its checksum\n  removed; then: every cloud is listed" in result.output
    assert "Nothing was changed." in result.output
    done = _json("repair", "--store", tmp_path / "journal.db", "--yes")
    assert (done["done"], len(done["findings"])) == (True, 1)
    assert _json("check", "--store", tmp_path / "journal.db")["machines"]["running"] == 1
    assert "is damaged" in _run("repair", "--store", tmp_path / "journal.db").output
