"""Divides the process's file descriptors, so that no listener can take those of another."""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger("cloudgraft.net")

_ENOUGH: Final = 65_536  # descriptors; some libraries iterate over all possible ones
# A process has at most four listeners (calls, drivers, operators, metrics). The other third is for the journal, the
# clouds, plugins and the Kubernetes API.
_SHARE: Final = 6
_FEWEST: Final = 8


def raise_descriptor_limit() -> int:
    """Raises the process's soft limit of open files to its hard limit; returns the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            log.warning("cannot raise the limit of open files from %d to %d: %s", soft, wanted, error)
    return _open_files()


def connection_limit(wanted: int) -> int:
    """The connection limit of a listener: what it asks for, but at most its share of the descriptors."""
    return max(_FEWEST, min(wanted, _open_files() // _SHARE))


def _open_files() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft
