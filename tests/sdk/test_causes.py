"""What is shown of an unexpected exception: its class, and the path of a file that cannot be used."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cloudgraft.sdk.common.causes import cause


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("the password is hunter2"), "ValueError"),
        (OSError("the password is hunter2"), "OSError"),
        (OSError(errno.ECONNREFUSED, "hunter2 was refused"), "ConnectionRefusedError"),
        (OSError(errno.EACCES, "hunter2", b"/etc/key"), "PermissionError: /etc/key: Permission denied"),
        (OSError(errno.EBADF, "hunter2", 7), "OSError: 7: Bad file descriptor"),
    ],
)
def test_only_the_class_and_the_path_are_shown(error: Exception, shown: str) -> None:
    assert cause(error) == shown


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere") as caught:
        (tmp_path / "nowhere").read_text()
    assert cause(caught.value) == f"FileNotFoundError: {tmp_path / 'nowhere'}: No such file or directory"
