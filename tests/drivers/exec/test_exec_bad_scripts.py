"""Scripts that hang, fork, flood, are missing or die: each gets a clear error, and nothing of them is left."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import tempfile
import textwrap
import uuid
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.drivers.exec.driver import ExecDriver
from cloudgraft.drivers.exec.options import ExecOptions, Timeouts
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, PreconditionError, UnavailableError
from tests.conditions import until
from tests.drivers.exec.exec_scripts import (
    CREATED,
    LIST_NONE,
    SPEC,
    alive_with,
    exec_driver,
    names,
    nothing_left,
    script,
)

ROOT = Path(__file__).resolve().parents[3]
SHORT = Timeouts(create=timedelta(seconds=1))
SOON = timedelta(seconds=0.2)
STUBBORN = "trap '' TERM; sleep 300 & (trap '' TERM; setsid sleep 300) & while :; do sleep 300; done"


@pytest.mark.parametrize("body", ["exec sleep 300", STUBBORN], ids=["meek", "stubborn"])
async def test_a_script_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, body: str) -> None:
    driver = exec_driver(tmp_path, create=body, timeouts=SHORT, grace=SOON)
    async with nothing_left(tmp_path):
        with pytest.raises(DeadlineError, match=r"it did not end in time\. What it did is not known"):
            await driver.create(SPEC)


@pytest.mark.parametrize("leave", ["sleep 300 &", "setsid sleep 300 >/dev/null 2>&1 &", "(setsid nohup sleep 300 &) &"])
async def test_what_a_script_leaves_running_is_ended_and_its_answer_stands(tmp_path: Path, leave: str) -> None:
    driver = exec_driver(tmp_path, create=f"{leave}\n{CREATED}")
    async with nothing_left(tmp_path):
        assert (await driver.create(SPEC)).machine_id == "vm-1"


async def test_a_script_that_floods_is_ended(tmp_path: Path) -> None:
    driver = exec_driver(tmp_path, list="head -c 100000000 /dev/zero", create="cat /dev/zero")
    async with nothing_left(tmp_path):
        with pytest.raises(
            UnavailableError, match=r"was stopped: it printed too much.*Print one JSON object to stdout"
        ):
            await driver.list()
        with pytest.raises(DeadlineError, match=r"it printed too much. What it did is not known"):
            await driver.create(SPEC)


async def test_a_script_need_not_read_its_input(tmp_path: Path) -> None:
    large = {"text": "x" * 1_000_000}
    async with nothing_left(tmp_path):
        spec = MachineSpec(name="pool-1", group="pool", settings={"large": large})
        assert (await exec_driver(tmp_path, create=f"exec <&-; {CREATED}").create(spec)).machine_id == "vm-1"


async def test_a_command_that_is_missing_is_told_at_the_start_and_at_every_call(tmp_path: Path) -> None:
    missing = exec_driver(tmp_path, list=["./nosuch.sh"])
    with pytest.raises(PreconditionError, match=f"list: there is no file {tmp_path}/nosuch.sh"):
        await missing.start()
    with pytest.raises(UnavailableError, match=r"list cannot be run: .*No such file or directory. Nothing was done"):
        await missing.list()
    with pytest.raises(PreconditionError, match="list: there is no program 'nosuch-program' in PATH"):
        await exec_driver(tmp_path, list=["nosuch-program"]).start()
    elsewhere = exec_driver(tmp_path, working_directory=tmp_path / "nowhere")
    with pytest.raises(PreconditionError, match="workingDirectory: there is no directory"):
        await elsewhere.start()
    with pytest.raises(UnavailableError, match="Nothing was done"):
        await elsewhere.list()


async def test_a_file_that_is_no_program_is_told_with_what_to_do(tmp_path: Path) -> None:
    plain = script(tmp_path, LIST_NONE, "plain.sh")
    plain.chmod(0o644)
    driver = exec_driver(tmp_path, list=["./plain.sh"])
    with pytest.raises(PreconditionError, match=r"cannot be executed; make it executable: chmod \+x"):
        await driver.start()
    with pytest.raises(UnavailableError, match=r"make it executable: chmod \+x ./plain.sh"):
        await driver.list()
    plain.chmod(0o755)
    plain.write_text("#!/no/such/interpreter\n")
    with pytest.raises(UnavailableError, match=r"the program in its first line .* is not"):
        await driver.list()
    plain.write_bytes(b"\x7fELF nonsense")
    with pytest.raises(UnavailableError, match="is no program: a script needs a first line"):
        await driver.list()
    plain.write_text(f"#!{tmp_path}\n")  # a directory: that it is executable is not what is missing
    with pytest.raises(UnavailableError, match=r"Permission denied; is its file system mounted noexec, or its first"):
        await driver.list()


async def test_a_create_that_is_cancelled_ends_with_the_whole_group(tmp_path: Path) -> None:
    marker = f"MARK={uuid.uuid4()}"
    body = f"export {marker}; touch begun; sleep 300 & setsid sleep 300 & sleep 300; touch made"
    driver = exec_driver(tmp_path, create=body)
    async with nothing_left(tmp_path):
        call = asyncio.create_task(driver.create(SPEC))
        await until((tmp_path / "begun").exists)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not alive_with(marker)
        assert not (tmp_path / "made").exists()


async def test_close_ends_what_runs_and_start_opens_again(tmp_path: Path) -> None:
    driver = exec_driver(tmp_path, create="echo working >&2; touch begun; exec sleep 300")
    async with nothing_left(tmp_path):
        call = asyncio.create_task(driver.create(SPEC))
        await until((tmp_path / "begun").exists)
        await driver.close()
        with pytest.raises(
            DeadlineError, match=r"cloudgraft is stopping\. What it did is not known; its last words: working"
        ):
            await call
        with pytest.raises(UnavailableError, match="the driver is closed"):
            await driver.list()
        await driver.start()
        assert await driver.list() == []


async def test_so_many_scripts_run_at_a_time_and_a_list_never_waits_for_them(tmp_path: Path) -> None:
    body = f'touch "run-$CLOUDGRAFT_NAME"; while [ ! -e go ]; do sleep 0.01; done; rm "run-$CLOUDGRAFT_NAME"; {CREATED}'
    driver = exec_driver(tmp_path, create=body, concurrency=2)
    specs = [MachineSpec(name=f"pool-{number}", group="pool") for number in range(4)]
    calls = [asyncio.create_task(driver.create(spec)) for spec in specs]
    await until(lambda: len(names(tmp_path, "run-*")) == 2)
    assert await driver.list() == []
    assert len(names(tmp_path, "run-*")) == 2
    (tmp_path / "go").touch()
    assert [machine.name for machine in await asyncio.gather(*calls)] == [spec.name for spec in specs]


async def test_a_keeper_that_is_killed_takes_its_script_along(tmp_path: Path) -> None:
    driver = exec_driver(tmp_path, create="echo $PPID >keeper; exec sleep 300")
    async with nothing_left(tmp_path):
        call = asyncio.create_task(driver.create(SPEC))
        await until(lambda: (tmp_path / "keeper").exists() and (tmp_path / "keeper").read_text() != "")
        os.kill(int((tmp_path / "keeper").read_text()), signal.SIGKILL)
        with pytest.raises(DeadlineError, match=r"vanished together with its keeper. What it did is not known"):
            await call


async def test_a_killed_cloudgraft_leaves_neither_scripts_nor_user_data(tmp_path: Path) -> None:
    marker = f"MARK={uuid.uuid4()}"
    create = script(
        tmp_path, f"export {marker}; setsid sleep 300 & dirname $CLOUDGRAFT_USER_DATA_FILE >d; mv d scratch; sleep 300"
    )
    program = textwrap.dedent(f"""
        import asyncio
        from pathlib import Path
        from cloudgraft.drivers.exec.driver import ExecDriver
        from cloudgraft.drivers.exec.options import ExecOptions
        from tests.drivers.exec.exec_scripts import SPEC
        options = ExecOptions(create=[{str(create)!r}], delete=["true"], list=["true"], working_directory=Path("."))
        asyncio.run(ExecDriver(options).create(SPEC))
    """)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "TMPDIR": str(tmp_path)}
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=tmp_path, env=env)
    await until((tmp_path / "scratch").exists, what="the script runs")
    host.kill()
    await host.wait()
    scratch = Path((tmp_path / "scratch").read_text().strip())
    await until(lambda: not alive_with(marker), what="the script and what it started are gone")
    await until(lambda: not scratch.exists(), what="the user data is gone")


async def test_secrets_from_files_are_read_anew_for_each_call_and_shown_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("correct-horse-1\n")
    body = 'cat /proc/$PPID/cmdline >>argv; printf %s "$LAB_TOKEN" >>seen; echo "token is $LAB_TOKEN" >&2; exit 208'
    driver = exec_driver(tmp_path, list=body, env_files={"LAB_TOKEN": secret})
    messages = []
    for value in ("correct-horse-1", "battery-staple-2"):
        secret.write_text(f"{value}\n")
        with pytest.raises(CloudgraftError) as caught:
            await driver.list()
        messages.append(str(caught.value))
    assert (tmp_path / "seen").read_text() == "correct-horse-1battery-staple-2"
    assert all("token is [secret]" in message for message in messages)
    assert b"correct-horse" not in (tmp_path / "argv").read_bytes()
    secret.unlink()
    with pytest.raises(
        UnavailableError, match=r"the file for LAB_TOKEN cannot be read: No such file.*nothing was done"
    ):
        await driver.list()
    os.mkfifo(secret)  # must not hold us up
    with pytest.raises(UnavailableError, match="the file for LAB_TOKEN is too large, or no file with text"):
        await driver.list()
    assert "LAB_TOKEN" in repr(driver._options)


async def test_user_data_of_a_day_when_everything_was_killed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 9: when the keeper is killed too, say by the kernel for want of memory, nobody is left to do it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("cloudgraft-exec-old", "cloudgraft-exec-new", "somebodys"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "CLOUDGRAFT_USER_DATA_FILE").write_text("token")
    for name in ("cloudgraft-exec-old", "somebodys"):
        os.utime(tmp_path / name, (0, 0))
    await exec_driver(tmp_path).start()
    assert [name for name in names(tmp_path, "*") if not name.endswith(".sh")] == ["cloudgraft-exec-new", "somebodys"]


async def test_without_room_for_another_open_file_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", full)
    with pytest.raises(UnavailableError, match=r"create cannot be run: Too many open files. Nothing was done"):
        await exec_driver(tmp_path).create(SPEC)


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    commands = {"create": "a", "delete": "b", "list": "c"}
    for wrong, message in (
        ({"create": ""}, "create: is empty"),
        ({"list": ["", "x"]}, "list: is empty"),
        ({"delete": "rm 'x"}, "delete: cannot be split into words: No closing quotation"),
        ({"list": "labctl list | jq ."}, r"list: has '\|', which only a shell understands.*write it like \[bash, -c"),
        ({"env": {"CLOUDGRAFT_NAME": "x"}}, "names that begin with CLOUDGRAFT_ are set by cloudgraft itself"),
        ({"env": {"A B": "x"}}, "no name for an environment variable"),
        ({"env": {"A": "x"}, "env_files": {"A": tmp_path}}, "env.A: is in envFiles too"),
        ({"concurrency": 0}, "concurrency: must be from 1 to 1000"),
        ({"grace": timedelta(hours=1)}, "grace: must be from 0s to 1m"),
        ({"list_delay": timedelta(seconds=-1)}, "listDelay: must not be negative"),
        ({"providerID": "lab://x"}, "providerID: .* must hold {name}"),
        ({"user_data_limit": -1}, "userDataLimit: must not be negative"),
    ):
        with pytest.raises(CloudgraftError, match=message):
            ExecDriver(ExecOptions(**{**commands, **wrong}))  # type: ignore[arg-type]  # wrong on purpose


async def test_a_script_that_floods_stderr_is_ended(tmp_path: Path) -> None:
    """Until its time is over it would keep a core busy, and the event loop with it."""
    driver = exec_driver(tmp_path, list="cat /dev/zero >&2")
    async with nothing_left(tmp_path):
        with pytest.raises(UnavailableError, match="it printed too much"):
            await driver.list()
