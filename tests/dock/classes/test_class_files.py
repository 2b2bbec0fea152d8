"""Machine classes and secrets in files: what is read, what is refused, and what happens when they change."""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
from collections import deque
from pathlib import Path

import pytest

from cloudgraft.config import parse
from cloudgraft.config.sections.dock import Dock
from cloudgraft.dock.classes.feed import ClassFeed
from cloudgraft.dock.classes.files import ConfiguredReader, DirectoryReader
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import NotFoundError, PreconditionError
from tests.conditions import until

ACME = Key(kind="AcmeMachineClass", api_version="machine.example/v1")
HEAD = "apiVersion: machine.example/v1\nkind: AcmeMachineClass\n"
SECRET = "correct-horse-battery"
SMALL = HEAD + "metadata: {name: small}\nproviderSpec: {size: s}\nsecretRef: {name: acme}\n"
CREDENTIALS = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: acme}}\nstringData: {{token: {SECRET}}}\n"


def put(path: Path, text: str) -> None:
    """As an editor does that writes a new file and renames it."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.rename(path)


def token_of(store: MachineClasses, name: str = "small") -> bytes:
    secret = store.secret(store.get(name, ACME))
    assert secret is not None
    return secret.data["token"]


def dock_of(base: Path, text: str) -> Dock:
    dock = parse(f"cluster: c\ndock: {text}", base).dock
    assert dock is not None
    return dock


# -- a directory -------------------------------------------------------------------------------------------------------


def test_a_directory_holds_classes_and_secrets_in_yaml_and_json(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"# two in one file\n---\n{SMALL}---\n{CREDENTIALS}")
    items = [{"apiVersion": ACME.api_version, "kind": ACME.kind, "metadata": {"name": name}} for name in ("b", "c")]
    (tmp_path / "b.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}, indent="\t"))
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / ".hidden.yaml").write_text("not: read")
    snapshot = DirectoryReader(tmp_path).read()
    assert snapshot is not None
    assert snapshot.problems == ()
    assert [(found.value.name, found.data) for found in snapshot.classes] == [
        ("small", {"token": SECRET.encode()}),
        ("b", None),
        ("c", None),
    ]


def test_it_is_read_again_only_when_something_changed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL)
    reader = DirectoryReader(tmp_path)
    assert reader.read() is not None
    assert reader.read() is None
    (tmp_path / "secret.yaml").write_text(CREDENTIALS)
    snapshot = reader.read()
    assert snapshot is not None
    assert snapshot.classes[0].data == {"token": SECRET.encode()}


def test_a_file_that_went_bad_stays_as_it_was_and_the_others_go_on(tmp_path: Path) -> None:
    """Trouble stays local (law 6)."""
    put(tmp_path / "a.yaml", SMALL + "---\n" + CREDENTIALS)
    reader = DirectoryReader(tmp_path)
    assert reader.read() is not None
    put(tmp_path / "a.yaml", f"kind: [\npassword: *{SECRET}")
    put(tmp_path / "b.yaml", HEAD + "metadata: {name: large}\n")
    snapshot = reader.read()
    assert snapshot is not None
    assert [found.value.name for found in snapshot.classes] == ["small", "large"]
    assert snapshot.classes[0].data == {"token": SECRET.encode()}
    (problem,) = snapshot.problems
    assert problem.startswith(f"{tmp_path / 'a.yaml'}:2:")
    assert "not valid YAML" in problem
    put(tmp_path / "a.yaml", HEAD + "metadata: {name: medium}\n")
    snapshot = reader.read()
    assert snapshot is not None
    assert ([found.value.name for found in snapshot.classes], snapshot.problems) == (["medium", "large"], ())


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yaml", f"a: !{SECRET} x", ":1:4: not valid YAML"),
        ("a.yaml", f"--- # one\nx: 1\n---\npassword: *{SECRET}", ":4:11: not valid YAML"),
        ("a.json", f'{{"token": "{SECRET}', ":1:11: not valid JSON"),
        ("a.json", "[" * 100_000, ": is nested too deep"),
        ("a.yaml", f"- {SECRET}", ": must hold objects, with kind, apiVersion and metadata"),
        ("a.yaml", f"kind: Secret\napiVersion: v1\nstringData: {{token: {SECRET}}}", ": a Secret has no metadata.name"),
        ("a.yaml", f"{CREDENTIALS}data: {{token: {SECRET}}}", ": data.'token' is not base64"),
        ("a.yaml", f"{HEAD}metadata: {{name: ../../x}}", ": the name '../../x' cannot be used"),
        ("a.yaml", f"{HEAD}metadata: {{name: no}}\nproviderSpec: {SECRET}", ": name is not text: put it into quotes"),
        ("a.yaml", f"{HEAD}metadata: {{name: x}}\nproviderSpec: {SECRET}", ": providerSpec is not a mapping"),
        ("a.yaml", f"{HEAD}metadata: {{name: x}}\nsecretRef: {{name: y, namespace: z}}", ": it names a secret of the"),
        ("a.yaml", f"{SMALL}---\n{SMALL}", ": machine class small is there twice"),
        ("a.yaml", "x" * (1 << 20) + "y", ": is larger than 1 MiB"),
    ],
)
def test_case_40_errors_name_file_and_line_and_hold_no_secret(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    snapshot = DirectoryReader(tmp_path).read()
    assert snapshot is not None
    (problem,) = snapshot.problems
    assert problem.startswith(f"{tmp_path / name}{told}"), problem
    assert SECRET not in repr(snapshot)


def test_what_is_no_plain_file_is_left_alone(tmp_path: Path) -> None:
    """To open a pipe would wait for ever."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "directory.yaml").mkdir()
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    snapshot = DirectoryReader(tmp_path).read()
    assert snapshot is not None
    assert (snapshot.classes, snapshot.problems) == ((), ())
    (tmp_path / "latin.yaml").write_bytes(b"\xe9")
    snapshot = DirectoryReader(tmp_path).read()
    assert snapshot is not None
    assert snapshot.problems == (f"{tmp_path / 'latin.yaml'}: is not UTF-8",)


def test_classes_stay_while_the_directory_is_missing_and_it_is_reported_once(tmp_path: Path) -> None:
    place = tmp_path / "classes"
    place.mkdir()
    (place / "a.yaml").write_text(SMALL)
    reader = DirectoryReader(place)
    assert reader.read() is not None
    place.rename(tmp_path / "away")
    snapshot = reader.read()
    assert snapshot is not None
    assert [found.value.name for found in snapshot.classes] == ["small"]
    assert "what was there stays: No such file" in snapshot.problems[0]
    assert reader.read() is None
    (tmp_path / "away").rename(place)
    snapshot = reader.read()
    assert snapshot is not None
    assert snapshot.problems == ()


def test_a_mounted_config_map_is_replaced_as_a_whole_and_never_seen_half(tmp_path: Path) -> None:
    """Kubernetes swaps one link. Two files that belong together are read from the same side of it."""
    turns = 100

    def swap(number: int) -> None:
        (tmp_path / f"..{number}").mkdir()
        for name in ("a", "b"):
            content = f"{HEAD}metadata: {{name: {name}}}\nproviderSpec: {{side: {number:03}}}\n"
            (tmp_path / f"..{number}" / f"{name}.yaml").write_text(content)
            os.utime(tmp_path / f"..{number}" / f"{name}.yaml", (1, 1))
        (tmp_path / "..new").symlink_to(f"..{number}")
        (tmp_path / "..new").rename(tmp_path / "..data")

    swap(100)
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")
    reader = DirectoryReader(tmp_path)
    thread = threading.Thread(target=lambda: deque(map(swap, range(101, 101 + turns)), maxlen=0))
    thread.start()
    seen: list[object] = []
    while thread.is_alive() or not seen or seen[-1] != 100 + turns:
        snapshot = reader.read()
        if snapshot is not None:
            assert snapshot.problems == ()
            first, second = (found.value.provider_spec["side"] for found in snapshot.classes)
            assert first == second
            seen.append(first)


# -- classes of the configuration --------------------------------------------------------------------------------------


def test_a_configured_class_may_have_its_secret_in_a_file_a_directory_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(f"token: {SECRET}\n")
    (tmp_path / "kube.yaml").write_text(
        f"kind: Secret\ndata: {{token: {base64.b64encode(SECRET.encode()).decode()}}}\n"
    )
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "token").write_bytes(SECRET.encode())
    (tmp_path / "mounted" / "..data").mkdir()
    kind = "kind: AcmeMachineClass, apiVersion: machine.example/v1"
    dock = dock_of(
        tmp_path,
        "{allowLocalSecrets: true, "
        f"classes: {{a: {{{kind}, secretFile: plain.yaml}}, b: {{{kind}, secretFile: kube.yaml}}, "
        f"c: {{{kind}, secretDir: mounted}}, d: {{{kind}, secretEnv: {{token: ACME_TOKEN}}}}, e: {{{kind}}}}}}}",
    )
    reader = ConfiguredReader(dock.classes, {"ACME_TOKEN": SECRET})
    snapshot = reader.read()
    assert snapshot is not None
    assert snapshot.problems == ()
    token = {"token": SECRET.encode()}
    assert [found.data for found in snapshot.classes] == [token, token, token, token, None]
    assert json.loads(snapshot.classes[0].value.json)["secretRef"] == {"name": "a"}
    assert reader.read() is None
    put(tmp_path / "mounted" / "token", "another-long-secret")
    snapshot = reader.read()
    assert snapshot is not None
    assert snapshot.classes[2].data == {"token": b"another-long-secret"}


def test_an_unreadable_secret_is_reported_and_the_last_one_stays(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(f"token: {SECRET}\n")
    kind = "kind: AcmeMachineClass, apiVersion: machine.example/v1"
    classes = f"{{a: {{{kind}, secretFile: plain.yaml}}, d: {{{kind}, secretEnv: {{token: ACME_TOKEN}}}}}}"
    text = f"{{allowLocalSecrets: true, classes: {classes}}}"
    reader = ConfiguredReader(dock_of(tmp_path, text).classes, {})
    first = reader.read()
    assert first is not None
    (problem,) = first.problems
    assert problem == "the secret of dock.classes.d: the environment variable 'ACME_TOKEN' is not set"
    assert (first.classes[1].data, first.classes[1].missing) == (None, problem)
    put(tmp_path / "plain.yaml", "token: 12345678\n")
    second = reader.read()
    assert second is not None
    assert second.classes[0].data == {"token": SECRET.encode()}
    assert second.problems[1].endswith("plain.yaml: 'token' is not text: put it into quotes; what was there stays")
    assert "12345678" not in repr(second)


# -- kept in step ------------------------------------------------------------------------------------------------------


async def test_case_38_a_secret_that_is_rotated_in_a_file_reaches_hub_and_drivers(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL)
    (tmp_path / "secret.yaml").write_text(CREDENTIALS)
    feed = ClassFeed(dock_of(tmp_path, "{classesDir: .}"), every=0.01)
    changes: list[tuple[object, ...]] = []
    feed.store.on_changed(lambda *change: changes.append(change))
    async with feed.running():
        assert token_of(feed.store) == SECRET.encode()  # from the beginning
        before = feed.store.ref("small", ACME)
        put(tmp_path / "secret.yaml", CREDENTIALS.replace(SECRET, "another-long-secret"))
        await until(lambda: feed.store.ref("small", ACME) != before)
    assert token_of(feed.store) == b"another-long-secret"
    assert feed.store.ref("small", ACME).revision == before.revision
    assert changes == [(ACME, ["small"], []), (ACME, [], ["acme"])]


async def test_case_39_a_file_that_is_removed_takes_its_classes_from_creates_alone(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{SMALL}---\n{CREDENTIALS}")
    feed = ClassFeed(dock_of(tmp_path, "{classesDir: .}"), every=0.01)
    async with feed.running():
        feed.store.check_create("small", ACME)
        (tmp_path / "a.yaml").unlink()
        await until(lambda: not feed.store.classes())
        with pytest.raises(PreconditionError, match="it was deleted"):
            feed.store.check_create("small", ACME)
        assert token_of(feed.store) == SECRET.encode()


async def test_a_new_configuration_brings_its_own_classes(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.yaml").write_text(SMALL)
    feed = ClassFeed(dock_of(tmp_path, "{classesDir: one}"), every=0.01)
    kind = "kind: AcmeMachineClass, apiVersion: machine.example/v1"
    async with feed.running():
        with pytest.raises(NotFoundError):
            feed.store.get("large", ACME)
        feed.replace(dock_of(tmp_path, f"{{classes: {{large: {{{kind}, providerSpec: {{size: l}}}}}}}}"))
        await until(lambda: [found.name for found in feed.store.classes()] == ["large"])
        assert feed.store.get("large", ACME).provider_spec == {"size": "l"}


async def test_case_40_nothing_secret_is_logged_while_files_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.yaml").write_text(f"{SMALL}---\n{CREDENTIALS}")
    feed = ClassFeed(dock_of(tmp_path, "{classesDir: .}"), every=0.01)
    with caplog.at_level(logging.DEBUG):
        async with feed.running():
            put(tmp_path / "a.yaml", f"{SMALL}---\n{CREDENTIALS}data: {{token: {SECRET}}}")
            await until(lambda: len(feed.store.problems()) == 1)
    records = [str(vars(record)) for record in caplog.records]
    assert records
    assert not [record for record in records if SECRET in record]
