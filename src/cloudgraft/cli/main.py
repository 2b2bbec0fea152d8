"""Runs the ``cloudgraft`` command. Each verb has its own module, which is loaded only when it is used."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import sys
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from cloudgraft._version import __version__
from cloudgraft.cli.groups import Commands
from cloudgraft.net.descriptors import raise_descriptor_limit
from cloudgraft.sdk.common.library_warnings import warnings_never_raise
from cloudgraft.sdk.errors import CloudgraftError

# verb -> its description, in the order of the help. The module is cloudgraft.cli.<verb>, with _ for -.
VERBS = {
    "demo": "Play a short day of an autoscaled cluster, without any setup; `demo liqo`: remote clusters.",
    "serve": "Serve the autoscaler: the providers of a configuration file.",
    "status": "Show the state of a running server: groups, machines, clouds, guards.",
    "explain": "Explain why a group did or did not scale, or what happened to a machine.",
    "doctor": "Find problems of server, autoscaler and cluster, and how to fix them.",
    "events": "Show the events of a running server: what was decided, ordered and done, and why.",
    "scale": "Change the size of a node group by hand: +2, -1 or =5.",
    "pause": "Pause a node group or a whole cloud.",
    "resume": "Resume a paused node group or cloud.",
    "accept-loss": "Accept that many machines are gone or broken at once, which is held back otherwise.",
    "adopt": "Adopt machines that already run into a node group.",
    "orphans": "Find orphans and machines in trouble; adopt, release or delete them.",
    "call": "Make one of the 15 calls to any server, as the autoscaler would.",
    "conformance": "Test any server against the autoscaler's contract: 90 rules, 10 traces.",
    "test-driver": "Test the driver of a cloud against what the engine relies on: 37 rules.",
    "torture": "Kill a server under load with your own driver, and reconcile it with the cloud's list.",
    "certs": "Make, renew and check the certificates for mTLS.",
    "deploy": "Write values for the Helm chart that fit a configuration.",
    "db": "Check, upgrade, export, import and repair the journal.",
    "simcloud": "Run a simulated cloud, with its own ledger and faults on request.",
    "node-manager": "Serve node groups over HTTPS: the engine of several fronts.",
    "discovery": "Find remote clusters that share resources: serve, announce, or show them.",
    "dock": "Serve drivers that dial in, show them, or connect one.",
    "drivers": "List the drivers and providers that are installed, or describe one.",
    "new": "Write a driver, provider or receiver to start from.",
    "completion": "Print the script that completes commands in bash, zsh or fish.",
}


_INTERRUPTED: Final = 128 + signal.SIGINT
_DISK_ERRORS: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # of a write


class _Verbs(Commands):
    """Loads a verb's module when the verb is called, and no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the verb. `help VERB` is `VERB --help`, as in other programs; `help` alone is the whole help."""
        if args[0] != "help":
            return super().resolve_command(ctx, args)
        if ctx.resilient_parsing:  # for completion
            return super().resolve_command(ctx, args[1:]) if args[1:] else (None, None, [])
        if not args[1:]:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().resolve_command(ctx, [*args[1:], "--help"])

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb. Ctrl-C ends it without a traceback, with the exit code that shells expect."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(_INTERRUPTED)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        if cmd_name != "serve":
            # gRPC's library writes its own lines to standard error, and reads this once, when it is loaded. A server
            # keeps them: nothing else reports a client that fails in the TLS handshake.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        module = importlib.import_module(f"cloudgraft.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """The verbs, from the table: no module is loaded."""
        verbs = [CompletionItem(name, help=what) for name, what in VERBS.items() if name.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cloudgraft")
def cloudgraft() -> None:
    """Grafts any cloud onto the Kubernetes Cluster Autoscaler.

    \b
    Try it:      cloudgraft demo
    Serve:       cloudgraft serve --config cloudgraft.yaml
    Look inside: cloudgraft status; cloudgraft explain GROUP
    """


def main() -> None:
    """Entry point. An expected failure is one line on standard error and exit code 1."""
    warnings_never_raise()
    raise_descriptor_limit()
    _print_in_any_encoding()
    try:
        cloudgraft(standalone_mode=True)
    except CloudgraftError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        _end_if_output_fails(error)
        raise
    finally:
        _flush()


def _print_in_any_encoding() -> None:
    """Replaces characters that the terminal's encoding does not have: a name of a cloud must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # a parent process replaced the file by a pipe, which cannot seek
                stream.reconfigure(errors="replace")


def _flush() -> None:
    """Writes what is left. When its reader has ended, ends quietly too: Python would report that as a bug."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        sys.exit(1)
    except OSError as error:
        _end_if_output_fails(error)
        raise


def _end_if_output_fails(error: OSError) -> None:
    """Ends the program with one line if the error is that of a write, such as to a full disk.

    An error with a file name is that of another file, which was to be opened.
    """
    if error.errno not in _DISK_ERRORS or error.filename is not None:
        return
    _discard_output()
    with contextlib.suppress(OSError):  # standard error may be on the same disk
        click.echo(f"error: cannot write the output: {error.strerror}", err=True)
    sys.exit(1)


def _discard_output() -> None:
    """Sends what is still in the buffer nowhere. Python writes it at its end, and would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
