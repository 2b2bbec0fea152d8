"""The parts of ``make e2e-certificates`` that need neither Go nor a cluster."""

from __future__ import annotations

import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cloudgraft.certs.issue import Validity, new_authority, peer_pair
from cloudgraft.certs.names import Host
from e2e.build import Recipe
from e2e.certificates.__main__ import main
from e2e.certificates.issued import are_settled, differences
from e2e.certificates.mounted_secret import mount

DAYS = Validity.days(3)


def test_files_of_a_mounted_secret_change_together_and_the_old_ones_go(tmp_path: Path) -> None:
    place = tmp_path / "tls"
    names = ("tls.crt", "tls.key", "ca.crt")
    mount(place, dict.fromkeys(names, b"0"))
    is_over = threading.Event()
    torn = []

    def read() -> None:
        while not is_over.is_set():
            try:
                behind = (place / "..data").resolve(strict=True)
                contents = {(behind / name).read_bytes() for name in names}
            except FileNotFoundError:  # it has just been replaced
                continue
            torn.extend([contents] if len(contents) > 1 else [])

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 200):
        mount(place, dict.fromkeys(names, str(number).encode()))
    is_over.set()
    reader.join()
    assert not torn
    assert {name: (place / name).read_bytes() for name in names} == dict.fromkeys(names, b"199")
    assert len(list(place.iterdir())) == len(names) + 2  # the files, the link, and the directory behind it


def test_a_certificate_is_compared_with_what_was_asked_for() -> None:
    hosts: list[Host] = ["cloudgraft.kube-system.svc", "localhost", ip_address("192.0.2.7")]
    made = peer_pair(new_authority(DAYS), "cloudgraft", hosts, ["server auth"], DAYS).certificate
    asked: dict[str, Any] = {
        "commonName": "cloudgraft",
        "dnsNames": ["localhost", "cloudgraft.kube-system.svc"],
        "ipAddresses": ["192.0.2.7"],
        "usages": ["digital signature", "server auth"],
        "duration": f"{(made.not_valid_after_utc - made.not_valid_before_utc).total_seconds():.0f}s",
    }
    assert list(differences(asked, made)) == []
    other = {"commonName": "other", "dnsNames": [], "ipAddresses": ["192.0.2.8"], "duration": "1h", "isCA": True}
    others = {**asked, **other, "usages": ["client auth"]}
    found = {line.split(":")[0] for line in differences(others, made)}
    assert found == {"DNS names", "addresses", "common name", "authority", "usages", "length"}


@pytest.mark.parametrize(
    ("conditions", "is_settled"),
    [
        ([("Ready", "True", 2)], True),
        ([("Ready", "True", 2), ("Issuing", "False", 2)], True),
        ([("Ready", "True", 2), ("Issuing", "True", 2)], False),
        ([("Ready", "True", 1)], False),  # as it was before a change
        ([("Ready", "False", 2)], False),
        ([], False),
    ],
)
def test_cert_manager_is_done_with_a_request_as_it_is_now(
    conditions: list[tuple[str, str, int]], is_settled: bool
) -> None:
    listed = [{"type": kind, "status": status, "observedGeneration": seen} for kind, status, seen in conditions]
    request = {"metadata": {"generation": 2}, "status": {"conditions": listed}}
    assert are_settled([request]) is is_settled
    assert not are_settled([])


def test_a_main_of_our_own_is_built_anew_when_it_changes(tmp_path: Path) -> None:
    source = tmp_path / "main.go"
    recipe = Recipe(key="some-v1", module="example.org/some", version="v1.0.0", programs={"some": "."}, source=source)
    source.write_text("package main\n")
    first = recipe.directory
    assert first == recipe.directory
    source.write_text("package main // changed\n")
    assert recipe.directory != first
    assert first.startswith("some-v1-")


def test_what_cannot_be_built_counts_as_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 3
    assert "there is no Go toolchain" in done.output
