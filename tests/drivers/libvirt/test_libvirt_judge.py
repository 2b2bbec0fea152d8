"""The judge of libvirt says what it needs, where it cannot be had."""

from __future__ import annotations

import sys

import pytest

from cloudgraft.sdk.common.extras import install_command
from clouds.judges.libvirt import JUDGE


def test_what_is_missing_is_told_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    monkeypatch.setattr("clouds.judges.libvirt.kernel", lambda: None)
    monkeypatch.setattr("clouds.judges.libvirt._program", lambda name: None)
    missing = JUDGE.missing()
    assert "libvirt-daemon" in missing
    assert install_command("libvirt") in missing
    assert "linux-image-cloud-amd64" in missing
