"""How the tests are run."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from cloudgraft.sdk import secrecy
from tests.cli.log_state import log_as_before
from tests.needs import NO_SHARED_MEMORY, shared_memory

# PostgreSQL is started as another user, which takes a real fork: gRPC would start its threads anew in the child, where
# their files are closed before PostgreSQL begins.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# A busy machine is no fault of what is tested, and a change is not refused for what chance finds beside it. To look for
# that: make test ARGS_TEST=--hypothesis-profile=exploring
settings.register_profile("exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False)
settings.register_profile("same", settings.get_profile("exploring"), derandomize=True)
settings.load_profile("same")

# A script's job in the background ignores Ctrl-C, and so do all programs that it starts. Those of tests must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all is collected: to look for garbage in what is imported took a third of that time

_LONGEST_NAME: Final = 200  # characters of a parameter


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: half of the time a test waits for a process that it started."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Puts the log back after each test: a command that a test runs in this process configures it for all."""
    with log_as_before():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker has all tests that need PostgreSQL: a server for each would take more time than they do."""
    for item in items:
        if "postgres" in item.name or "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("postgres"))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A megabyte of ``[`` is a good parameter and a bad name, which every worker would send and the terminal print."""
    if isinstance(val, str | bytes) and len(val) > _LONGEST_NAME:
        return f"{argname}-of-{len(val)}"
    return None


def pytest_collection_finish() -> None:
    """What was imported stays: looking for garbage in it again and again took a tenth of the time."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What this machine lacks that skips no test, beside pytest's own list of those that were skipped."""
    if shared_memory() is None:
        terminalreporter.write_line(f"MISSING {NO_SHARED_MEMORY}")


@pytest.fixture(autouse=True)
def _no_secrets_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test hides, a harmless word perhaps, must not be hidden in the next one."""
    monkeypatch.setattr(secrecy, "_hidden", secrecy._Hidden())
