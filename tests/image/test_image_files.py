"""The search for what must not be in an image finds it."""

from __future__ import annotations

from pathlib import Path

from tests.image.files import SURPRISES, surprises


def _file(path: Path, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(mode)


def test_every_kind_of_surprise_is_found(tmp_path: Path) -> None:
    _file(tmp_path / "usr/bin/x86_64-linux-gnu-gcc-14", 0o755)
    _file(tmp_path / "usr/bin/su", 0o4755)
    _file(tmp_path / "root/.cache/pip/wheel", 0o644)
    _file(tmp_path / "etc/shared", 0o666)
    found = sorted(surprises(tmp_path))
    assert found == [
        ("a cache", "/root/.cache"),
        ("a compiler", "/usr/bin/x86_64-linux-gnu-gcc-14"),
        ("anybody writes to it", "/etc/shared"),
        ("gains rights", "/usr/bin/su"),
    ]
    assert {kind for kind, _ in found} == set(SURPRISES)


def test_an_ordinary_system_has_none(tmp_path: Path) -> None:
    _file(tmp_path / "usr/bin/gccgo-is-documented", 0o755)
    _file(tmp_path / "usr/bin/python3", 0o755)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    (tmp_path / "usr/bin/sh").symlink_to("python3")
    assert list(surprises(tmp_path)) == []
