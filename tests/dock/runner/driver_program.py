"""A driver of a simulated cloud that dials in, as a process: ADDRESS, the cloud's URL and the protocol as arguments."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Self

from cloudgraft.dock import RunnerSettings, Speech, run
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from tests.dock.runner.drivers import API_VERSION, KIND


class DriverProcess:
    """The program, to be stopped, frozen and killed."""

    def __init__(self, address: str, url: str, speech: Speech = Speech.V1) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.dock.runner.driver_program", address, url, speech.value],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(30)
        assert self.process.stderr is not None
        self.log = self.process.stderr.read()
        self.process.stderr.close()
        return code


def main() -> None:
    address, url, speech = sys.argv[1:]
    run(
        SimulatedDriver(SimulatedOptions(url=url, client="test")),
        address=address,
        kind=KIND,
        api_version=API_VERSION,
        settings=RunnerSettings(first_wait=0.05, longest_wait=0.2, speech=Speech(speech)),
    )


if __name__ == "__main__":
    main()
