"""Which parts of a kubeconfig must be shown nowhere."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.secrecy import hide, unhide

__all__ = ["hide_kubeconfig"]

_KEYS: Final = r"""["']?(?:token|password|client-key-data)["']?\s*:\s*"""
_ONE_LINE: Final = re.compile(rf"""{_KEYS}["']?([^\s"',}}|>][^\s"',}}]*)""")
_BLOCK: Final = re.compile(rf"""{_KEYS}[|>][-+0-9]*[ \t]*\n((?:[ \t]+\S+[ \t]*(?:\n|$))+)""")
_MOST: Final = 256  # kubeconfigs; every secret costs time in every log line, and tokens are renewed for ever
_MOST_SECRETS: Final = 128  # lines of one kubeconfig: a private key of 4,096 bits has about 60

_hidden: OrderedDict[tuple[str, ...], None] = OrderedDict()  # the last ones, oldest first


def hide_kubeconfig(text: str) -> None:
    """Hides tokens, passwords and private keys of a kubeconfig from every log line and error of this process.

    Of so many kubeconfigs the last ones: by the time that one is forgotten, nobody holds it any more. Raises
    InvalidArgumentError for one that holds more secrets than anybody needs: each would slow every log line.
    """
    lines = [line for block in _BLOCK.findall(text) for line in block.split()]
    secrets = tuple(sorted({*_ONE_LINE.findall(text), *lines}))
    if len(secrets) > _MOST_SECRETS:
        raise InvalidArgumentError(
            f"the kubeconfig holds more than {_MOST_SECRETS} lines of secrets: one user is enough"
        )
    if not secrets:
        return
    if secrets not in _hidden:
        hide(*secrets)
    _hidden[secrets] = None
    _hidden.move_to_end(secrets)
    while len(_hidden) > _MOST:
        unhide(*_hidden.popitem(last=False)[0])
