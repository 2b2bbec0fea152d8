"""The way of the autoscaler to the server: a cloud-config file, and calls that are made with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cloudgraft.client import CloudConfig, RemoteProvider
from cloudgraft.doctor.gather.certificates import are_here
from cloudgraft.doctor.picture import CloudConfigSeen
from cloudgraft.documents import ForeignDocumentError, parse_yaml
from cloudgraft.sdk.errors import CloudgraftError, UnsupportedError
from cloudgraft.sdk.types import NodeTemplate

__all__ = ["parse_cloud_config", "read_cloud_config", "try_calls"]

_SECONDS: Final = 20.0


def read_cloud_config(path: Path) -> CloudConfigSeen:
    """A file, read as the autoscaler reads it."""
    try:
        config = CloudConfig.load(path)
    except CloudgraftError as error:
        return CloudConfigSeen(where=str(path), trouble=error.message)
    return CloudConfigSeen(where=str(path), config=config, has_timeout=_has_timeout(path.read_text()))


def parse_cloud_config(text: str, where: str) -> CloudConfigSeen:
    """The same for the text of a ConfigMap."""
    try:
        config = CloudConfig.parse(text)
    except CloudgraftError as error:
        return CloudConfigSeen(where=where, trouble=error.message)
    return CloudConfigSeen(where=where, config=config, has_timeout=_has_timeout(text))


async def try_calls(seen: CloudConfigSeen) -> tuple[CloudConfigSeen, Mapping[str, NodeTemplate]]:
    """Makes the autoscaler's first calls, where that can be done from here; reads only. Gives the groups' templates."""
    config = seen.config
    if config is None or (config.is_encrypted and not are_here(config)):
        return seen, {}
    try:
        provider = RemoteProvider.connect(config)
        try:
            async with asyncio.timeout(_SECONDS):
                return seen, await _templates(provider)
        finally:
            await provider.close()
    except CloudgraftError as error:
        return replace(seen, call_trouble=error.message), {}
    except TimeoutError:
        return replace(seen, call_trouble=f"{config.address} did not answer within {_SECONDS:g} s"), {}


async def _templates(provider: RemoteProvider) -> dict[str, NodeTemplate]:
    found: dict[str, NodeTemplate] = {}
    for group in await provider.node_groups():
        try:
            template = await provider.find_template(group.id)
        except UnsupportedError:
            continue
        if template is not None:
            found[group.id] = template
    return found


def _has_timeout(text: str) -> bool:
    """Of a text that was read already, in which a plain reader may still stumble over a value."""
    try:
        document = parse_yaml(text)
    except ForeignDocumentError:
        return False
    return isinstance(document, dict) and any(str(key).casefold() == "grpc_timeout" for key in document)
