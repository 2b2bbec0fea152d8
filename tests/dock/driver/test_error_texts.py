"""Error texts without a code: which error each means, and what a configuration may say about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.dock.driver import DockOptions
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.texts import TEXTS, TextClasses, error_of_text
from cloudgraft.sdk.errors import ErrorClass, InternalError, NotFoundError, error_table
from cloudgraft.validation.document import Document, Where
from cloudgraft.validation.options import parse_options
from cloudgraft.validation.problems import ConfigError
from scripts.codes_page import codes_page


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity", "out_of_stock"),
        ("InsufficientFreeAddressesInSubnet: There are not enough", "out_of_stock"),
        ("VcpuLimitExceeded: You have requested more vCPU capacity than your limit of 32", "quota_exceeded"),
        ("InstanceLimitExceeded: Your quota allows for 0 more running instance(s)", "quota_exceeded"),
        ("RequestLimitExceeded: Request limit exceeded.\n\tstatus code: 503, request id: 1", "rate_limited"),
        ("UnauthorizedOperation: You are not authorized to perform this operation.", "permission_denied"),
        ("AuthFailure: AWS was not able to validate the provided access credentials", "unauthenticated"),
        ("AuthFailure: Not authorized for images: [ami-1]", "invalid_argument"),
        ("InvalidAMIID.NotFound: The image id '[ami-1]' does not exist", "invalid_argument"),
        ("InvalidParameterValue: Value () for parameter groupId is invalid", "invalid_argument"),
        ("NoCredentialProviders: no valid providers in chain", "unauthenticated"),
        ("RequestError: send request failed\ncaused by: dial tcp: i/o timeout", "deadline"),
        ("RequestError: send request failed\ncaused by: dial tcp: connection refused", "unavailable"),
        (
            "googleapi: Error 403: Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1., quotaExceeded",
            "quota_exceeded",
        ),
        ("The zone does not have enough resources: ZONE_RESOURCE_POOL_EXHAUSTED", "out_of_stock"),
        ('Code="SkuNotAvailable" Message="The requested size is currently not available"', "out_of_stock"),
        ("No valid host was found. There are not enough hosts available.", "out_of_stock"),
        ("Quota exceeded for cores: Requested 8, but already used 20 of 20 cores", "quota_exceeded"),
        ('machineclasses "aws" not found', "not_found"),
        ("Waldi has eaten it", "internal"),
        ("the ReQuotaTion failed", "internal"),
        ("", "internal"),
    ],
)
def test_which_error_a_text_means(text: str, slug: str) -> None:
    """A word counts only as a whole, in upper or lower case."""
    assert error_of_text(text, Verb.CREATE).slug == slug


def test_every_text_of_the_table_means_what_the_table_says() -> None:
    """Else an earlier one hides it."""
    for error, texts in TEXTS.items():
        for text in texts:
            assert error_of_text(f"it failed: {text.replace('*', '')}; sorry", Verb.CREATE) is error, text


def test_no_text_says_that_a_machine_is_gone() -> None:
    for text in TEXTS[NotFoundError]:
        assert error_of_text(text.replace("*", "X"), Verb.DELETE) is InternalError


def test_only_quota_and_stock_are_class_1() -> None:
    full = [error.slug for error in TEXTS if error.error_class is ErrorClass.OUT_OF_RESOURCES]
    assert sorted(full) == ["out_of_stock", "quota_exceeded"]


def test_the_texts_of_a_cloud_come_first_and_in_their_order() -> None:
    own = TextClasses({"no room in rack *": "out_of_stock", "no room": "quota_exceeded", "[a+]": "conflict"})
    assert [own.own(text) for text in ("NO ROOM IN RACK 7", "no rooms", "none")] == [
        next(error for error in error_table() if error.slug == "out_of_stock"),
        None,
        None,
    ]
    room, brackets = own.own("there is no room"), own.own("x [a+] y")
    assert (room and room.slug, brackets and brackets.slug) == ("quota_exceeded", "conflict")


def test_wrong_texts_are_refused_with_their_place() -> None:
    data = {
        "kind": "AcmeMachineClass",
        "apiVersion": "machine.example/v1",
        "machineClass": "small",
        "maxInFlight": 0,
        "errorTexts": {"no room": "out_of_room", "*": "conflict"},
    }
    where = Where(document=Document.without_file("cloud"), base_dir=Path(), path=("clouds", "a"))
    with pytest.raises(ConfigError) as caught:
        parse_options(DockOptions, data, where)
    told = "\n".join(map(str, caught.value.problems))
    assert "maxInFlight: must be more than zero" in told
    assert "'out_of_room' is no error; the errors are invalid_argument, not_found" in told
    assert "would match every error" in told


def test_the_page_has_every_text() -> None:
    page = codes_page()
    for error, texts in TEXTS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{error.slug}`"))
        assert all(f"`{text}`" in row for text in texts)
