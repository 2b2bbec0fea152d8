"""What a driver declares beside its verbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from cloudgraft.sdk import BlockingDriver, DriverTraits, InvalidArgumentError, Machine, MachineSpec
from cloudgraft.sdk.blocking import as_driver


class Acme(BlockingDriver):
    traits = DriverTraits(provider_id="acme://{name}")

    @dataclass(frozen=True, kw_only=True)
    class MachineSettings:
        shape: str

    def create(self, spec: MachineSpec) -> Machine:
        raise NotImplementedError

    def delete(self, machine: Machine) -> None:
        raise NotImplementedError

    def list(self) -> Sequence[Machine]:
        return []


async def test_a_driver_in_threads_declares_what_the_driver_itself_does() -> None:
    driver = as_driver(Acme())
    assert driver.traits.provider_id == "acme://{name}"
    assert driver.MachineSettings is Acme.MachineSettings
    await driver.close()


@pytest.mark.parametrize("text", ["acme://", "acme://{nmae}", "acme://{region}/{name}", "acme://{name}}", "{name.x}"])
def test_a_provider_id_that_only_the_name_cannot_fill_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must hold \{name\}"):
        DriverTraits(provider_id=text)


def test_a_driver_takes_at_least_one_call_at_a_time() -> None:
    assert DriverTraits(max_calls=1).max_calls == 1
    with pytest.raises(InvalidArgumentError, match="from 1 on"):
        DriverTraits(max_calls=0)


@pytest.mark.parametrize("wrong", [{"catalog_lasts": timedelta(0)}, {"create_timeout": timedelta(seconds=-1)}], ids=str)
def test_times_in_which_nothing_can_be_done_are_refused(wrong: dict[str, timedelta]) -> None:
    with pytest.raises(InvalidArgumentError, match="must be more than zero"):
        DriverTraits(**wrong)  # type: ignore[arg-type]  # names of the case's own choice


def test_most_drivers_do_not_know_the_provider_id_beforehand() -> None:
    assert DriverTraits().provider_id == ""
    assert BlockingDriver.MachineSettings is None
