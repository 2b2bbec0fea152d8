"""The section `tracing`: what a good one becomes, and what is told of a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.config import ConfigError, parse
from cloudgraft.config.sections.tracing import Tracing

HEAD = "cluster: prod\nproviders: [{type: memory}]\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("ca.crt", "client.crt", "client.key", "headers"):
        (tmp_path / name).write_text("x")
    return tmp_path


def _tracing(text: str, base: Path) -> Tracing:
    section = parse(f"{HEAD}tracing: {text}\n", base, name="f").tracing
    assert section is not None
    return section


def test_without_the_section_nothing_is_traced(base: Path) -> None:
    assert parse(HEAD, base, name="f").tracing is None


def test_the_least_section_traces_every_order_and_no_read(base: Path) -> None:
    section = _tracing('{endpoint: "127.0.0.1:4317"}', base)
    assert (section.ratio, section.read_ratio, section.service_name, section.tls) == (1.0, 0.0, "cloudgraft", None)


def test_a_whole_section(base: Path) -> None:
    tls = "{ca: ca.crt, cert: client.crt, key: client.key, serverName: otel}"
    more = "headersFile: headers, ratio: 0.5, readRatio: 0.01, serviceName: scaler"
    section = _tracing(f'{{endpoint: "otel.example:4317", tls: {tls}, {more}}}', base)
    assert section.tls is not None
    assert (section.tls.server_name, section.headers_file) == ("otel", base / "headers")
    assert (section.ratio, section.read_ratio, section.service_name) == (0.5, 0.01, "scaler")
    assert _tracing('{endpoint: "otel.example:4317", insecure: true}', base).insecure
    assert _tracing('{endpoint: "localhost:4317", headersFile: headers}', base).headers_file is not None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "tracing.endpoint"),
        ('{endpoint: "http://otel:4317", insecure: true}', "without scheme and path"),
        ('{endpoint: "otel.example:4317"}', "only a collector on this host is allowed (add tracing.tls, or"),
        ('{endpoint: "otel.example:4317", insecure: true, headersFile: headers}', "must not be sent without TLS"),
        ('{endpoint: "otel.example:4317", insecure: true, tls: {}}', "does not go together with tls"),
        ('{endpoint: "otel.example:4317", tls: {cert: client.crt}}', "cert and key go together"),
        ('{endpoint: "127.0.0.1:4317", ratio: 1.5}', "tracing.ratio"),
        ('{endpoint: "127.0.0.1:4317", headersFile: nowhere}', "no such file"),
    ],
)
def test_a_bad_section_is_one_problem_with_its_place(base: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _tracing(text, base)
    (line,) = str(caught.value).splitlines()
    assert problem in line
    assert "tracing" in line
