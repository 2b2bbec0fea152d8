from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.certs.defaults import DEFAULT_HOSTS
from cloudgraft.drivers.http.driver import HttpDriver
from cloudgraft.drivers.http.options import Options


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """An authority, a server on this host and a client."""
    return create_bundle(tmp_path_factory.mktemp("certs") / "own", hosts=DEFAULT_HOSTS)


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The same from an authority that nobody knows."""
    return create_bundle(tmp_path_factory.mktemp("certs") / "stranger", hosts=DEFAULT_HOSTS)


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Callable[[Options], HttpDriver]]:
    """Makes drivers that are started, and closed with the test."""
    made: list[HttpDriver] = []

    def start(options: Options) -> HttpDriver:
        driver = HttpDriver(options)
        begin = driver.start()
        with pytest.raises(StopIteration):  # it waits for nothing
            begin.send(None)
        made.append(driver)
        return driver

    yield start
    for driver in made:
        await driver.close()
