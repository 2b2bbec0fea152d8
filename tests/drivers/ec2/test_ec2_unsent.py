"""Only a create that was certainly not sent may be reported as not done (law 3)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import DeadlineError, UnavailableError
from clouds.judges.ec2 import driver_for
from clouds.servers.aws_cloud import AwsCloud
from tests.drivers.slow_server import HEAD, slow_server

pytestmark = pytest.mark.xdist_group("ec2")  # moto is started once
NewSpec = Callable[..., MachineSpec]


def test_a_proxy_that_hangs_up_may_have_handed_a_create_on(
    cloud: AwsCloud, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore says of it that the proxy could not be reached."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        driver = driver_for({**cloud.account("proxied"), "endpointUrl": "http://127.0.0.1:9"})

        def hang_up() -> None:
            connection, _ = proxy.accept()
            with connection:
                connection.recv(65536)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(hang_up)
            with pytest.raises(DeadlineError, match="HTTPS_PROXY"):
                driver.create(new_spec())
    with pytest.raises(UnavailableError, match="Nothing was done"):
        driver.create(new_spec())


def test_nothing_is_ordered_after_slow_lookups(cloud: AwsCloud, new_spec: NewSpec) -> None:
    """The engine has given the call up by then, and may believe a list that has no instance."""
    driver, spec = driver_for(cloud.account("late")), new_spec()
    driver._preparation = -1.0  # as if a minute had passed
    with pytest.raises(UnavailableError, match="Nothing was done"):
        driver.create(spec)
    assert not cloud.instances(spec.name)


@pytest.mark.parametrize("begins", [b"HTTP/1.1 200 ", HEAD], ids=["headers", "body"])
def test_an_answer_that_trickles_is_given_up(cloud: AwsCloud, new_spec: NewSpec, begins: bytes) -> None:
    """A byte now and then would hold one of the driver's few threads for ever."""
    with slow_server(begins) as url:
        driver = driver_for({**cloud.account("slow"), "endpointUrl": url}, timeout=timedelta(seconds=0.3))
        with pytest.raises(DeadlineError):
            driver.create(new_spec())
