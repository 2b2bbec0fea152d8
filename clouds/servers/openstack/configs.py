"""The configuration files of OpenStack's services: no more than what is needed on one machine."""

from __future__ import annotations

import configparser
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clouds.servers.openstack.site import PASSWORD, REGION, Site

__all__ = ["HOST", "PAGE", "etc", "write_configs"]

HOST: Final = "judge"
PAGE: Final = 4  # servers: so small that every list has several pages

Sections = Mapping[str, Mapping[str, object]]


def write_configs(site: Site) -> None:
    """All of them, each in a directory of its own below ``etc``."""
    _write(site, "keystone", _keystone(site))
    _write(site, "placement", _placement(site))
    _write(site, "glance", _glance(site))
    _write(site, "neutron", _neutron(site))
    _write(site, "nova", _nova(site))
    for name, paste in {"glance": "glance-api-paste.ini", "neutron": "api-paste.ini", "nova": "api-paste.ini"}.items():
        shutil.copy(site.programs / "etc" / name / paste, etc(site, name) / paste)
    # The fake hypervisor's node has this id after every start; without the file a second start is refused.
    identity = site.directory("nova") / "compute_id"
    identity.write_text(str(uuid.uuid5(uuid.NAMESPACE_DNS, HOST)), "utf-8")


def etc(site: Site, name: str) -> Path:
    """Where a service's configuration is."""
    return site.directory(f"etc/{name}")


def _write(site: Site, name: str, sections: Sections) -> None:
    parser = configparser.RawConfigParser()
    parser.read_dict({section: {key: str(value) for key, value in keys.items()} for section, keys in sections.items()})
    called = "glance-api.conf" if name == "glance" else f"{name}.conf"
    with (etc(site, name) / called).open("w", encoding="utf-8") as file:
        parser.write(file)


def _login(site: Site) -> dict[str, object]:
    return {
        "auth_url": site.auth_url,
        "auth_type": "password",
        "username": "admin",
        "password": PASSWORD,
        "user_domain_name": "Default",
        "project_name": "admin",
        "project_domain_name": "Default",
        "region_name": REGION,
    }


def _tokens(site: Site) -> dict[str, object]:
    return {**_login(site), "www_authenticate_uri": site.auth_url, "service_token_roles_required": "true"}


def _keystone(site: Site) -> Sections:
    keys = site.directory("keystone")
    return {
        "DEFAULT": {},
        "database": {"connection": site.database("keystone")},
        "token": {"provider": "fernet"},
        "fernet_tokens": {"key_repository": keys / "tokens"},
        "credential": {"key_repository": keys / "credentials"},
    }


def _placement(site: Site) -> Sections:
    return {
        "api": {"auth_strategy": "keystone"},
        "placement_database": {"connection": site.database("placement")},
        "keystone_authtoken": _tokens(site),
    }


def _glance(site: Site) -> Sections:
    return {
        "DEFAULT": {"enabled_backends": "files:file"},
        "database": {"connection": site.database("glance")},
        "keystone_authtoken": _tokens(site),
        "paste_deploy": {"flavor": "keystone", "config_file": etc(site, "glance") / "glance-api-paste.ini"},
        "glance_store": {"default_backend": "files"},
        "files": {"filesystem_store_datadir": site.directory("glance/images")},
        "os_glance_staging_store": {"filesystem_store_datadir": site.directory("glance/staging")},
        "os_glance_tasks_store": {"filesystem_store_datadir": site.directory("glance/tasks")},
        "oslo_concurrency": {"lock_path": site.directory("locks")},
    }


def _neutron(site: Site) -> Sections:
    return {
        "DEFAULT": {
            "core_plugin": "ml2",
            "service_plugins": "router",
            "transport_url": _broker(site),
            "state_path": site.directory("neutron"),
            "api_paste_config": etc(site, "neutron") / "api-paste.ini",
            "notify_nova_on_port_status_changes": "false",
            "notify_nova_on_port_data_changes": "false",
        },
        "database": {"connection": site.database("neutron")},
        "keystone_authtoken": _tokens(site),
        "ml2": {"type_drivers": "local", "tenant_network_types": "local", "mechanism_drivers": "judge"},
        "oslo_concurrency": {"lock_path": site.directory("locks")},
    }


def _nova(site: Site) -> Sections:
    login = _login(site)
    return {
        "DEFAULT": {
            "compute_driver": "fake.PredictableNodeUUIDDriver",
            # Its host has 8 GiB: room for three, while what a check before has deleted may not be gone yet.
            "ram_allocation_ratio": "100.0",
            "cpu_allocation_ratio": "100.0",
            "host": HOST,
            "my_ip": "127.0.0.1",
            "state_path": site.directory("nova"),
            "transport_url": _broker(site),
        },
        "api": {"max_limit": PAGE},
        "api_database": {"connection": site.database("nova_api")},
        "database": {"connection": site.database("nova")},
        "keystone_authtoken": _tokens(site),
        "placement": login,
        "glance": login,
        "neutron": login,
        "service_user": {**login, "send_service_user_token": "true"},
        "wsgi": {"api_paste_config": etc(site, "nova") / "api-paste.ini"},
        "oslo_concurrency": {"lock_path": site.directory("locks")},
        "vnc": {"enabled": "false"},
        "conductor": {"workers": 1},
        "scheduler": {"workers": 1},
    }


def _broker(site: Site) -> str:
    return f"rabbit://guest:guest@127.0.0.1:{site.ports['broker']}/"
