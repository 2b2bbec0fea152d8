"""The sections that the engine lives by: store, clouds, guards, engine, admin."""

from __future__ import annotations

import textwrap
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.config import ConfigError, load, parse
from cloudgraft.config.sections.clouds import EntryPointCloud, PluginCloud
from cloudgraft.store.databases.address import PostgresAddress
from tests.plugins.fake_packages import write_package

CLUSTER = "cluster: prod\n"
PROVIDER = "cluster: prod\nproviders: [{type: memory}]\n"
GROUP = "nodeGroups: [{id: g, cloud: lab, maxSize: 1}]\n"
LAB = "clouds: {lab: {driver: plugin, command: [a]}}\n"


def _lines(text: str, base_dir: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(textwrap.dedent(text), base_dir, name="f")
    assert caught.value.__cause__ is None
    return str(caught.value).replace(str(base_dir), "D").splitlines()


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that offers the drivers `acme` and `proxmox`."""
    site = tmp_path / "site"
    site.mkdir()
    points = {"acme": "acme_drivers:Acme", "proxmox": "acme_drivers:Proxmox"}
    write_package(site, "acme-drivers", group="cloudgraft.drivers", points=points)
    monkeypatch.syspath_prepend(site)


# -- what there is to serve -------------------------------------------------------------------------------------------


def test_clouds_and_groups_need_no_provider(tmp_path: Path) -> None:
    config = parse(CLUSTER + LAB + GROUP, tmp_path)
    assert config.providers == ()
    assert [group.id for group in config.groups()] == ["g"]


def test_a_file_whose_last_group_was_removed_is_still_valid(tmp_path: Path) -> None:
    """Its machines are drained: that takes a server, and a cloud to delete them in."""
    assert parse(CLUSTER + LAB + "nodeGroups: []", tmp_path).groups() == ()


@pytest.mark.parametrize("rest", ["", LAB])
def test_nothing_to_serve_is_told_with_what_to_write(tmp_path: Path, rest: str) -> None:
    [line] = _lines(CLUSTER + rest, tmp_path)
    assert line.endswith(
        "providers: there is nothing to serve: neither nodeGroups nor providers "
        "(write clouds and nodeGroups, or for example providers: [{type: memory}])"
    )


def test_a_cluster_id_can_be_given(tmp_path: Path) -> None:
    assert parse(PROVIDER, tmp_path).cluster_id is None
    assert parse(PROVIDER + "clusterId: abcdefg234", tmp_path).cluster_id == "abcdefg234"
    assert _lines(PROVIDER + "clusterId: prod", tmp_path) == [
        (
            "f:3:12: clusterId: must be ten of the letters a to z and the digits 2 to 7 "
            "(leave it out to have one generated)"
        )
    ]


# -- store ------------------------------------------------------------------------------------------------------------


def test_the_journal_is_a_file_beside_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "c.yaml").write_text(PROVIDER)
    monkeypatch.chdir(tmp_path)
    store = load(Path("there/c.yaml")).store
    assert (store.path, store.postgresql) == (tmp_path / "there" / "journal.db", None)
    assert (store.keep_gone, store.keep_events) == (timedelta(days=2), timedelta(days=14))


def test_the_journal_may_be_elsewhere_and_be_kept_for_longer(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    store = parse(PROVIDER + "store: {path: var/j.db, keepGone: 24h, keepEvents: 1000h}", tmp_path).store
    assert store.path == tmp_path / "var" / "j.db"
    assert (store.keep_gone, store.keep_events) == (timedelta(days=1), timedelta(hours=1000))


def test_the_journal_may_be_in_postgresql(tmp_path: Path) -> None:
    (tmp_path / "pw").touch()
    text = "store: {postgresql: 'db.example:5433/grafts', user: me, passwordFile: pw, leaseDuration: 5s}"
    store = parse(PROVIDER + text, tmp_path).store
    assert store.path is None
    assert store.postgresql == PostgresAddress(
        host="db.example",
        port=5433,
        database="grafts",
        user="me",
        password_file=tmp_path / "pw",
        sslmode="verify-full",
        sslrootcert="system",
    )
    assert store.lease_duration == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("address", "host", "port", "sslmode"),
    [
        ("db.example/x", "db.example", 5432, "verify-full"),
        ("localhost/x", "localhost", 5432, "prefer"),
        ("[::1]:1/x", "::1", 1, "prefer"),
        ("/run/postgresql/x", "/run/postgresql", 5432, "prefer"),
        ("/run/pg:5433/x", "/run/pg", 5433, "prefer"),
    ],
)
def test_a_database_is_at_a_host_or_behind_a_socket(
    tmp_path: Path, address: str, host: str, port: int, sslmode: str
) -> None:
    """Law 9: a password only goes to a database that proves who it is, unless it is on this host or told otherwise."""
    database = parse(PROVIDER + f"store: {{postgresql: '{address}', user: me}}", tmp_path).store.postgresql
    assert database is not None
    assert (database.host, database.port, database.database) == (host, port, "x")
    assert database.sslmode == sslmode
    other = parse(PROVIDER + f"store: {{postgresql: '{address}', user: me, sslmode: require}}", tmp_path)
    assert other.store.postgresql is not None
    assert other.store.postgresql.sslmode == "require"


STORES = {
    "both": (
        "{path: j.db, postgresql: db/x, user: me}",
        "f:3:15: store.path: does not go together with postgresql (remove one of the two)",
    ),
    "no user": ("{postgresql: db/x}", "f:3:8: store.user: is missing (for example user: cloudgraft)"),
    "user of a file": (
        "{user: me}",
        "f:3:15: store.user: only goes together with postgresql (a SQLite file needs none)",
    ),
    "lease of a file": (
        "{leaseDuration: 1s}",
        "f:3:24: store.leaseDuration: only goes together with postgresql (a SQLite file needs none)",
    ),
    "url": (
        "{postgresql: 'postgresql://me:hunter2@db/x', user: me}",
        (
            "f:3:21: store.postgresql: must be host/database or host:port/database "
            "(for example db.example/cloudgraft; user and passwordFile have keys of their own)"
        ),
    ),
    "no database": (
        "{postgresql: db, user: me}",
        ("f:3:21: store.postgresql: must be host/database or host:port/database (for example db.example/cloudgraft)"),
    ),
    "port": (
        "{postgresql: 'db:99999/x', user: me}",
        ("f:3:21: store.postgresql: the port must be between 1 and 65535 (for example db.example:5432/cloudgraft)"),
    ),
    "sslmode": (
        "{postgresql: db/x, user: me, sslmode: verify}",
        (
            "f:3:46: store.sslmode: must be one of disable, allow, prefer, require, verify-ca, verify-full "
            "(did you mean verify-ca?)"
        ),
    ),
    "no directory": (
        "{path: var/j.db}",
        "f:3:15: store.path: no such directory: D/var (make it first; the file itself need not be there)",
    ),
    "directory": ("{path: .}", "f:3:15: store.path: is a directory: D (name the file in it)"),
    "password": (
        "{postgresql: db/x, user: me, passwordFile: nowhere}",
        "f:3:51: store.passwordFile: no such file: D/nowhere (paths are relative to the directory of this file)",
    ),
    "typo": ("{pth: j.db}", "f:3:9: store.pth: unknown key (did you mean path?)"),
}


@pytest.mark.parametrize(("store", "expected"), STORES.values(), ids=list(STORES))
def test_a_wrong_store_gives_one_line(tmp_path: Path, store: str, expected: str) -> None:
    lines = _lines(PROVIDER + f"store: {store}", tmp_path)
    assert lines == [expected]
    assert "hunter2" not in str(lines)


# -- clouds -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("acme")
def test_a_drivers_own_options_stand_beside_its_name(tmp_path: Path) -> None:
    config = parse(
        CLUSTER
        + GROUP
        + """
clouds:
  lab:
    driver: acme
    url: https://lab.example
    token: hunter2
    options: {x: 1}
    engine:
      observeEvery: 30s
      createTimeout: 5m
      maxListMachines: 5000
      maxListBytes: 1048576
      maxCalls: 2
      callsPerSecond: 0.5
      backoff: {initial: 2s}
      guards: {maxMachines: 3, maxSpendPerDay: {amount: "12.50", currency: EUR}}
""",
        tmp_path,
    )
    lab = config.clouds["lab"]
    assert isinstance(lab, EntryPointCloud)
    assert (lab.driver, lab.options) == (
        "acme",
        {"url": "https://lab.example", "token": "hunter2", "options": {"x": 1}},
    )
    engine = lab.engine
    assert (engine.observe_every, engine.list_timeout) == (timedelta(seconds=30), timedelta(minutes=1))
    assert (engine.create_timeout, engine.delete_timeout) == (timedelta(minutes=5), timedelta(minutes=2))
    assert (engine.max_list_machines, engine.max_list_bytes) == (5000, 1 << 20)
    assert (engine.max_calls, engine.calls_per_second) == (2, 0.5)
    assert (engine.backoff.initial, engine.backoff.max) == (timedelta(seconds=2), timedelta(minutes=1))
    assert engine.guards.max_machines == 3
    assert engine.guards.max_spend_per_day is not None
    assert engine.guards.max_spend_per_day.amount == Decimal("12.50")
    assert "hunter2" not in repr(config)


def test_a_driver_may_be_a_plugin(tmp_path: Path) -> None:
    text = "clouds: {lab: {driver: plugin, command: [./d, x], env: {T: hunter2}, options: {url: hunter2}}}\n"
    config = parse(CLUSTER + GROUP + text, tmp_path)
    lab = config.clouds["lab"]
    assert isinstance(lab, PluginCloud)
    assert (lab.command, lab.working_directory) == ((str(tmp_path / "d"), "x"), tmp_path)
    assert (lab.env, lab.options) == ({"T": "hunter2"}, {"url": "hunter2"})
    assert (lab.start_timeout, lab.backoff.initial) == (timedelta(seconds=15), timedelta(milliseconds=500))
    assert lab.engine.max_calls == 8
    assert "hunter2" not in repr(config)


CLOUDS = {
    "no driver": (
        "{url: x}",
        "f:3:15: clouds.lab.driver: is missing (plugin, or the name of an installed driver)",
    ),
    "driver misspelt": (
        "{driver: proxmx}",
        "f:3:24: clouds.lab.driver: no driver proxmx is installed (did you mean proxmox?)",
    ),
    "driver read as boolean": (
        "{driver: on}",
        'f:3:24: clouds.lab.driver: must be a string, but YAML reads on as true (write "on")',
    ),
    "text": ("acme", "f:3:15: clouds.lab: must be a mapping of keys to values, not a string"),
    "no value": (
        "",
        "f:3:14: clouds.lab: must be a mapping of keys to values, but has no value (remove the key, or write a value)",
    ),
    "key of a plugin": (
        "{driver: plugin, command: [a], url: x}",
        (
            "f:3:46: clouds.lab.url: unknown key (known here: backoff, command, driver, engine, env, options, "
            "startTimeout, workingDirectory)"
        ),
    ),
    "no command": (
        "{driver: plugin}",
        "f:3:15: clouds.lab.command: is missing (for example command: [python3, my_plugin.py])",
    ),
    "engine": (
        "{driver: acme, engine: {observeEver: 5s}}",
        "f:3:39: clouds.lab.engine.observeEver: unknown key (did you mean observeEvery?)",
    ),
    "calls": (
        "{driver: acme, engine: {maxCalls: 0}}",
        "f:3:49: clouds.lab.engine.maxCalls: must be at least 1",
    ),
    "rate": (
        "{driver: acme, engine: {callsPerSecond: 0}}",
        "f:3:55: clouds.lab.engine.callsPerSecond: must be more than 0",
    ),
    "backoff": (
        "{driver: acme, engine: {backoff: {initial: 5s, max: 1s}}}",
        "f:3:67: clouds.lab.engine.backoff.max: must not be shorter than initial (for example 1m)",
    ),
}


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(("cloud", "expected"), CLOUDS.values(), ids=list(CLOUDS))
def test_a_wrong_cloud_gives_one_line(tmp_path: Path, cloud: str, expected: str) -> None:
    assert _lines(PROVIDER + f"clouds: {{lab: {cloud}}}", tmp_path) == [expected]


@pytest.mark.usefixtures("acme")
def test_the_name_of_a_cloud_is_a_name_and_is_told_at_its_place(tmp_path: Path) -> None:
    assert _lines(PROVIDER + "clouds: {lab: {driver: acme}, My_Lab: {driver: acm}}", tmp_path) == [
        (
            "f:3:31: clouds.My_Lab: must be lower-case letters, digits and hyphens, at most 63, "
            "with no hyphen at the ends (for example my-lab)"
        ),
        "f:3:48: clouds.My_Lab.driver: no driver acm is installed (did you mean acme?)",
    ]


# -- guards, engine, admin ---------------------------------------------------------------------------------------------


def test_guards_are_off_until_they_are_set(tmp_path: Path) -> None:
    guards = parse(PROVIDER, tmp_path).guards
    assert (guards.max_machines, guards.max_creates_per_hour, guards.max_spend_per_day) == (None, None, None)
    text = "guards: {maxMachines: 50, maxCreatesPerHour: 0, maxSpendPerDay: {amount: '40', currency: EUR}}"
    guards = parse(PROVIDER + text, tmp_path).guards
    assert (guards.max_machines, guards.max_creates_per_hour) == (50, 0)
    assert guards.max_spend_per_day is not None
    assert (guards.max_spend_per_day.amount, guards.max_spend_per_day.currency) == (Decimal(40), "EUR")


def test_the_engine_has_defaults_and_all_of_them_can_be_changed(tmp_path: Path) -> None:
    engine = parse(PROVIDER, tmp_path).engine
    assert (engine.create_deadline, engine.join_deadline) == (timedelta(minutes=10), timedelta(minutes=15))
    assert (engine.failed_ttl, engine.node_memory) == (timedelta(minutes=20), timedelta(minutes=30))
    assert engine.first_list_timeout == timedelta(minutes=2)
    assert (engine.repair.enabled, engine.repair.after, engine.repair.max_share) == (True, timedelta(minutes=5), 0.2)
    assert engine.repair.not_ready_after == timedelta(minutes=30)
    assert (engine.orphans.delete, engine.gpu_label, engine.webhook) == (False, None, None)
    (tmp_path / "t").touch()
    text = """
engine:
  createDeadline: 1m
  joinDeadline: 2m
  failedTTL: 3m
  nodeMemory: 4m
  firstListTimeout: 4m59s
  repair: {enabled: false, after: 0s, notReadyAfter: 0s, maxShare: 1}
  orphans: {delete: true}
  gpuLabel: example.com/gpu
  webhook: {url: "https://alerts.example/x", tokenFile: t, headersFile: t}
"""
    engine = parse(PROVIDER + text, tmp_path).engine
    assert (engine.create_deadline, engine.join_deadline) == (timedelta(minutes=1), timedelta(minutes=2))
    assert (engine.failed_ttl, engine.node_memory) == (timedelta(minutes=3), timedelta(minutes=4))
    assert engine.first_list_timeout == timedelta(seconds=299)
    assert (engine.repair.enabled, engine.repair.after, engine.repair.max_share) == (False, timedelta(0), 1.0)
    assert engine.repair.not_ready_after == timedelta(0)
    assert (engine.orphans.delete, engine.gpu_label) == (True, "example.com/gpu")
    assert engine.webhook is not None
    assert (engine.webhook.url, engine.webhook.token_file) == ("https://alerts.example/x", tmp_path / "t")
    assert engine.webhook.headers_file == tmp_path / "t"


def test_commands_reach_the_server_by_a_socket_beside_the_journal(tmp_path: Path) -> None:
    assert parse(PROVIDER, tmp_path).admin_address() == f"unix:{tmp_path}/journal.db.sock"
    database = parse(PROVIDER + "store: {postgresql: db/x, user: me}", tmp_path)
    assert database.admin_address() == f"unix:{tmp_path}/cloudgraft.sock"
    socket = parse(PROVIDER + "admin: {listen: 'unix:/run/x.sock'}", tmp_path)
    assert socket.admin_address() == "unix:/run/x.sock"


def test_commands_reach_the_server_by_a_port_only_with_tls(tmp_path: Path) -> None:
    """Law 9."""
    (tmp_path / "x").touch()
    tls = "tls: {cert: x, key: x, clientCA: x, allowedClients: [me]}"
    admin = parse(PROVIDER + f"admin: {{listen: '0.0.0.0:8088', {tls}}}", tmp_path).admin
    assert admin.listen == "0.0.0.0:8088"
    assert admin.tls is not None
    assert admin.tls.allowed_clients == ("me",)
    assert _lines(PROVIDER + "admin: {listen: '127.0.0.1:8088'}", tmp_path) == [
        ("f:3:17: admin.listen: needs admin.tls (add it with the files of `cloudgraft certs init`, or use unix:/path)")
    ]
    for listen in ("listen: 'unix:/run/x.sock', ", ""):
        [line] = _lines(PROVIDER + f"admin: {{{listen}{tls}}}", tmp_path)
        assert "admin.listen: must be host:port when there is admin.tls" in line


ENGINES = {
    "currency": (
        "guards: {maxSpendPerDay: {amount: '1', currency: euros}}",
        ("f:3:50: guards.maxSpendPerDay.currency: must be the three capital letters of a currency (for example EUR)"),
    ),
    "float": (
        "guards: {maxSpendPerDay: {amount: 1.10, currency: EUR}}",
        'f:3:35: guards.maxSpendPerDay.amount: must be a string, but YAML reads 1.10 as a number (write "1.10")',
    ),
    "amount": (
        "guards: {maxSpendPerDay: {amount: lots, currency: EUR}}",
        'f:3:35: guards.maxSpendPerDay.amount: must be an amount of money (for example "0.05")',
    ),
    "nothing": (
        "guards: {maxSpendPerDay: {amount: '0', currency: EUR}}",
        "f:3:35: guards.maxSpendPerDay.amount: must be more than zero (leave it out for none)",
    ),
    "machines": ("guards: {maxMachines: -1}", "f:3:23: guards.maxMachines: must be at least 0"),
    "share": ("engine: {repair: {maxShare: 20}}", "f:3:29: engine.repair.maxShare: must be at most 1"),
    "share that is none": (
        "engine: {repair: {maxShare: .nan}}",
        "f:3:29: engine.repair.maxShare: should be a finite number",
    ),
    "snake case": (
        "engine: {failed_ttl: 5m}",
        "f:3:10: engine.failed_ttl: unknown key (did you mean failedTTL?)",
    ),
    "plain http": (
        "engine: {webhook: {url: 'http://alerts.example/x'}}",
        (
            "f:3:25: engine.webhook.url: must be https unless it is on this host "
            "(for example https://alerts.example/cloudgraft)"
        ),
    ),
    "secret in a url": (
        "engine: {webhook: {url: 'https://me:hunter2@alerts.example/x'}}",
        (
            "f:3:25: engine.webhook.url: must not hold a user or password "
            "(write the secret to a file and name it in tokenFile)"
        ),
    ),
    "no url": (
        "engine: {webhook: {url: 'alerts.example'}}",
        "f:3:25: engine.webhook.url: must be a URL (for example https://alerts.example/cloudgraft)",
    ),
    "label": (
        "engine: {gpuLabel: 'a b'}",
        (
            "f:3:20: engine.gpuLabel: a label's key must be letters, digits, '-', '_' and '.', at most 63, beginning "
            "and ending with a letter or digit; a domain and a slash may stand before it (for example example.com/pool)"
        ),
    ),
}


@pytest.mark.parametrize(("text", "expected"), ENGINES.values(), ids=list(ENGINES))
def test_a_wrong_setting_of_the_engine_gives_one_line(tmp_path: Path, text: str, expected: str) -> None:
    lines = _lines(PROVIDER + text, tmp_path)
    assert lines == [expected]
    assert "hunter2" not in str(lines)
