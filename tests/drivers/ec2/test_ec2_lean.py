"""Lists skip unnecessary parsing, and have the same result."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.loaders import create_loader
from botocore.parsers import ResponseParserError

from bench.ec2_pages import PAGE, Ec2Pages
from cloudgraft.drivers.ec2.driver import Ec2Driver
from cloudgraft.drivers.ec2.instances import FIELDS
from cloudgraft.drivers.ec2.options import Ec2Options
from cloudgraft.drivers.ec2.session import LeanLoader, LeanParsers
from cloudgraft.sdk.driver import Machine, MachineState


def test_a_list_is_its_pages_and_one_question_for_failed_launches(tmp_path: Path) -> None:
    tags = [{"Name": f"one-{n}", "cloudgraft-name": f"one-{n}", "cloudgraft-cluster-id": "c"} for n in range(PAGE + 1)]
    for name in ("key", "secret"):
        (tmp_path / name).write_text("nobody-knows-it\n", "utf-8")
    with Ec2Pages(tags) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        driver = Ec2Driver(
            Ec2Options(
                region="eu-central-1",
                endpoint_url=server.url,
                access_key_id_file=tmp_path / "key",
                secret_access_key_file=tmp_path / "secret",
            )
        )
        driver.start()
        machines = driver.list()
        driver.close()
        server.shutdown()
    assert server.requests == 3
    assert len(machines) == PAGE + 1
    assert machines[-1] == Machine(
        name="one-1000",
        machine_id="i-000000000000003e8",
        provider_id="aws:///eu-central-1a/i-000000000000003e8",
        state=MachineState.RUNNING,
        tags=tags[-1],
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        addresses=("10.0.4.1", "ip-10-0-4-1.eu-central-1.compute.internal"),
    )


def test_every_field_that_is_read_is_one_that_ec2_has() -> None:
    whole = create_loader()
    lean = LeanLoader(whole)
    read = lean.load_service_model("ec2", "service-2")["shapes"]["Instance"]["members"]
    assert set(read) == FIELDS
    assert len(whole.load_service_model("ec2", "service-2")["shapes"]["Instance"]["members"]) > 40  # still as it was


def test_times_are_read_in_the_forms_that_aws_uses() -> None:
    parser = LeanParsers().create_parser("ec2")
    read = parser._timestamp_parser  # where botocore keeps it
    expected = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    for text in ("2026-03-01T12:30:00Z", "2026-03-01T12:30:00.000Z", "Sun, 01 Mar 2026 12:30:00 GMT"):
        assert read(text) == expected
    with pytest.raises(ValueError, match="nonsense"):
        read("nonsense-T-Z")
    with pytest.raises(ResponseParserError):
        parser._parse_xml_string_to_dom(b"<a><b></a>")  # the error that botocore's callers know
