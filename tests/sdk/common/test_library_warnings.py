"""A library's warning is never an error: not in the tests of drivers, and not in production."""

from __future__ import annotations

import warnings

import pytest

from cloudgraft.sdk.common.library_warnings import warnings_never_raise


def warn(text: str, category: type[Warning], module: str) -> None:
    warnings.warn_explicit(text, category, filename=f"{module}.py", lineno=1, module=module)


@pytest.mark.filterwarnings("ignore:old library")  # else the summary of each run would show it
@pytest.mark.parametrize("category", [DeprecationWarning, UserWarning, Warning])
@pytest.mark.parametrize("module", ["libcloud.common.osc", "testing", "cloudgraft_of_others.driver"])
def test_library_warning_fails_no_test(module: str, category: type[Warning]) -> None:
    warn("old library", category, module)


@pytest.mark.parametrize(
    "module", ["cloudgraft", "cloudgraft.drivers.libcloud.driver", "tests.needs", "test_x", "conftest", "clouds.x"]
)
def test_our_own_warning_fails_a_test(module: str) -> None:
    with pytest.raises(DeprecationWarning):
        warn("old", DeprecationWarning, module)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("unclosed file <_io.TextIOWrapper>", ResourceWarning),
        ("coroutine 'list' was never awaited", RuntimeWarning),
        ("Exception ignored in", pytest.PytestUnraisableExceptionWarning),
        ("Exception in thread", pytest.PytestUnhandledThreadExceptionWarning),
    ],
)
def test_what_the_collector_finds_fails_a_test(text: str, category: type[Warning]) -> None:
    with pytest.raises(category):
        warn(text, category, "asyncio.events")


def test_program_shows_the_warnings_it_was_told_to_raise() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="known", module=r"libcloud\.")
        warnings_never_raise()
        warn("known to be old", DeprecationWarning, "libcloud.common.osc")
        warn("known to be old", DeprecationWarning, "hcloud.client")
        warn("old", UserWarning, "libcloud.common.osc")
    assert [(str(one.message), one.filename) for one in shown] == [
        ("known to be old", "hcloud.client.py"),
        ("old", "libcloud.common.osc.py"),
    ]
