"""The `limits` sections: their defaults, and values that make no sense are refused with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.app.wiring import serve_options
from cloudgraft.config import ConfigError, parse

SIM = "cluster: test\nproviders: [{type: externalgrpc, address: '127.0.0.1:1'}]\n"


def test_the_limits_of_the_file_reach_the_listener(tmp_path: Path) -> None:
    text = SIM + "server: {limits: {connections: 99, streams: 7, handshake: 3s, idle: 1m}}\n"
    limits = serve_options(parse(text, tmp_path)).limits
    assert (limits.connections, limits.streams, limits.handshake, limits.idle) == (99, 7, 3.0, 60.0)
    default = serve_options(parse(SIM, tmp_path)).limits
    assert (default.connections, default.streams) == (512, 50)


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ("server: {limits: {connections: 0}}", "server.limits.connections"),
        ("server: {limits: {streams: -1}}", "server.limits.streams"),
        ("server: {limits: {handshake: 0s}}", "server.limits.handshake"),
        ("server: {limits: {conections: 9}}", "server.limits.conections"),
        ("dock: {limits: {connections: many}}", "dock.limits.connections"),
        ("nodeManager: {limits: {connections: 1000000}}", "nodeManager.limits.connections"),
    ],
)
def test_limits_that_make_no_sense_are_refused_with_their_place(tmp_path: Path, section: str, place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        parse(SIM + section + "\n", tmp_path)
