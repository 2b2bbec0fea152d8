"""The CD with the user data, read back as a machine would."""

from __future__ import annotations

import io
import json

import pycdlib

from cloudgraft.drivers.common.seed_iso import LABEL, seed_iso


def files_of(image: bytes) -> dict[str, bytes]:
    """By the names of Rock Ridge, which Linux shows."""
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(image))
    try:
        found = {}
        for child in iso.list_children(rr_path="/"):
            if child.is_file():
                name = child.rock_ridge.name().decode()
                content = io.BytesIO()
                iso.get_file_from_iso_fp(content, rr_path=f"/{name}")
                found[name] = content.getvalue()
        return found
    finally:
        iso.close()


def test_cloud_init_finds_its_files_byte_for_byte() -> None:
    user_data = "#cloud-config\n# \u00fcber\r\n" + "x" * 100_000
    found = files_of(seed_iso(name="n-1", user_data=user_data))
    assert set(found) == {"user-data", "meta-data"}
    assert found["user-data"] == user_data.encode()
    assert json.loads(found["meta-data"]) == {"instance-id": "n-1", "local-hostname": "n-1"}


def test_a_network_configuration_is_added() -> None:
    config = {"version": 2, "ethernets": {"all": {"match": {"name": "e*"}, "dhcp4": True}}}
    found = files_of(seed_iso(name="n-1", user_data="", network_config=config))
    assert json.loads(found["network-config"]) == config
    assert found["user-data"] == b""


def test_it_is_known_by_its_label() -> None:
    image = seed_iso(name="n-1", user_data="a")
    descriptor = image[16 * 2048 : 17 * 2048]  # the first one, behind sixteen sectors that are not used
    assert descriptor[1:6] == b"CD001"
    assert descriptor[40:72].decode().rstrip() == LABEL
