"""What a script is told, and what its answers and exit codes mean."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from cloudgraft.drivers.exec.runner import EXIT_CODES
from cloudgraft.sdk.driver import MachineState, Price, Shape
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    NotFoundError,
    OutOfStockError,
    QuotaExceededError,
    Retry,
    UnavailableError,
    UnsupportedError,
)
from tests.drivers.exec.exec_scripts import CREATED, MACHINE, SPEC, exec_driver

ROOT = Path(__file__).resolve().parents[3]


async def test_create_is_told_everything_on_stdin_and_in_variables(tmp_path: Path) -> None:
    look = "cp -p $CLOUDGRAFT_USER_DATA_FILE user-data; ls -ld $(dirname $CLOUDGRAFT_USER_DATA_FILE) >dir"
    body = f"cat >stdin; env -0 >env; {look}; {CREATED}"
    machine = await exec_driver(tmp_path, create=body, env={"REGION": "north"}).create(SPEC)
    assert (machine.machine_id, machine.state) == ("vm-1", MachineState.PENDING)
    told = json.loads((tmp_path / "stdin").read_text())
    assert told["operation"] == "create"
    assert told["version"] == 1
    assert told["machine"] == {
        "name": "pool-1",
        "group": "pool",
        "settings": SPEC.settings,
        "tags": SPEC.tags,
        "userData": SPEC.user_data,
    }
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().split("\0") if "=" in line)
    assert env["CLOUDGRAFT_OPERATION"] == "create"
    assert env["CLOUDGRAFT_NAME"] == "pool-1"
    assert env["CLOUDGRAFT_GROUP"] == "pool"
    assert json.loads(env["CLOUDGRAFT_TAGS"]) == SPEC.tags
    settings = {name: value for name, value in env.items() if name.startswith("CLOUDGRAFT_SETTING_")}
    assert settings == {
        "CLOUDGRAFT_SETTING_SIZE": "small",
        "CLOUDGRAFT_SETTING_DISK_SIZE": "20",
        "CLOUDGRAFT_SETTING_SPOT": "true",
    }
    assert env["REGION"] == "north"
    assert SPEC.user_data not in (tmp_path / "env").read_text()
    assert (tmp_path / "user-data").read_text() == SPEC.user_data
    assert (tmp_path / "user-data").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "dir").read_text().startswith("drwx------")
    assert not os.access(env["CLOUDGRAFT_USER_DATA_FILE"], os.F_OK)


async def test_delete_is_told_which_machine(tmp_path: Path) -> None:
    body = 'cat >stdin; echo "$CLOUDGRAFT_MACHINE_ID $CLOUDGRAFT_PROVIDER_ID $CLOUDGRAFT_NAME" >env; echo deleted'
    await exec_driver(tmp_path, delete=body).delete(MACHINE)
    assert json.loads((tmp_path / "stdin").read_text())["machine"]["machineID"] == "vm-1"
    assert (tmp_path / "env").read_text() == "vm-1 lab://vm-1 pool-1\n"


async def test_shapes_and_prices_are_two_more_commands_or_not_supported(tmp_path: Path) -> None:
    shapes = """echo '{"shapes": [{"name": "s", "capacity": {"cpu": "2"}}]}'"""
    prices = """echo '{"prices": [{"shape": "s", "hourly": "0.1", "currency": "EUR"}]}'"""
    driver = exec_driver(tmp_path, shapes=shapes, prices=prices)
    assert [type(one) for one in (*await driver.shapes(), *await driver.prices())] == [Shape, Price]
    with pytest.raises(UnsupportedError, match="no command is configured for prices"):
        await exec_driver(tmp_path).prices()


def test_the_reference_has_every_exit_code() -> None:
    page = (ROOT / "docs/reference/exec-driver.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE))
    assert rows == {str(code): kind.slug for code, kind in EXIT_CODES.items()}


def test_no_exit_code_of_the_table_leaves_the_outcome_open() -> None:
    assert all(kind.retry is not Retry.SETTLE_FIRST for kind in EXIT_CODES.values())


async def test_exit_codes_say_which_error_and_stderr_says_why(tmp_path: Path) -> None:
    code = next(code for code, kind in EXIT_CODES.items() if kind is OutOfStockError)
    driver = exec_driver(tmp_path, create=f"echo 'trying' >&2; printf 'no more \\e[31mof\\e[0m m5\\n' >&2; exit {code}")
    with pytest.raises(OutOfStockError) as caught:
        await driver.create(SPEC)
    assert (
        str(caught.value)
        == f"create exited with {code} (out_of_stock); its last words: trying / no more  [31mof [0m m5"
    )


@pytest.mark.parametrize("end", ["exit 1", "exit 127", "kill -9 $$", "nosuchprogram"])
async def test_any_other_end_of_create_or_delete_leaves_the_outcome_open(tmp_path: Path, end: str) -> None:
    """Law 3: a list settles what became of it. A list that fails has done nothing."""
    driver = exec_driver(tmp_path, create=end, delete=end, list=end)
    with pytest.raises(DeadlineError, match="What it did is not known"):
        await driver.create(SPEC)
    with pytest.raises(DeadlineError, match="What it did is not known"):
        await driver.delete(MACHINE)
    with pytest.raises(UnavailableError, match=r"list (exited with|was ended by SIGKILL)"):
        await driver.list()


async def test_an_error_object_says_more_than_an_exit_code(tmp_path: Path) -> None:
    told = '{"error": {"code": "quota_exceeded", "message": "ten is enough", "retryAfter": "30s"}}'
    driver = exec_driver(tmp_path, create=f"echo '{told}'; exit 201", delete=f"echo '{told}'", list=f"echo '{told}'")
    with pytest.raises(QuotaExceededError, match=r"^create: ten is enough$") as caught:
        await driver.create(SPEC)
    assert caught.value.retry_after == 30
    for call in (driver.delete(MACHINE), driver.list()):
        with pytest.raises(
            InternalError, match="exited with 0, which says that it went well, and printed an error: ten"
        ):
            await call


async def test_garbage_with_an_exit_code_does_not_hide_the_code(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        await exec_driver(tmp_path, delete="echo '{ not json'; exit 201").delete(MACHINE)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("true", "what create printed is empty: it must be a JSON object"),
        ("echo vm-1 created", "what create printed is not JSON"),
        ("head -c 1000 /dev/urandom", "what create printed is not JSON"),
        ("""echo '{"machine": {"name": "pool-1"}}'""", "machine.machineID must be a text that is not empty"),
        ("""echo '{"machine": {"name": "pool-2", "machineID": "1"}}'""", "'pool-1' was to be created"),
    ],
)
async def test_success_without_the_machine_that_was_asked_for_leaves_the_outcome_open(
    tmp_path: Path, body: str, message: str
) -> None:
    with pytest.raises(InternalError, match=message) as caught:
        await exec_driver(tmp_path, create=body).create(SPEC)
    assert caught.value.retry is Retry.SETTLE_FIRST


async def test_a_line_of_user_data_that_a_script_shows_is_not_handed_on(tmp_path: Path) -> None:
    """Law 9: a script with `set -x` must not bring a bootstrap token into an event."""
    for body in (
        "cat $CLOUDGRAFT_USER_DATA_FILE >&2; exit 1",
        'cat $CLOUDGRAFT_USER_DATA_FILE | tr "\\n" " " >&2; exit 200',
        "cat $CLOUDGRAFT_USER_DATA_FILE",
        # So that the message begins in the middle of the token.
        "cat $CLOUDGRAFT_USER_DATA_FILE >&2; head -c 985 /dev/zero | tr '\\0' x >&2; exit 1",
    ):
        with pytest.raises(CloudgraftError) as caught:
            await exec_driver(tmp_path, create=body).create(SPEC)
        assert "0123456789abcdef" not in str(caught.value)
        assert "[user data]" in str(caught.value)


async def test_only_the_end_of_much_stderr_is_kept(tmp_path: Path) -> None:
    body = "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo ' at last' >&2; exit 206"
    with pytest.raises(OutOfStockError) as caught:
        await exec_driver(tmp_path, create=body).create(SPEC)
    assert str(caught.value).endswith("x at last")
    assert len(str(caught.value)) < 1200


async def test_a_secret_is_hidden_before_a_message_is_cut(tmp_path: Path) -> None:
    """Law 9: half of a secret is not known as such."""
    (tmp_path / "token").write_text("s3cret-" * 8)
    body = "echo \"$TOKEN\" >&2; head -c 970 /dev/zero | tr '\\0' x >&2; exit 1"
    with pytest.raises(DeadlineError) as caught:
        await exec_driver(tmp_path, create=body, env_files={"TOKEN": tmp_path / "token"}).create(SPEC)
    assert "xxx" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_long_list_is_read_without_holding_up_the_loop(tmp_path: Path) -> None:
    """Law 1: it is understood in a thread."""
    (tmp_path / "list.json").write_text(
        json.dumps({"machines": [{"name": f"m{n}", "machineID": str(n)} for n in range(3000)]})
    )
    assert len(await exec_driver(tmp_path, list="cat list.json").list()) == 3000
