"""Bad files: each problem is reported with its line and column, and all of them at once."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml

from cloudgraft.config import parse
from tests.config.problem_lines import MINIMAL, problem_lines

LAW_9 = (
    "without TLS only a loopback address is allowed, because anyone who reaches this port can create and "
    "delete machines (add server.tls with the files of `cloudgraft certs init`, or listen on 127.0.0.1, or set "
    "server.insecure: true)"
)

ONE_PROBLEM = {
    "unknown key": (
        "planets: {}",
        (
            "f:3:1: planets: unknown key (known here: admin, clouds, cluster, clusterId, dock, engine, guards, join, "
            "kubernetes, log, "
            "nodeGroups, nodeManager, observeOnly, providers, server, store, tracing)"
        ),
    ),
    "typo": ("sever: {}", "f:3:1: sever: unknown key (did you mean server?)"),
    "snake case": (
        "server: {force_options: true}",
        "f:3:10: server.force_options: unknown key (did you mean forceOptions?)",
    ),
    "no section": ("server: 5", "f:3:9: server: must be a mapping of keys to values, not a number"),
    "empty section": (
        "server:",
        "f:3:8: server: must be a mapping of keys to values, but has no value (remove the key, or write a value)",
    ),
    "law 9": ("server: {listen: '0.0.0.0:8086'}", f"f:3:18: server.listen: {LAW_9}"),
    "law 9 for a name": ("server: {listen: 'example.org:1'}", f"f:3:18: server.listen: {LAW_9}"),
    "all addresses the Go way": (
        "server: {listen: ':8086'}",
        "f:3:18: server.listen: has no host (write 127.0.0.1:8086 for this host, 0.0.0.0:8086 for all addresses)",
    ),
    "no port": ("server: {listen: 127.0.0.1}", "f:3:18: server.listen: must be host:port (for example 127.0.0.1:8086)"),
    "port alone": (
        "server: {listen: 8086}",
        (
            "f:3:18: server.listen: is a port without a host "
            "(write 127.0.0.1:8086 for this host, 0.0.0.0:8086 for all addresses)"
        ),
    ),
    "port alone in quotes": (
        "server: {listen: '8086'}",
        (
            "f:3:18: server.listen: is a port without a host "
            "(write 127.0.0.1:8086 for this host, 0.0.0.0:8086 for all addresses)"
        ),
    ),
    "bare ipv6": (
        "server: {listen: '::1:8086'}",
        "f:3:18: server.listen: an IPv6 address goes into brackets (for example [::1]:8086)",
    ),
    "big port": (
        "server: {listen: 'localhost:65536'}",
        "f:3:18: server.listen: the port must be between 0 and 65535 (for example 127.0.0.1:8086)",
    ),
    "relative socket": (
        "server: {listen: 'unix:x.sock'}",
        "f:3:18: server.listen: the path of a unix socket must be absolute (for example unix:/run/cloudgraft.sock)",
    ),
    "same port twice": (
        "server: {listen: '127.0.0.1:8087'}",
        "f:3:9: server.ops: is the same address as server.listen (take another port, or null for none)",
    ),
    "no unit": ("server: {deadline: 5}", "f:3:20: server.deadline: a duration needs a unit (seconds? write 5s)"),
    "days": (
        "server: {grace: 1d}",
        "f:3:17: server.grace: unknown unit 'd' in duration '1d' (the units are ns, us, ms, s, m and h)",
    ),
    "zero deadline": ("server: {deadline: 0s}", "f:3:20: server.deadline: must be more than zero (for example 5s)"),
    "negative grace": ("server: {grace: -1s}", "f:3:17: server.grace: must not be negative (for example 5s)"),
    "list for duration": (
        "server: {grace: [1s]}",
        "f:3:17: server.grace: must be a duration (for example 5s, 1m30s or 250ms)",
    ),
    "word for a boolean": (
        "server: {insecure: sure}",
        "f:3:20: server.insecure: must be true or false, not a string",
    ),
    "quoted boolean": ('server: {insecure: "true"}', "f:3:20: server.insecure: must be true or false, not a string"),
    "level": ("log: {level: 11}", "f:3:14: log.level: must be at most 10"),
    "level as text": ("log: {level: '5'}", "f:3:14: log.level: must be a whole number, not a string"),
    "level as boolean": ("log: {level: yes}", "f:3:14: log.level: must be a whole number, not true"),
    "format": ("log: {format: jsn}", "f:3:15: log.format: must be one of console, json (did you mean json?)"),
    "twice": (
        "log: {level: 1}\nlog: {level: 2}",
        "f:4:1: log: this key is there twice, first in line 3 (remove one of the two)",
    ),
    "tag": ("log: !!set {}", "f:3:6: log: the tag tag:yaml.org,2002:set cannot be used here (leave it out)"),
    "python tag": (
        "log: !!python/object/apply:os.system [x]",
        "f:3:6: log: the tag tag:yaml.org,2002:python/object/apply:os.system cannot be used here (leave it out)",
    ),
    "impossible number": (
        "log: {level: !!int x}",
        "f:3:14: log.level: this value cannot be read (put text into quotes)",
    ),
    "half a surrogate": (
        r'log: {format: "\ud800"}',
        "f:3:15: log.format: this value cannot be read (put text into quotes)",
    ),
    "alias in itself": ("log: &a {level: *a}", "f:3:6: log.level: this alias contains itself"),
    "merge of text": ("log: {<<: text}", "f:3:11: log: only a mapping can be merged with <<"),
    "key that is a list": ("[a]: b", "f:3:1: a key must be plain text (write key: value)"),
    "control character in a key": (
        '"a\\eb": 1',
        (
            'f:3:1: "a�b": unknown key (known here: admin, clouds, cluster, clusterId, dock, engine, guards, join, '
            "kubernetes, log, "
            "nodeGroups, nodeManager, observeOnly, providers, server, store, tracing)"
        ),
    ),
}


@pytest.mark.parametrize(("addition", "expected"), ONE_PROBLEM.values(), ids=list(ONE_PROBLEM))
def test_one_problem_gives_one_line(tmp_path: Path, addition: str, expected: str) -> None:
    assert problem_lines(MINIMAL + addition, tmp_path) == [expected]


PROVIDERS = {
    "none": (
        "[]",
        (
            "f:2:12: providers: there is nothing to serve: neither nodeGroups nor providers "
            "(write clouds and nodeGroups, or for example providers: [{type: memory}])"
        ),
    ),
    "not a list": ("{type: memory}", "f:2:12: providers: must be a list, not a mapping"),
    "text": ("[memory]", "f:2:13: providers[0]: must be a mapping of keys to values, not a string"),
    "no type": (
        "[{address: 'a:1'}]",
        "f:2:13: providers[0].type: is missing (externalgrpc, plugin, or the name of an installed provider)",
    ),
    "type read as boolean": (
        "[{type: on}]",
        'f:2:20: providers[0].type: must be a string, but YAML reads on as true (write "on")',
    ),
    "type misspelt": (
        "[{type: externalgrcp}]",
        "f:2:20: providers[0].type: no provider of the type externalgrcp is installed (did you mean externalgrpc?)",
    ),
    "no address": (
        "[{type: externalgrpc}]",
        "f:2:13: providers[0].address: is missing (for example address: other:8086)",
    ),
    "url": (
        "[{type: externalgrpc, address: 'https://a:1'}]",
        "f:2:43: providers[0].address: is an address without scheme and path (for example provider.example:8086)",
    ),
    "port zero": (
        "[{type: externalgrpc, address: 'a:0'}]",
        "f:2:43: providers[0].address: the port must be between 1 and 65535 (for example provider.example:8086)",
    ),
    "key of another type": (
        "[{type: externalgrpc, address: 'a:1', command: [a]}]",
        "f:2:50: providers[0].command: unknown key (known here: address, name, snapshot, timeout, tls, type)",
    ),
    "command as text": (
        "[{type: plugin, command: run --token=hunter2}]",
        (
            "f:2:37: providers[0].command: must be a list, program first "
            "(for example [python3, my_plugin.py]; no shell is involved)"
        ),
    ),
    "empty command": ("[{type: plugin, command: []}]", "f:2:37: providers[0].command: needs at least one entry"),
    "blank program": (
        "[{type: plugin, command: ['']}]",
        "f:2:38: providers[0].command[0]: must not be empty and must not hold control characters",
    ),
    "number in the environment": (
        "[{type: plugin, command: [a], env: {PIN: 1234}}]",
        "f:2:53: providers[0].env.PIN: must be a string, but YAML reads it as a number (put it into quotes)",
    ),
    "norway in the environment": (
        "[{type: plugin, command: [a], env: {COUNTRY: no}}]",
        'f:2:57: providers[0].env.COUNTRY: must be a string, but YAML reads no as false (write "no")',
    ),
    "impossible variable": (
        "[{type: plugin, command: [a], env: {A=B: c}}]",
        (
            "f:2:47: providers[0].env: names of environment variables must not be empty, "
            "and neither '=' nor NUL is allowed"
        ),
    ),
    "no such directory": (
        "[{type: plugin, command: [a], workingDirectory: x}]",
        (
            "f:2:60: providers[0].workingDirectory: no such directory: D/x "
            "(paths are relative to the directory of this file)"
        ),
    ),
    "backoff": (
        "[{type: plugin, command: [a], backoff: {initial: 2m}}]",
        "f:2:51: providers[0].backoff.max: must not be shorter than initial (for example 1m)",
    ),
    "staleness": (
        "[{type: memory, snapshot: {refreshEvery: 10m, maxStaleness: 1m}}]",
        (
            "f:2:72: providers[0].snapshot.maxStaleness: must not be shorter than refreshEvery "
            "(several times as long is reasonable)"
        ),
    ),
    "snapshot without a value": (
        "[{type: memory, snapshot: }]",
        "f:2:37: providers[0].snapshot: has no value (write false for no snapshot, or remove the key)",
    ),
    "no snapshot for a remote one": (
        "[{type: externalgrpc, address: 'a:1', snapshot: false}]",
        "f:2:60: providers[0].snapshot: must be a mapping of keys to values, not false",
    ),
    "name": (
        "[{type: memory, name: My_Cloud}]",
        (
            "f:2:34: providers[0].name: must be lower-case letters, digits and hyphens, at most 63, "
            "with no hyphen at the ends (for example my-cloud)"
        ),
    ),
    "name twice": (
        "[{type: memory, name: x}, {type: memory}, {type: memory, name: x}]",
        "f:2:75: providers[2].name: more than one provider has the name x (each needs its own)",
    ),
}


@pytest.mark.parametrize(("providers", "expected"), PROVIDERS.values(), ids=list(PROVIDERS))
def test_a_wrong_provider_gives_one_line(tmp_path: Path, providers: str, expected: str) -> None:
    lines = problem_lines(f"cluster: prod\nproviders: {providers}", tmp_path)
    assert lines == [expected]
    assert "hunter2" not in str(lines)


WHOLE = {
    "empty": (
        "",
        "f:1:1: the file is empty (the least is, in two lines: cluster: prod / providers: [{type: memory}])",
    ),
    "only a comment": (
        "# nothing\n",
        "f:1:1: the file is empty (the least is, in two lines: cluster: prod / providers: [{type: memory}])",
    ),
    "a list": ("- a\n", "f:1:1: must be a mapping of keys to values, not a list"),
    "a word": ("hello", "f:1:1: must be a mapping of keys to values, not a string"),
    "two documents": (
        MINIMAL + "---\na: b\n",
        (
            "f:3:1: not valid YAML: expected a single document in the stream, but found another document "
            "(leave out the line with ---)"
        ),
    ),
    "tab": (
        "server:\n\tlisten: x\n",
        (
            "f:2:1: not valid YAML: while scanning for the next token, found character '\\t' "
            "that cannot start any token (indent with spaces, not with tabs)"
        ),
    ),
    "quote": (
        "cluster: 'a\n",
        (
            "f:2:1: not valid YAML: while scanning a quoted scalar, found unexpected end of stream "
            "(is the closing quote missing?)"
        ),
    ),
    "indentation": (
        "cluster: a\n server: {}\n",
        (
            "f:2:8: not valid YAML: mapping values are not allowed here "
            "(is the line indented too far, or a quote missing?)"
        ),
    ),
    "bracket": (
        "a: [1, 2\nb: 3\n",
        "f:2:2: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got ':'",
    ),
    "undefined alias": (
        "cluster: *x\n",
        "f:1:10: not valid YAML: found undefined alias 'x' (define it before with &name, or put the text into quotes)",
    ),
    "control character": ("cluster: a\nx: \x01\n", "f:2:4: not valid YAML: the character #x0001 is not allowed"),
    "impossible escape": ('cluster: "\\UFFFFFFFF"', "f:1:1: not valid YAML: it cannot be read"),
}


@pytest.mark.parametrize(("text", "expected"), WHOLE.values(), ids=list(WHOLE))
def test_a_file_that_is_no_configuration_at_all_is_told_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    assert problem_lines(text, tmp_path) == [expected]


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "srv.crt").touch()
    lines = problem_lines(
        """\
        cluster: no
        server:
          listen: 0.0.0.0:8086
          deadline: 5
          tls:
            cert: src.crt
            key: |
              -----BEGIN PRIVATE KEY-----
              hunter2
            clientCA: .
        log: {level: 1, level: 2, colour: red}
        providers:
          - {type: memory, name: A}
          - type: plugin
            comand: [a]
        """,
        tmp_path,
    )
    assert lines == [
        'f:1:10: cluster: must be a string, but YAML reads no as false (write "no")',
        "f:4:13: server.deadline: a duration needs a unit (seconds? write 5s)",
        "f:6:5: server.tls.allowedClients: is missing (for example allowedClients: [cluster-autoscaler-grpc-client])",
        "f:6:11: server.tls.cert: no such file: D/src.crt (did you mean srv.crt?)",
        (
            "f:7:10: server.tls.key: this is not a path; the content belongs into a file "
            "(write the path of that file here)"
        ),
        "f:10:15: server.tls.clientCA: is a directory: D (name the file in it)",
        "f:11:17: log.level: this key is there twice, first in line 11 (remove one of the two)",
        "f:11:27: log.colour: unknown key (known here: format, level)",
        (
            "f:13:26: providers[0].name: must be lower-case letters, digits and hyphens, at most 63, "
            "with no hyphen at the ends (for example a)"
        ),
        "f:14:5: providers[1].command: is missing (for example command: [python3, my_plugin.py])",
        "f:15:5: providers[1].comand: unknown key (did you mean command?)",
    ]


def test_tls_together_with_insecure_makes_no_sense(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    tls = "tls: {cert: x, key: x, clientCA: x, allowedClients: [a]}"
    assert problem_lines(MINIMAL + f"server: {{insecure: true, {tls}}}", tmp_path) == [
        "f:3:20: server.insecure: does not go together with tls (remove one of the two)"
    ]


def test_a_key_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    tls = "tls: {cert: x, key: x, clientCA: x, allowedClients: [a]}"
    with socket.socket(socket.AF_UNIX) as unreadable:  # it is there, and nobody can open it as a file, root neither
        unreadable.bind("x")
        lines = problem_lines(MINIMAL + f"server: {{{tls}}}", tmp_path)
    assert any(line.startswith("f:3:22: server.tls.cert: cannot be read: D/x: ") for line in lines)


@pytest.mark.parametrize("secret", ["-----BEGIN PRIVATE KEY-----\nhunter2", "aHVudGVyMg" * 12, "x" * 2000])
def test_a_key_in_place_of_its_path_is_never_repeated(tmp_path: Path, secret: str) -> None:
    text = yaml.safe_dump({"cluster": "a", "providers": [], "server": {"tls": {"key": secret, "cert": secret}}})
    lines = "\n".join(problem_lines(text, tmp_path))
    assert lines.count("this is not a path") == 2
    assert secret[:10] not in lines.replace("D/", "")


def test_secrets_are_in_no_repr(tmp_path: Path) -> None:
    config = parse(
        "cluster: a\nproviders:\n"
        "  - {type: plugin, command: [a], env: {T: hunter2}}\n"
        "  - {type: memory, options: {p: hunter2}}\n",
        tmp_path,
    )
    assert "hunter2" not in repr(config)
