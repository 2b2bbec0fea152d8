"""moto for libcloud: it looks into an answer's XML namespace, in which moto names an old version of the API.

Amazon names the version that was asked for. Nothing else is changed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from clouds.servers.aws_answers import Answer
from clouds.servers.aws_cloud import AwsCloud
from clouds.servers.aws_proxy import AwsProxy
from clouds.servers.moto_server import REGION

__all__ = ["LibcloudAws"]

_NAMESPACE = re.compile(rb'xmlns="http://ec2\.amazonaws\.com/doc/[^"]*"')


class _Proxy(AwsProxy):
    def _carried_out(self, action: str, parameters: Any, headers: Mapping[str, str]) -> Answer:
        answer = super()._carried_out(action, parameters, headers)
        asked = f'xmlns="http://ec2.amazonaws.com/doc/{parameters.get("Version")}/"'.encode()
        return dataclasses.replace(answer, body=_NAMESPACE.sub(asked, answer.body))


class LibcloudAws(AwsCloud):
    """The same cloud, with that proxy."""

    def __enter__(self) -> Self:
        """Starts both."""
        self.moto.start()
        self._proxy = _Proxy(self.moto.port)
        return self

    def section(self, name: str = "own") -> dict[str, Any]:
        """A cloud's section of a configuration file, with a key of its own."""
        return self.section_of(name, *self.proxy.new_key())

    def section_of(self, name: str, key: str, secret: str) -> dict[str, Any]:
        """The same for a given key."""
        file = Path(self.directory) / f"{name}.secret"
        file.write_text(secret, "utf-8")
        where = {"region": REGION, "endpoint": self.proxy.url}
        return {"driver": "libcloud", "provider": "EC2", "key": key, "secretFile": str(file), **where}
