"""What the fake has on offer: a few locations, server types and images, and the things of one project."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["FIREWALLS", "IMAGES", "LOCATIONS", "NETWORKS", "PLACEMENT_GROUPS", "PRICING", "SERVER_TYPES", "SSH_KEYS"]

Json = dict[str, Any]
_BORN: Final = "2026-01-05T08:00:00Z"
_TERABYTE: Final = 1 << 40


def _location(number: int, name: str, city: str, country: str, zone: str) -> Json:
    return {
        "id": number,
        "name": name,
        "description": f"{city} DC Park {number}",
        "country": country,
        "city": city,
        "latitude": 50.0 + number,
        "longitude": 12.0 + number,
        "network_zone": zone,
    }


LOCATIONS: Final = [
    _location(1, "fsn1", "Falkenstein", "DE", "eu-central"),
    _location(2, "nbg1", "Nuremberg", "DE", "eu-central"),
    _location(3, "hel1", "Helsinki", "FI", "eu-central"),
    _location(4, "ash", "Ashburn, VA", "US", "us-east"),
]


def _price(net: str) -> Json:
    return {"net": net, "gross": f"{float(net) * 1.19:.10f}"}


def _place(name: str, *, gone: bool) -> Json:
    number = next(place["id"] for place in LOCATIONS if place["name"] == name)
    end = {"announced": "2025-01-01T00:00:00Z", "unavailable_after": "2025-06-01T00:00:00Z"}
    return {
        "id": number,
        "name": name,
        "deprecation": end if gone else None,
        "available": not gone,
        "recommended": not gone,
    }


def _type(number: int, name: str, size: tuple[int, float, int], hourly: dict[str, str], **more: Any) -> Json:
    cores, memory, disk = size
    gone = bool(more.get("gone"))
    return {
        "id": number,
        "name": name,
        "description": name.upper(),
        "category": "Shared vCPU",
        "cores": cores,
        "memory": memory,
        "disk": disk,
        "storage_type": "local",
        "cpu_type": more.get("cpu_type", "shared"),
        "architecture": more.get("architecture", "x86"),
        "deprecated": gone,
        "deprecation": None,
        "locations": [_place(place, gone=gone) for place in hourly],
        "prices": [
            {
                "location": place,
                "price_hourly": _price(net),
                "price_monthly": _price(f"{float(net) * 624:.10f}"),
                "included_traffic": 20 * _TERABYTE,
                "price_per_tb_traffic": _price("1.0000000000"),
            }
            for place, net in hourly.items()
        ],
    }


_EUROPE: Final = ("fsn1", "nbg1", "hel1")

SERVER_TYPES: Final = [
    _type(1, "cx11", (1, 2.0, 20), dict.fromkeys(_EUROPE, "0.0050000000"), gone=True),
    _type(22, "cpx11", (2, 2.0, 40), dict.fromkeys((*_EUROPE, "ash"), "0.0070000000") | {"ash": "0.0081000000"}),
    _type(45, "cax11", (2, 4.0, 40), dict.fromkeys(_EUROPE, "0.0063000000"), architecture="arm"),
    _type(96, "ccx13", (2, 8.0, 80), dict.fromkeys(_EUROPE, "0.0200000000"), cpu_type="dedicated"),
    _type(114, "cx23", (2, 4.0, 40), dict.fromkeys(_EUROPE, "0.0056000000")),
]


def _image(number: int, architecture: str, **more: Any) -> Json:
    return {
        "id": number,
        "type": "system",
        "status": "available",
        "name": "ubuntu-24.04",
        "description": "Ubuntu 24.04",
        "image_size": None,
        "disk_size": 5,
        "created": _BORN,
        "created_from": None,
        "bound_to": None,
        "os_flavor": "ubuntu",
        "os_version": "24.04",
        "architecture": architecture,
        "rapid_deploy": True,
        "protection": {"delete": False},
        "deprecated": None,
        "deprecation": None,
        "deleted": None,
        "labels": {},
        **more,
    }


IMAGES: Final = [
    _image(161547269, "x86"),
    _image(161547270, "arm"),
    _image(200000001, "x86", type="snapshot", name=None, description="workers", image_size=1.5, rapid_deploy=False),
]

NETWORKS: Final = [
    {
        "id": 4711,
        "name": "nodes",
        "created": _BORN,
        "ip_range": "10.0.0.0/16",
        "subnets": [
            {"type": "cloud", "ip_range": "10.0.1.0/24", "network_zone": "eu-central", "gateway": "10.0.0.1"},
        ],
        "routes": [],
        "servers": [],
        "load_balancers": [],
        "protection": {"delete": False},
        "labels": {},
        "expose_routes_to_vswitch": False,
    }
]

FIREWALLS: Final = [{"id": 38, "name": "nodes", "created": _BORN, "labels": {}, "rules": [], "applied_to": []}]

PLACEMENT_GROUPS: Final = [
    {"id": 897, "name": "spread", "created": _BORN, "labels": {}, "type": "spread", "servers": []},
]

SSH_KEYS: Final = [
    {
        "id": 2323,
        "name": "admin",
        "created": _BORN,
        "labels": {},
        "fingerprint": "b7:2f:30:a0:2f:6c:58:6c:21:04:58:61:ba:06:3b:2f",
        "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI example",
    }
]

PRICING: Final[Json] = {
    "currency": "EUR",
    "vat_rate": "19.00",
    "server_types": [{"id": kind["id"], "name": kind["name"], "prices": kind["prices"]} for kind in SERVER_TYPES],
    "image": {"price_per_gb_month": _price("0.0110000000")},
    "volume": {"price_per_gb_month": _price("0.0440000000")},
    "server_backup": {"percentage": "20.00"},
    "floating_ip": {"price_monthly": _price("3.0000000000")},
    "floating_ips": [],
    "load_balancer_types": [],
    "primary_ips": [],
}
