"""The driver for an HTTP API of the documentation, against the API with troubles that stands beside it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.sdk import (
    AuthenticationError,
    DeadlineError,
    InvalidArgumentError,
    MachineSpec,
    NotFoundError,
    PreconditionError,
    QuotaExceededError,
    UnavailableError,
)
from cloudgraft.sdk.secrecy import unhide

HERE = Path(__file__).resolve().parents[2] / "examples/http_api"
SPEC = MachineSpec(name="m-1", group="g", tags={"owner": "us"})


@pytest.fixture
def token(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "token"
    path.write_text("secret-token\n")
    yield path
    unhide("secret-token", "another-token")


@contextmanager
def cloud(*arguments: str) -> Iterator[str]:
    """The API as a program; gives its address."""
    argv = [sys.executable, str(HERE / "acme_cloud.py"), "--listen", "127.0.0.1:0", "--list-delay", "0", *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"serving on (\S+)\n", process.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            process.kill()


def driver(host: str, token: Path) -> Any:
    spec = importlib.util.spec_from_file_location("acme_driver", HERE / "acme_driver.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module.AcmeDriver(module.AcmeOptions(host=host, token_file=token))


def test_a_503_after_the_create_is_an_unknown_outcome(token: Path) -> None:
    with cloud("--lose", "1") as host:
        acme = driver(host, token)
        with pytest.raises(DeadlineError):
            acme.create(SPEC)
        assert [machine.name for machine in acme.list()] == ["m-1"]


def test_a_list_has_every_page_and_a_quota_has_its_class(token: Path) -> None:
    with cloud("--quota", "5", "--page", "2") as host:
        acme = driver(host, token)
        made = [acme.create(MachineSpec(name=f"m-{number}", group="g", tags={"a": "b"})) for number in range(5)]
        assert acme.list() == made
        with pytest.raises(QuotaExceededError, match="may have 5"):
            acme.create(SPEC)
        acme.delete(made[0])
        with pytest.raises(NotFoundError):
            acme.delete(made[0])
        assert acme.list() == made[1:]


def test_refusals_promise_that_nothing_was_done(token: Path) -> None:
    with cloud() as host:
        acme = driver(host, token)
        with pytest.raises(InvalidArgumentError):
            acme.create(MachineSpec(name="m", group="g", settings={"size": "huge"}))
        token.write_text("another-token")
        with pytest.raises(AuthenticationError) as refused:
            acme.create(SPEC)
        assert "another-token" not in str(refused.value)
        token.unlink()
        with pytest.raises(PreconditionError, match="tokenFile cannot be read"):
            acme.list()
        token.write_text("secret-token")
        assert acme.list() == []
    with pytest.raises(UnavailableError):  # nobody listens: nothing was sent
        acme.create(SPEC)
