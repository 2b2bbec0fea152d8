"""The store of machine classes: revisions, who may see what, and what becomes of what is deleted."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cloudgraft.dock.classes.declared import Declared, Snapshot, class_of, secret_data
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError, UnavailableError
from cloudgraft.sdk.secrecy import redacted

ACME = Key(kind="AcmeMachineClass", api_version="machine.example/v1")
OTHER = Key(kind="OtherMachineClass", api_version="machine.example/v1")
SECRET = "correct-horse-battery"


def declared(name: str = "small", key: Key = ACME, *, secret: str | None = SECRET, **more: Any) -> Declared:
    """A class with a secret of its name; None: it names one that is not there."""
    content = {
        "apiVersion": key.api_version,
        "kind": key.kind,
        "metadata": {"name": name},
        "providerSpec": {"size": "s"},
        "secretRef": {"name": f"{name}-secret"},
        **more,
    }
    return class_of(content, lambda _: None if secret is None else {"token": secret.encode()})


def store_of(*classes: Declared) -> MachineClasses:
    store = MachineClasses(["here"], first_revision=1)
    store.publish("here", Snapshot(classes=classes))
    return store


def now(store: MachineClasses, *classes: Declared) -> None:
    store.publish("here", Snapshot(classes=classes))


class Told:
    """What a listener heard."""

    def __init__(self, store: MachineClasses) -> None:
        self.changes: list[tuple[Key, Sequence[str], Sequence[str]]] = []
        store.on_changed(lambda *change: self.changes.append(change))


# -- what is there -----------------------------------------------------------------------------------------------------


def test_a_class_and_its_secret_are_what_was_written() -> None:
    store = store_of(declared(nodeTemplate={"zone": "a"}))
    found = store.get("small", ACME)
    assert (found.name, found.key, found.secret) == ("small", ACME, "small-secret")
    assert (found.provider_spec, found.node_template) == ({"size": "s"}, {"zone": "a"})
    assert json.loads(found.json)["metadata"] == {"name": "small"}
    secret = store.secret(found)
    assert secret is not None
    assert (secret.name, secret.data) == ("small-secret", {"token": SECRET.encode()})
    assert store.ref("small", ACME).revision == found.revision
    assert store.ref("small", ACME).secret_revision == secret.revision


def test_a_class_that_names_no_secret_needs_none() -> None:
    store = store_of(declared(secretRef=None))
    assert store.secret(store.get("small", ACME)) is None
    assert store.ref("small", ACME).secret_revision == 0


def test_a_revision_grows_when_the_content_changes_and_only_then() -> None:
    store = store_of(declared(), declared("large"))
    told = Told(store)
    first = store.ref("small", ACME)
    now(store, declared(), declared("large"))
    assert store.ref("small", ACME) == first
    now(store, declared(providerSpec={"size": "m"}), declared("large"))
    second = store.ref("small", ACME)
    assert second.revision > first.revision
    assert second.secret_revision == first.secret_revision
    assert told.changes == [(ACME, ["small"], [])]


def test_a_secret_of_several_classes_is_announced_once_and_renaming_is_no_change() -> None:
    shared: dict[str, Any] = {"secretRef": {"name": "shared"}}
    store = store_of(declared(**shared), declared("large", **shared))
    told = Told(store)
    before = store.ref("small", ACME)
    new = "a-new-secret-value"
    now(store, declared(secret=new, **shared), declared("large", secret=new, **shared))
    assert told.changes == [(ACME, [], ["shared"])]
    rotated = store.ref("small", ACME)
    assert rotated.secret_revision > before.secret_revision
    now(store, declared(secret=new, secretRef={"name": "renamed"}))
    secret = store.secret(store.get("small", ACME))
    assert secret is not None
    assert (secret.name, secret.revision) == ("renamed", rotated.secret_revision)


def test_what_changes_by_itself_in_an_object_changes_no_revision() -> None:
    noise: Mapping[str, object] = {
        "name": "small",
        "resourceVersion": "7",
        "generation": 2,
        "managedFields": [{}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    store = store_of(declared())
    first = store.ref("small", ACME)
    now(store, declared(metadata=noise))
    assert store.ref("small", ACME) == first


def test_a_store_that_is_started_later_begins_with_a_higher_revision() -> None:
    """What a driver remembers of an earlier hub must not look like the present; v0 has 32 bits for it."""
    store = MachineClasses(["here"])
    now(store, declared())
    assert 0 < store.ref("small", ACME).secret_revision < 2**31
    earlier = store_of(declared())
    assert earlier.ref("small", ACME).revision < store.ref("small", ACME).revision


def test_the_first_of_two_sources_of_a_class_wins_and_it_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    store = MachineClasses(["one", "two"])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            store.publish("two", Snapshot(classes=(declared(providerSpec={"size": "second"}), declared("other"))))
            store.publish("one", Snapshot(classes=(declared(),)))
    assert store.get("small", ACME).provider_spec == {"size": "s"}
    assert [found.name for found in store.classes()] == ["small", "other"]
    assert store.problems() == ["machine class small of two is already one of one"]
    assert len(caplog.records) == 1
    store.publish("one", Snapshot())
    assert store.get("small", ACME).provider_spec == {"size": "second"}


def test_no_class_counts_as_missing_before_every_source_was_read() -> None:
    store = MachineClasses(["one", "two"])
    store.publish("one", Snapshot(classes=(declared(),)))
    assert store.get("small", ACME).name == "small"
    with pytest.raises(UnavailableError, match=r"still being read \(two\); 'large' is not known yet"):
        store.get("large", ACME)


def test_a_failing_listener_does_not_stop_the_others() -> None:
    store = store_of()
    store.on_changed(lambda *_: 1 / 0)  # type: ignore[arg-type]  # raises before it returns anything
    told = Told(store)
    now(store, declared())
    assert told.changes == [(ACME, ["small"], [])]


def test_the_credentials_are_laid_over_the_rest_of_the_secret() -> None:
    """User data differs from pool to pool, credentials are shared."""
    secrets = {
        ("ns", "pool"): {"userData": b"boot", "token": b"none"},
        ("ns", "cloud"): {"token": SECRET.encode()},
    }
    content = {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClass",
        "provider": "Acme",
        "metadata": {"name": "small", "namespace": "ns"},
        "secretRef": {"name": "pool", "namespace": "ns"},
        "credentialsSecretRef": {"name": "cloud"},
    }
    key = Key(kind="AcmeMachineClass", api_version="machine.sapcloud.io/v1alpha1")
    store = store_of(class_of(content, secrets.get))
    secret = store.secret(store.get("small", key))
    assert secret is not None
    assert (secret.name, secret.namespace) == ("cloud", "ns")
    assert (store.get("small", key).secret, store.get("small", key).also_named) == ("cloud", "pool")
    assert secret.data == {"userData": b"boot", "token": SECRET.encode()}


def test_a_class_of_2018_has_its_spec_and_its_secret_below_spec() -> None:
    content = {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "AWSMachineClass",
        "metadata": {"name": "small", "namespace": "ns"},
        "spec": {"ami": "ami-1", "secretRef": {"name": "aws", "namespace": "ns"}},
    }
    found = class_of(content, {("ns", "aws"): {"providerAccessKeyId": b"x"}}.get)
    assert (found.value.key.kind, found.value.provider_spec["ami"], found.secrets) == (
        "AWSMachineClass",
        "ami-1",
        (("ns", "aws"),),
    )
    assert found.data == {"providerAccessKeyId": b"x"}


# -- the numbered cases ------------------------------------------------------------------------------------------------


def test_case_36_classes_of_another_kind_are_answered_as_not_found() -> None:
    store = store_of(declared(), declared("large", OTHER))
    words = []
    for name in ("large", "never"):
        with pytest.raises(NotFoundError) as caught:
            store.get(name, ACME)
        words.append(caught.value.message.replace(name, "…"))
        with pytest.raises(NotFoundError):
            store.ref(name, ACME)
    assert words == ["there is no machine class '…' of AcmeMachineClass (machine.example/v1)"] * 2


def test_case_36_two_kinds_may_have_classes_of_one_name_and_see_only_their_own() -> None:
    store = store_of(declared(), declared(key=OTHER, secret="another-secret", providerSpec={"size": "other"}))
    assert store.get("small", OTHER).provider_spec == {"size": "other"}
    secret = store.secret(store.get("small", OTHER))
    assert secret is not None
    assert secret.data == {"token": b"another-secret"}


def test_case_36_a_class_cannot_name_a_secret_of_another_namespace() -> None:
    """Else whoever may write classes could have any Secret of the cluster handed to a driver."""
    with pytest.raises(InvalidArgumentError, match="secret of the namespace 'kube-system': only those of its own"):
        declared(secretRef={"name": "admin", "namespace": "kube-system"})


TRICKS = [
    "",
    ".",
    "..",
    "../small",
    "/etc/passwd",
    "small/../small",
    "..%2fsmall",
    "small\0",
    "SMALL",
    "a" * 10_000,
    "\ud800",
]


@pytest.mark.parametrize("name", TRICKS, ids=range(len(TRICKS)))
def test_case_37_path_tricks_in_a_name_find_nothing(name: str) -> None:
    store = store_of(declared())
    with pytest.raises(NotFoundError) as caught:
        store.get(name, ACME)
    assert len(caught.value.message) < 300
    assert caught.value.message.isprintable()
    with pytest.raises(InvalidArgumentError):
        declared(name)
    with pytest.raises(InvalidArgumentError):
        declared(secretRef={"name": name})


def test_case_38_a_secret_that_is_rotated_reaches_the_next_operation_not_the_present_one() -> None:
    store = store_of(declared())
    told = Told(store)
    present, ref = store.secret(store.get("small", ACME)), store.ref("small", ACME)
    now(store, declared(secret="a-new-secret-value"))
    assert present is not None
    assert present.data == {"token": SECRET.encode()}  # what the operation began with
    assert told.changes == [(ACME, [], ["small-secret"])]  # by the secret's own name
    following = store.ref("small", ACME)
    assert (following.revision, following.secret_revision > ref.secret_revision) == (ref.revision, True)
    latest = store.secret(store.get("small", ACME))
    assert latest is not None
    assert latest.data == {"token": b"a-new-secret-value"}
    now(store, declared(secret="a-new-secret-value"))
    assert store.ref("small", ACME) == following


def test_case_39_a_class_that_was_deleted_is_kept_for_its_machines_but_makes_no_more() -> None:
    store = store_of(declared(), declared("large"))
    before, ref = store.get("small", ACME), store.ref("small", ACME)
    now(store, declared("large"))
    assert (store.get("small", ACME), store.ref("small", ACME)) == (before, ref)
    assert store.secret(before) is not None
    store.check_create("large", ACME)
    with pytest.raises(
        PreconditionError, match=r"'small' of AcmeMachineClass .*: it was deleted, and is kept only for"
    ):
        store.check_create("small", ACME)
    assert [found.name for found in store.classes()] == ["large"]
    now(store, declared(), declared("large"))
    store.check_create("small", ACME)
    assert store.ref("small", ACME) == ref  # the same content is the same revision


def test_case_39_a_class_whose_deletion_was_asked_for_makes_no_more_machines() -> None:
    store = store_of(declared(metadata={"name": "small", "deletionTimestamp": "2026-01-01T00:00:00Z"}))
    assert store.get("small", ACME).name == "small"
    with pytest.raises(PreconditionError, match="it is being deleted"):
        store.check_create("small", ACME)


def test_case_39_a_deleted_secret_is_kept_and_a_missing_one_is_an_error() -> None:
    store = store_of(declared(), declared("large", secret=None))
    before = store.secret(store.get("small", ACME))
    now(store, declared(secret=None), declared("large", secret=None))
    assert store.secret(store.get("small", ACME)) == before
    with pytest.raises(PreconditionError, match="there is no secret small-secret"):
        store.check_create("small", ACME)
    with pytest.raises(NotFoundError, match="machine class 'large': there is no secret large-secret"):
        store.secret(store.get("large", ACME))
    with pytest.raises(NotFoundError):
        store.check_create("never", ACME)


def test_case_39_of_many_that_were_deleted_the_latest_are_kept() -> None:
    store = store_of(*(declared(f"c{number}", secret=f"secret-number-{number}") for number in range(1009)))
    now(store)
    assert store.get("c1008", ACME).name == "c1008"
    with pytest.raises(NotFoundError):
        store.get("c0", ACME)


def test_case_40_a_secret_is_shown_nowhere_until_long_after_it_was_replaced(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    store = MachineClasses(["here"], clock=lambda: clock[0])
    with caplog.at_level(logging.DEBUG):
        now(store, declared())
        secret = store.secret(store.get("small", ACME))
        shown = f"{secret!r} {store.get('small', ACME)!r} {declared()!r} {Snapshot(classes=(declared(),))!r}"
        assert SECRET not in shown + caplog.text
        assert redacted(f"{SECRET} Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5") == "[secret] [secret]"  # as Kubernetes writes it
        now(store, declared(secret="a-new-secret-value"))
        assert redacted(SECRET) == "[secret]"  # an operation that began before may still tell of it
        clock[0] = 3601.0
        now(store, declared(secret="a-new-secret-value"))
        assert redacted(f"{SECRET} a-new-secret-value") == f"{SECRET} [secret]"


def test_case_40_a_line_of_a_private_key_is_hidden_too() -> None:
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
    store_of(declared(secret=f"-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n"))
    assert redacted(f"cannot parse {line}") == "cannot parse [secret]"


@pytest.mark.parametrize(
    "content",
    [
        {"data": {"token": SECRET}},
        {"data": {"token": ["x", SECRET]}},
        {"stringData": {"token": {SECRET: 1}}},
        {"data": SECRET},
    ],
)
def test_case_40_errors_about_a_secret_do_not_quote_it(content: Mapping[str, object]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        secret_data(content)
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"kind": "../x"}, "kind and apiVersion must be like"),
        ({"kind": 7}, "kind is not text"),
        ({"apiVersion": None}, "kind and apiVersion must be like"),
        ({"metadata": []}, "metadata is not a mapping"),
        ({"providerSpec": "s"}, "providerSpec is not a mapping"),
        ({"nodeTemplate": 1}, "nodeTemplate is not a mapping"),
        ({"providerSpec": {"x": float("inf")}}, "something that JSON cannot"),
    ],
)
def test_what_is_no_class_is_refused_with_the_reason(more: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        declared(**more)
