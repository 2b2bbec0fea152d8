"""A connection that broke in an odd way, and creates that wait for each other; only where libvirt's library is."""

from __future__ import annotations

import dataclasses
import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from cloudgraft.drivers.libvirt import connection as connection_module
from cloudgraft.drivers.libvirt import driver as driver_module
from cloudgraft.drivers.libvirt.connection import Connection, mapped_errors
from cloudgraft.drivers.libvirt.domains import Image, Offer
from cloudgraft.drivers.libvirt.driver import LibvirtDriver
from cloudgraft.drivers.libvirt.options import LibvirtOptions, ShapeOptions
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InvalidArgumentError, UnavailableError

OPTIONS = LibvirtOptions(
    uri="qemu+unix:///system?socket=/nowhere/libvirt-sock",
    image="base",
    max_machines=1,
    shapes={"small": ShapeOptions(cpu=1, memory="1Gi")},
)


class Dead:
    """A connection that cannot even be asked whether it is alive."""

    def isAlive(self) -> bool:  # noqa: N802 - libvirt's name
        raise libvirt.libvirtError("invalid connection pointer")

    def close(self) -> None: ...


def test_a_connection_that_cannot_be_asked_is_opened_anew() -> None:
    connection = Connection(OPTIONS)
    connection._open = Dead()
    with pytest.raises(UnavailableError, match="connecting to"):
        connection.get()


@pytest.mark.parametrize(
    ("words", "raised"), [(b"bridge helper: \x8a", InvalidArgumentError), (b"\x8a", DeadlineError)]
)
def test_words_of_libvirt_that_are_no_utf_8_are_told_all_the_same(words: bytes, raised: type[CloudgraftError]) -> None:
    def stumble() -> None:
        try:
            words.decode()
        except UnicodeDecodeError as error:
            raise SystemError("virDomainCreate returned a result with an exception set") from error

    with pytest.raises(raised, match=r"starting a-1: .*\ufffd"), mapped_errors("starting a-1", is_change=True):
        stumble()


class Alive:
    def isAlive(self) -> bool:  # noqa: N802 - libvirt's name
        return True

    def setKeepAlive(self, _interval: int, _count: int) -> None: ...  # noqa: N802 - libvirt's name


def test_a_daemon_that_accepts_and_does_not_answer_holds_a_few_threads_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, asked = threading.Event(), [0]

    def opened(_address: str) -> Alive:
        asked[0] += 1
        answers.wait(60)
        return Alive()

    monkeypatch.setattr(libvirt, "open", opened)
    connection = Connection(dataclasses.replace(OPTIONS, connect_timeout=timedelta(milliseconds=5)))
    tries = 0
    while tries < 30:
        with pytest.raises(UnavailableError, match="no answer"):
            connection.get()
        tries += asked[0] >= 3
    assert asked[0] == 3
    answers.set()
    assert connection._attempt is not None
    assert connection._attempt.ended.wait(20)
    assert isinstance(connection.get(), Alive)


def test_a_host_that_went_without_a_word_three_times_is_tried_again_after_ten_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attempts that nobody ever ends must not keep a host away for long that is back."""
    over, asked, later = threading.Event(), [0], [0.0]

    def opened(_address: str) -> Alive:
        asked[0] += 1
        if asked[0] <= 3:
            over.wait(60)
        return Alive()

    monkeypatch.setattr(libvirt, "open", opened)
    monkeypatch.setattr(connection_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + later[0]))
    connection = Connection(dataclasses.replace(OPTIONS, connect_timeout=timedelta(milliseconds=5)))
    try:
        while asked[0] < 3:
            with pytest.raises(UnavailableError, match="no answer"):
                connection.get()
        later[0] = 540.0
        with pytest.raises(UnavailableError, match="no answer"):
            connection.get()
        assert asked[0] == 3
        later[0] = 601.0
        connection._options = OPTIONS  # which gives an answer its time
        assert isinstance(connection.get(), Alive)
    finally:
        over.set()


class Slow:
    """A host that does not answer how many machines it has."""

    def __init__(self) -> None:
        self.asked, self.answer = threading.Event(), threading.Event()

    def domains(self) -> list[Any]:
        self.asked.set()
        self.answer.wait(20)
        raise UnavailableError("it was switched off")

    def find(self, _id: str) -> None: ...

    def image(self, _name: str) -> tuple[None, Image]:
        return None, Image(path="/vms/base", format="raw", capacity=1)

    def check_networks(self, _networks: object) -> None: ...

    def offer(self) -> Offer:
        return Offer(arch="x86_64", types=frozenset())


def test_a_create_does_not_wait_for_ever_for_another_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_LONGEST_TURN", timedelta(milliseconds=50))
    made, host = LibvirtDriver(OPTIONS), Slow()
    made._host = host  # type: ignore[assignment]  # as far as it is asked
    ended: list[CloudgraftError] = []

    def first() -> None:
        try:
            made.create(MachineSpec(name="one", group="g", settings={"shape": "small"}))
        except CloudgraftError as error:
            ended.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    assert host.asked.wait(20)
    with pytest.raises(UnavailableError, match="room of the host"):
        made.create(MachineSpec(name="two", group="g", settings={"shape": "small"}))
    host.answer.set()
    thread.join(20)
    assert [error.message for error in ended] == ["it was switched off"]
