"""The two servers as child processes, and what the system knows of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

BARE = "bare"
CLOUDGRAFT = "cloudgraft"
_ROOT = Path(__file__).resolve().parent.parent
_SECONDS_TO_STOP = 10


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that is up."""

    kind: str
    address: str
    pid: int

    def resident_kib(self) -> int | None:
        """The memory it holds now; None where there is no /proc."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except FileNotFoundError:
            return None
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def cpu_seconds(self) -> float | None:
        """The processor time that its threads have used so far; None where the system does not tell."""
        try:
            files = list(Path(f"/proc/{self.pid}/task").glob("*/schedstat"))
            nanoseconds = [int(file.read_text().split()[0]) for file in files]
        except (FileNotFoundError, ProcessLookupError):  # a thread that ended between the two lines
            return None
        return sum(nanoseconds) / 1e9 if nanoseconds else None


@contextmanager
def both_servers(
    constants: Mapping[str, bytes], nodes: int, certificates: Path | None
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """The bare server with these answers and ours with that many nodes; with mTLS when there are certificates."""
    tls = () if certificates is None else ("--certificates", str(certificates))
    words = [f"{path}={answer.hex()}" for path, answer in constants.items()]
    with ExitStack() as stack:
        processes = {  # both are on their way before the first is waited for
            kind: stack.enter_context(_child(module))
            for kind, module in (
                (BARE, ["bench.bare_server", *words, *tls]),
                (CLOUDGRAFT, ["bench.cloudgraft_server", str(nodes), *tls]),
            )
        }
        yield _wait_for(BARE, processes[BARE]), _wait_for(CLOUDGRAFT, processes[CLOUDGRAFT])


@contextmanager
def _child(module: Sequence[str]) -> Iterator[Popen[str]]:
    with Popen([sys.executable, "-m", *module], cwd=_ROOT, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            process.wait(_SECONDS_TO_STOP)
        finally:
            process.kill()


def _wait_for(kind: str, process: Popen[str]) -> ServerProcess:
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    if not address:
        raise RuntimeError(f"the {kind} server did not start: its own message is above")
    return ServerProcess(kind, address, process.pid)
