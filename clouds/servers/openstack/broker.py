"""RabbitMQ, by which Nova's parts speak to each other."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from clouds.servers.openstack.install import BROKER, program_at
from clouds.servers.openstack.site import Site
from e2e.processes import Program
from e2e.waiting import until

__all__ = ["broker"]


@contextmanager
def broker(site: Site) -> Iterator[None]:
    """Runs it, with a port mapper of its own: the one that Erlang starts by itself would stay behind."""
    home, ports = site.directory("broker"), site.ports
    (home / "plugins").write_text("[].", "utf-8")
    (home / "rabbitmq.conf").write_text("", "utf-8")
    epmd_environment = {"ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(ports["epmd"])}
    environment = {
        **epmd_environment,
        "HOME": str(home),
        "RUNNING_UNDER_SYSTEMD": "1",  # the script becomes the server, so that stopping the one stops the other
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_NODENAME": f"judge{ports['broker']}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(ports["broker"]),
        "RABBITMQ_DIST_PORT": str(ports["broker_peers"]),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    mapper = Program("epmd", [program_at("epmd") or "epmd"], site.log("epmd"), environment=epmd_environment)
    server = Program("rabbitmq", [BROKER], site.log("rabbitmq"), environment=environment)
    mapper.start()
    try:
        until(lambda: _answers(ports["epmd"]), "epmd is up", seconds=20, check=mapper.check)
        server.start()
        until(lambda: _answers(ports["broker"]), "RabbitMQ is up", seconds=120, check=server.check)
        yield
    finally:
        server.stop()
        mapper.stop()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
