"""Gives another root filesystem this machine's way to packages: its names, authorities, proxy and pip's settings."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["let_install"]

_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_FILES: Final = (_AUTHORITIES, Path("/etc/hosts"), Path("/etc/pip.conf"), Path("/etc/resolv.conf"))
_VARIABLES: Final = re.compile(r"PIP_\w+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|(?i:(?:https?|all|no)_proxy)")


def let_install(root: Path, environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Copies what pip reads on this machine; returns the variables that pip needs beside it.

    A file that a variable names is copied too. A directory is not: without its variable pip does without it.
    """
    passed = {name: value for name, value in environment.items() if _VARIABLES.fullmatch(name)}
    directories = {name for name, value in passed.items() if value.startswith("/") and Path(value).is_dir()}
    named = {Path(value) for value in passed.values() if value.startswith("/") and Path(value).is_file()}
    for path in sorted({*_FILES, *named}):
        if path.is_file():
            copy = root / path.relative_to("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)  # it may be a link to somewhere outside
            shutil.copyfile(path, copy)
    return {name: value for name, value in passed.items() if name not in directories}
