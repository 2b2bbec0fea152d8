"""OpenStack's services: their tables, and their processes."""

from __future__ import annotations

import getpass
import grp
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from clouds.servers.openstack.configs import etc
from clouds.servers.openstack.neutron_ports import write_plugin
from clouds.servers.openstack.site import PASSWORD, REGION, Site
from e2e.processes import Program
from e2e.waiting import until

__all__ = ["Services", "tables"]

_APPLICATIONS: Final[Mapping[str, tuple[str, str]]] = {  # by what they listen for: configuration, module
    "identity": ("keystone", "keystone.wsgi.api"),
    "placement": ("placement", "placement.wsgi.api"),
    "image": ("glance", "glance.wsgi.api"),
    "network": ("neutron", "judge_neutron"),
    "compute": ("nova", "nova.wsgi.osapi_compute"),
}
_WORKERS: Final = ("nova-conductor", "nova-scheduler", "nova-compute")


def tables(site: Site) -> None:
    """Makes the tables of all services, two services at a time."""
    steps: list[Callable[[], None]] = [lambda: _nova(site), lambda: _neutron(site), lambda: _rest(site)]
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(step) for step in steps]:
            done.result()


def _rest(site: Site) -> None:
    keystone = f"--config-dir={etc(site, 'keystone')}"
    site.run("keystone-manage", keystone, "db_sync")
    group = grp.getgrgid(os.getgid()).gr_name
    whose = ("--keystone-user", getpass.getuser(), "--keystone-group", group)
    for kind in ("fernet_setup", "credential_setup"):
        site.run("keystone-manage", keystone, kind, *whose)
    where = [word for kind in ("public", "internal") for word in (f"--bootstrap-{kind}-url", site.auth_url)]
    region = ("--bootstrap-region-id", REGION)
    site.run("keystone-manage", keystone, "bootstrap", "--bootstrap-password", PASSWORD, *region, *where)
    site.run("placement-manage", f"--config-dir={etc(site, 'placement')}", "db", "sync")
    site.run("glance-manage", f"--config-dir={etc(site, 'glance')}", "db_sync")


def _neutron(site: Site) -> None:
    site.run("neutron-db-manage", "--config-file", etc(site, "neutron") / "neutron.conf", "upgrade", "heads")


def _nova(site: Site) -> None:
    nova = f"--config-dir={etc(site, 'nova')}"
    site.run("nova-manage", nova, "api_db", "sync")
    site.run("nova-manage", nova, "cell_v2", "map_cell0", "--database_connection", site.database("nova_cell0"))
    site.run("nova-manage", nova, "cell_v2", "create_cell", "--name", "cell1")
    site.run("nova-manage", nova, "db", "sync")


class Services:
    """The processes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._programs = {
            **{name: self._application(name) for name in _APPLICATIONS},
            **{name: self._worker(name) for name in _WORKERS},
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Stops what was started, whatever happens; all at once, since some take their time."""
        try:
            yield
        finally:
            with ThreadPoolExecutor(len(self._programs)) as pool:
                list(pool.map(lambda program: program.stop(), self._programs.values()))

    def start(self, *names: str) -> None:
        """Starts them; returns when they answer."""
        for name in names:
            self._programs[name].start()
        for name in names:
            if name in _APPLICATIONS:
                self._wait_for(name)

    def _wait_for(self, name: str) -> None:
        url, program = self._site.url(name), self._programs[name]
        until(lambda: _answers(url), f"{name} answers ({program.log})", seconds=180, check=program.check)

    def check(self) -> None:
        """Raises when one of them ended."""
        for program in self._programs.values():
            program.check()

    def _application(self, name: str) -> Program:
        site = self._site
        config, module = _APPLICATIONS[name]
        plugin = site.directory("plugin")
        if name == "network":
            write_plugin(plugin)
        environment = {f"OS_{config.upper()}_CONFIG_DIR": str(etc(site, config)), "PYTHONPATH": str(plugin)}
        if config in ("keystone", "neutron"):  # the others look for theirs by themselves, and for more than one
            environment[f"OS_{config.upper()}_CONFIG_FILES"] = f"{config}.conf"
        words = [
            "--http-socket", f"127.0.0.1:{site.ports[name]}", "--module", f"{module}:application", "--master",
            "--processes", "1", "--threads", "4", "--enable-threads", "--lazy-apps", "--need-app", "--die-on-term",
            "--no-orphans", "--buffer-size", "65535", "--http-chunked-input", "--virtualenv", str(site.programs),
            # It closes each connection after one answer, and must say so: clients would use it again.
            "--add-header", "Connection: close",
        ]  # fmt: skip
        return Program(name, [site.program("uwsgi"), *words], site.log(name), environment=environment)

    def _worker(self, name: str) -> Program:
        site = self._site
        return Program(name, [site.program(name), f"--config-dir={etc(site, 'nova')}"], site.log(name))


def _answers(url: str) -> bool:
    """Any answer will do: most want a login."""
    try:
        urllib.request.urlopen(url, timeout=20).close()
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
    return True
