"""What an author may import, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cloudgraft.sdk
import cloudgraft.server
import cloudgraft.testing


@pytest.mark.parametrize("module", [cloudgraft.sdk, cloudgraft.server, cloudgraft.testing])
def test_exports_are_sorted_and_exist(module: object) -> None:
    names: list[str] = module.__all__  # type: ignore[attr-defined]  # all three have it
    assert names == sorted(names)
    assert all(hasattr(module, name) for name in names)


def test_the_sdk_imports_nothing_but_the_standard_library() -> None:
    program = (
        "import sys, cloudgraft.sdk\n"
        "print([m for m in sys.modules if m.split('.')[0] in {'grpc', 'google', 'pydantic', 'yaml', 'click', 'rich'}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
