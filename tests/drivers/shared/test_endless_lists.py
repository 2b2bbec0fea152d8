"""No driver reads a list without end: it is an error while it is read, and never a shorter list."""

from __future__ import annotations

import gzip
import itertools
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from pyVmomi import vim

from cloudgraft.drivers.common import requests_calls, urllib3_calls
from cloudgraft.drivers.common.requests_calls import limit_answers
from cloudgraft.drivers.hetzner import servers as hetzner
from cloudgraft.drivers.libcloud import adapter, cloudsigma
from cloudgraft.drivers.openstack import servers as openstack
from cloudgraft.drivers.vsphere import session as vsphere
from cloudgraft.sdk.errors import DeadlineError, InternalError
from cloudgraft.sdk.list_budget import ListBudget

PAGE = 100
_numbers = itertools.count(1)


def page() -> list[dict[str, Any]]:
    """Machines that nobody has shown before."""
    return [{"id": next(_numbers), "uuid": str(next(_numbers))} for _ in range(PAGE)]


def hetzner_list() -> object:
    def get(_path: str, _what: str, **query: Any) -> dict[str, Any]:
        about = {"next_page": query["page"] + 1, "total_entries": 1 << 40}
        return {"servers": page(), "meta": {"pagination": about}}

    api: Any = SimpleNamespace(get=get)
    return hetzner.listed(api, "/servers", "list", 1e18, lambda entry: entry)


def openstack_list() -> object:
    def get(*_: object, **__: object) -> dict[str, Any]:
        return {"servers": page(), "servers_links": [{"rel": "next"}]}

    call: Any = SimpleNamespace(get=get)
    return openstack.pages(call, "/servers/detail", "servers", "list", is_changing=True)


def vsphere_list() -> object:
    folder = vim.Folder("group-v1")  # type: ignore[no-untyped-call]  # pyVmomi has no types
    found = SimpleNamespace(obj="vm", propSet=(), missingSet=())
    session: Any = SimpleNamespace(read=lambda *_: SimpleNamespace(token="more", objects=[found] * PAGE))
    return vsphere.children(session, folder, vim.VirtualMachine, ["name"], PAGE)


def numbered_list() -> object:
    return adapter.counted(lambda *_: (page(), 1 << 40))


def cloudsigma_list() -> object:
    body = {"meta": {"total_count": 1 << 40}}
    request = lambda *_, **__: SimpleNamespace(object={**body, "objects": page()})  # noqa: E731 - one expression
    cloud = SimpleNamespace(connection=SimpleNamespace(request=request))
    return cloudsigma._listed(cloud, "/servers/detail/")


LISTS: Mapping[str, Callable[[], object]] = {
    "hetzner": hetzner_list,
    "openstack": openstack_list,
    "vsphere": vsphere_list,
    "libcloud, numbered": numbered_list,
    "libcloud, cloudsigma": cloudsigma_list,
}


@pytest.mark.parametrize("driver", LISTS)
def test_a_pager_without_end_is_an_error_while_it_is_read(driver: str) -> None:
    with ListBudget(machines=20 * PAGE).applied(), pytest.raises(InternalError, match="maxListMachines"):
        LISTS[driver]()


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server whose last answer goes on for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for index in itertools.count():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65536)
                        connection.sendall(answers[min(index, len(answers) - 1)])
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def answer(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def read_pages(url: str) -> None:
    """As an SDK does, which knows no end but the one that the cloud tells."""
    with requests.Session() as session:
        limit_answers(session)
        while True:
            assert session.get(url, timeout=20).content


def test_pages_of_an_sdk_count_for_the_list_that_they_are_read_for() -> None:
    with (
        answering(answer(b"x" * 100_000)) as url,
        ListBudget(size=1_000_000).applied(),
        pytest.raises(InternalError, match="maxListBytes"),
    ):
        read_pages(url)


def test_an_sdk_reads_no_more_for_a_list_that_was_given_up() -> None:
    budget = ListBudget()
    with answering(answer(b"x")) as url, budget.applied():
        budget.end()
        with pytest.raises(DeadlineError):
            read_pages(url)


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> int:
    """A largest answer that a test has in no time."""
    size = 1 << 20
    for module in (urllib3_calls, requests_calls):
        monkeypatch.setattr(module, "LARGEST_ANSWER", size)
    return size


def test_an_answer_of_an_sdk_has_a_largest_size(largest: int) -> None:
    with answering(answer(b"x" * (largest + 1))) as url, pytest.raises(InternalError, match="more than 1 MiB"):
        read_pages(url)


def test_a_small_answer_that_unpacks_to_a_large_one_is_refused(largest: int) -> None:
    packed = gzip.compress(bytes(largest + 1))
    with (
        answering(answer(packed, "Content-Encoding: gzip")) as url,
        pytest.raises(InternalError, match="more than 1 MiB, unpacked"),
    ):
        read_pages(url)
