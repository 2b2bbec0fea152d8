"""The stub receiver as a real process: the driver passes conformance against it, and its answers are as described."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.certs.authority import Bundle
from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.conformance.driver.proxy import LosingProxy
from cloudgraft.conformance.report import Status
from cloudgraft.drivers.common.machine_json import dump_json, machine_from_json, machine_to_json, spec_to_json
from cloudgraft.drivers.http import contract
from cloudgraft.drivers.http.driver import HttpDriver
from cloudgraft.drivers.http.options import Options
from cloudgraft.sdk.driver import Driver, MachineSpec
from cloudgraft.sdk.errors import AlreadyExistsError, AuthenticationError, error_table
from scripts.http_receiver import OPERATIONS, SCHEMAS, describe, description_json, receiver_source
from tests.conformance.judging import judged
from tests.drivers.http.json_schema import Described
from tests.drivers.http.misbehaving_server import Rogue, makes
from tests.drivers.http.receiver_process import HMAC_KEY, ReceiverProcess

ROOT = Path(__file__).resolve().parents[3]
SPEC = MachineSpec(name="pool-1", group="pool", settings={"shape": "small"}, tags={"a": "b"}, user_data="#cloud-config")


# -- conformance -------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.timeout(120)
async def test_the_driver_passes_conformance_against_the_stub(tmp_path: Path, bundle: Bundle) -> None:
    """Over TLS with client certificates and signatures."""
    (tmp_path / "full").mkdir()
    wrong_key = tmp_path / "wrong.key"
    wrong_key.write_text("a-key-that-nobody-else-has")
    with (
        ReceiverProcess(tmp_path, bundle, "--page-size", "12") as receiver,
        ReceiverProcess(tmp_path / "full", bundle, "--quota", "0") as full,
    ):

        def troubled(trouble: Trouble) -> Driver | None:
            options = {
                Trouble.QUOTA: full.options(),
                Trouble.AUTHENTICATION: receiver.options(hmac_key_file=wrong_key),
                Trouble.AWAY: Options(url="http://127.0.0.1:9"),
            }
            return HttpDriver(options[trouble]) if trouble in options else None

        settings = DriverSettings(
            machine={"shape": "small"},
            page_size=12,
            late=timedelta(seconds=1),
            secrets=[HMAC_KEY, wrong_key.read_text()],
            troubled=troubled,
        )
        report = await judged(lambda: HttpDriver(receiver.options(providerID="receiver://{name}")), settings)
        assert not report.left_behind
        skipped = {result.check for result in report.results if result.status is Status.SKIPPED}
        assert skipped == {
            "a_crash_in_mid_create_adds_one_at_most",
            "of_two_with_one_name_one_is_deleted",
            "a_lost_answer_is_an_unknown_outcome",  # see below: no proxy can look into TLS
        }
        assert all_machines(receiver) == []


async def test_the_driver_does_not_deny_a_create_whose_answer_was_lost(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path) as receiver, ExitStack() as stack:

        def troubled(trouble: Trouble) -> Driver | None:
            if trouble not in (Trouble.ERROR_AFTER, Trouble.LOST_ANSWER):
                return None
            proxy = stack.enter_context(LosingProxy(receiver.url, trouble))
            return HttpDriver(receiver.options(url=proxy.url))

        settings = DriverSettings(machine={"shape": "small"}, late=timedelta(0), troubled=troubled)
        report = await judged(lambda: HttpDriver(receiver.options()), settings, only=["D37"])
        assert report.results[-1].status is Status.PASSED
        assert all_machines(receiver) == []


def all_machines(receiver: ReceiverProcess) -> list[object]:
    status, answer = receiver.ask("GET", "/machines", headers=signed("GET", "/machines"))
    assert status == 200
    found: list[object] = answer["machines"]
    return found


async def test_what_the_stub_answered_outlives_it(tmp_path: Path, started: Callable[[Options], HttpDriver]) -> None:
    with ReceiverProcess(tmp_path) as receiver:
        made = await started(receiver.options()).create(SPEC)
    with ReceiverProcess(tmp_path) as receiver:
        driver = started(receiver.options())
        assert await driver.create(SPEC) == made
        assert await driver.list() == [made]


# -- signatures --------------------------------------------------------------------------------------------------------


def signed(
    method: str, target: str, body: bytes = b"", *, key: str = HMAC_KEY, at: float | None = None
) -> dict[str, str]:
    moment = int(time.time() if at is None else at)
    return {
        contract.SIGNATURE: contract.sign(key.encode(), method, target, body, at=moment, nonce=secrets.token_hex(16))
    }


def test_a_signature_is_the_one_that_is_documented() -> None:
    """A change would lock out every receiver that is in use. The value was worked out with openssl dgst -hmac."""
    signature = contract.sign(
        b"0123456789abcdef", "PUT", "/v1/machines/a%2Fb?x=1", b'{"a": 1}', at=1_800_000_000, nonce="0" * 32
    )
    assert signature == f"t=1800000000,n={'0' * 32},v1=f053602574c6e4de3ad12b1b912aac88beb297c2541ebd86333ac452252ff443"


async def test_a_replayed_request_is_refused(
    tmp_path: Path, bundle: Bundle, started: Callable[[Options], HttpDriver]
) -> None:
    """Taken from the driver by somebody who listened, and sent again: also after a restart of the receiver."""
    key = tmp_path / "hmac.key"
    key.write_text(HMAC_KEY)
    with Rogue(makes, bundle=bundle) as rogue:
        await started(rogue.options(hmac_key_file=key)).create(SPEC)
        taken = rogue.seen[0]
    for expected in (201, 401):
        with ReceiverProcess(tmp_path, bundle) as receiver:
            status, answer = receiver.ask(taken.method, taken.target, taken.body, taken.headers)
            assert status == expected, answer
            status, answer = receiver.ask(taken.method, taken.target, taken.body, taken.headers)
            assert (status, answer["error"]["code"]) == (401, "unauthenticated")
            assert "seen before" in answer["error"]["message"]


async def test_a_request_that_was_changed_or_is_old_is_refused(tmp_path: Path, bundle: Bundle) -> None:
    body = dump_json(spec_to_json(SPEC))
    target = "/machines/pool-1"
    now = time.time()
    with ReceiverProcess(tmp_path, bundle) as receiver:
        forged: list[tuple[str, str, bytes, dict[str, str], str]] = [
            ("PUT", target, body, {}, "missing"),
            ("PUT", target, body, {contract.SIGNATURE: "t=1,n=x,v2=00"}, "not of the right form"),
            ("PUT", target, body + b" ", signed("PUT", target, body), "signature is wrong"),
            ("PUT", "/machines/pool-2", body, signed("PUT", target, body), "signature is wrong"),
            ("DELETE", target, body, signed("PUT", target, body), "signature is wrong"),
            ("PUT", target + "?x", body, signed("PUT", target, body), "signature is wrong"),
            ("PUT", target, body, signed("PUT", target, body, key="x" * 20), "signature is wrong"),
            ("PUT", target, body, signed("PUT", target, body, at=now - 400), "too old"),
            ("PUT", target, body, signed("PUT", target, body, at=now + 400), "from the future"),
        ]
        for method, path, sent, headers, words in forged:
            status, answer = receiver.ask(method, path, sent, headers)
            assert (status, answer["error"]["code"]) == (401, "unauthenticated")
            assert words in answer["error"]["message"]
        assert receiver.ask("PUT", target, body, signed("PUT", target, body))[0] == 201


async def test_a_wrong_key_or_token_is_an_authentication_error(
    tmp_path: Path, bundle: Bundle, started: Callable[[Options], HttpDriver]
) -> None:
    """And the right ones, once they are in the files, are used at once."""
    token, key = tmp_path / "token", tmp_path / "ours.key"
    token.write_text("a-secret-token")
    with ReceiverProcess(tmp_path, bundle, "--token-file", str(token)) as receiver:
        key.write_text("not-the-right-key")
        ours = tmp_path / "ours.token"
        ours.write_text("not-the-right-token")
        driver = started(receiver.options(hmac_key_file=key, token_file=ours))
        with pytest.raises(AuthenticationError, match="the token is wrong"):
            await driver.list()
        ours.write_text("a-secret-token")
        with pytest.raises(AuthenticationError, match="do both sides have the same key") as caught:
            await driver.create(SPEC)
        key.write_text(HMAC_KEY)
        assert await driver.list() == []
        for secret in ("a-secret-token", HMAC_KEY, "not-the-right"):
            assert secret not in repr(caught.value)
            assert secret not in repr(vars(driver))


# -- the description ---------------------------------------------------------------------------------------------------


def test_generated_files_are_current() -> None:
    """After a change: make docs, or the two functions that are called here."""
    assert (ROOT / "docs/reference/http-driver.openapi.json").read_text() == description_json()
    assert (ROOT / "examples/http/receiver.py").read_text() == receiver_source()


def test_new_receiver_writes_the_generated_program(tmp_path: Path) -> None:
    contract.write_receiver(tmp_path / "receiver.py")
    assert (tmp_path / "receiver.py").read_text() == receiver_source()


def test_the_description_is_whole() -> None:
    """As OpenAPI 3.1 wants it: every reference leads somewhere, everything is used, ids and parameters fit."""
    described = Described(describe())
    document: Any = described.description
    assert document["openapi"].startswith("3.1.")
    assert {"title", "version"} <= document["info"].keys()
    used: set[str] = set()
    for node in nodes(document):
        if "$ref" in node:
            assert described.follow(node)
            used.add(node["$ref"])
    parts = document["components"]
    for kind in ("schemas", "parameters", "responses", "headers"):
        assert {f"#/components/{kind}/{name}" for name in parts[kind]} <= used
    assert {name for choice in document["security"] for name in choice} == parts["securitySchemes"].keys()
    found = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            found.append((operation["operationId"], method.upper(), path))
            assert operation["responses"]
            inside = [described.follow(each) for each in operation.get("parameters", ())]
            assert [f"{{{each['name']}}}" for each in inside if each["in"] == "path"] == [
                part for part in path.split("/") if part.startswith("{")
            ]
    assert sorted(found) == sorted((each.id, each.method, each.path) for each in OPERATIONS)
    bare = {path.partition("{")[0] for path in document["paths"]}
    assert len(bare) == len(document["paths"]), "two paths that differ only in the name of a parameter are one"


def nodes(part: object) -> list[dict[str, Any]]:
    if isinstance(part, dict):
        return [part, *(node for value in part.values() for node in nodes(value))]
    return [node for value in part for node in nodes(value)] if isinstance(part, list) else []


def test_the_schemas_have_the_keys_that_are_read_and_written() -> None:
    schemas: Any = SCHEMAS
    assert schemas["MachineSpec"]["properties"].keys() == spec_to_json(SPEC).keys()
    least = {"name": "a", "machineID": "1"}
    assert set(schemas["Machine"]["required"]) == least.keys()
    assert schemas["Machine"]["properties"].keys() == machine_to_json(machine_from_json(least)).keys()
    codes = schemas["Error"]["properties"]["error"]["properties"]["code"]
    assert codes["enum"] == [error.slug for error in error_table()]


async def test_the_answers_of_the_stub_are_as_described(tmp_path: Path) -> None:
    """Every operation and every schema, and an error of each kind that the stub has."""
    described = Described(describe())
    met: set[tuple[str, str]] = set()
    codes: set[str] = set()

    def ask(receiver: ReceiverProcess, method: str, target: str, body: object = None) -> tuple[int, Any]:
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        status, answer = receiver.ask(method, target, sent)
        key = described.check_answer(method, target, status, answer)
        met.add((described.operation(method, target)["operationId"], key))
        if isinstance(answer, dict) and "error" in answer:
            codes.add(answer["error"]["code"])
        return status, answer

    spec = spec_to_json(SPEC)
    described.check(spec, {"$ref": "#/components/schemas/MachineSpec"})
    with ReceiverProcess(tmp_path, None, "--quota", "2", "--page-size", "1") as receiver:
        status, answer = ask(receiver, "PUT", "/machines/pool-1", spec)
        assert status == 201
        assert ask(receiver, "PUT", "/machines/pool-1", spec) == (200, answer)
        assert ask(receiver, "PUT", "/machines/pool-2", {**spec, "name": "pool-2"})[0] == 201
        assert ask(receiver, "PUT", "/machines/pool-3", {**spec, "name": "pool-3"})[0] == 403
        wrongs: list[object] = [b"{", [], {}, {**spec, "name": "x"}, {**spec, "settings": {"shape": "huge"}}]
        for wrong in wrongs:
            assert ask(receiver, "PUT", "/machines/pool-9", wrong)[0] == 400
        token = ask(receiver, "GET", "/machines")[1]["nextPageToken"]
        assert ask(receiver, "GET", f"/machines?pageToken={token}")[1]["nextPageToken"] == ""
        assert ask(receiver, "GET", "/shapes")[0] == ask(receiver, "GET", "/prices")[0] == 200
        place = f"/machines/{answer['machine']['machineID']}"
        assert ask(receiver, "DELETE", f"{place}?name=pool-2")[0] == 409
        assert ask(receiver, "DELETE", f"{place}?name=pool-1")[0] == 204
        assert ask(receiver, "DELETE", f"{place}?name=pool-1")[0] == 404
        assert receiver.ask("GET", "/nothing")[0] == 404
    assert {operation for operation, _ in met} == {operation.id for operation in OPERATIONS}
    assert codes == {"quota_exceeded", "invalid_argument", "precondition", "not_found"}


def test_a_receiver_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "receiver.py"
    path.write_text("mine")
    with pytest.raises(AlreadyExistsError, match="there already"):
        contract.write_receiver(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "0.0.0.0:0"),
        ("--listen", "0.0.0.0:0", "--token-file", "token"),
        ("--client-ca", "ca.crt"),
        ("--cert", "server.crt"),
    ],
    ids=" ".join,
)
def test_the_stub_is_closed_by_default(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Law 9."""
    contract.write_receiver(tmp_path / "receiver.py")
    command = [sys.executable, "receiver.py", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "--cert" in done.stderr
