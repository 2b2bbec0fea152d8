"""A driver of a simulated cloud that dials in, as a process: ADDRESS and the cloud's URL on its command line."""

from __future__ import annotations

import signal
import subprocess
import sys

from cloudgraft.dock import RunnerSettings, run
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from tests.dock.runner.drivers import API_VERSION, KIND


class DriverProcess:
    """The program, to be stopped, frozen and killed."""

    def __init__(self, address: str, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.dock.runner.driver_program", address, url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

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
    address, url = sys.argv[1:]
    run(
        SimulatedDriver(SimulatedOptions(url=url, client="test")),
        address=address,
        kind=KIND,
        api_version=API_VERSION,
        settings=RunnerSettings(first_wait=0.05, longest_wait=0.2),
    )


if __name__ == "__main__":
    main()
