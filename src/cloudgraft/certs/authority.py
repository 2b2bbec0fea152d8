"""Keeps a certificate authority in a directory: `ca`, `server`, `client` and more, each a `.crt` and a `.key`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cloudgraft.certs.defaults import DEFAULT_CLIENT
from cloudgraft.certs.issue import Pair, Validity, client_pair, new_authority, reissue, server_pair
from cloudgraft.certs.names import parse_client_name, parse_host, parse_hosts
from cloudgraft.certs.pem import load_certificate, load_key
from cloudgraft.sdk.common.files import exists, is_directory
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
)

# -- atomic writes -----------------------------------------------------------------------------------------------------
# Every file is written in full under another name in the same directory, flushed to the disk, and then renamed. Two
# files cannot be renamed in one step, so for an instant a reader may find the new key beside the old certificate. That
# instant is as short as two renames, because everything that can fail or take time is done before the first. The order
# is the caller's: **keys first, certificates last**, so that a process that waits for a certificate to change finds the
# key in place already. A reader that finds a pair that does not match keeps the old one and reads again.


_SUFFIX = ".cloudgraft-new"  # an interrupted run may leave such files; the next one removes them


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to be written. A secret one is readable by its owner only."""

    path: Path
    content: bytes = field(repr=False)
    secret: bool


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the directory for one writer at a time; a second one is refused at once. Makes it if it is not there."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _failed(directory, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"another process is writing certificates in {directory}: try again") from None
        for left_over in directory.glob(f".*{_SUFFIX}"):
            with contextlib.suppress(OSError):
                left_over.unlink()
        yield
    finally:
        os.close(handle)  # and with it goes the lock


def create_files(files: Sequence[NewFile]) -> None:
    """Writes files that do not exist yet: all of them, or none. Call it with the directory locked."""
    existing = [file.path for file in files if os.path.lexists(file.path)]
    if existing:
        names = ", ".join(str(path) for path in existing)
        raise AlreadyExistsError(f"{names}: will not be overwritten; use `certs renew`, or another directory")
    _write(files)


def replace_files(files: Sequence[NewFile]) -> None:
    """Replaces files in the order given; owner and mode stay as they are. Call it with the directory locked."""
    _write([NewFile(path=Path(os.path.realpath(f.path)), content=f.content, secret=f.secret) for f in files])


def _write(files: Sequence[NewFile]) -> None:
    staged: list[tuple[Path, Path]] = []
    try:
        for file in files:
            temporary = file.path.with_name(f".{file.path.name}.{secrets.token_hex(4)}{_SUFFIX}")
            staged.append((temporary, file.path))
            _stage(file, temporary)
        for temporary, path in staged:
            temporary.replace(path)
        for directory in {path.parent for _, path in staged}:
            _flush(directory)
    except OSError as error:
        raise _failed(Path(error.filename or files[0].path), error) from error
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _stage(file: NewFile, temporary: Path) -> None:
    """Writes the content under its temporary name, with the owner and mode that the final file is to have."""
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if file.secret else 0o644)
    with os.fdopen(handle, "wb") as stream:
        with contextlib.suppress(FileNotFoundError):
            old = file.path.stat()
            new = os.fstat(stream.fileno())
            # A server that runs as another user must still be able to read its key after root renewed it.
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.fchown(stream.fileno(), old.st_uid, old.st_gid)
            mode = stat.S_IMODE(old.st_mode)
            os.fchmod(stream.fileno(), mode & 0o770 if file.secret else mode)
        stream.write(file.content)
        stream.flush()
        os.fsync(stream.fileno())


def _flush(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _failed(path: Path, error: OSError) -> PreconditionError:
    return PreconditionError(
        f"cannot write {path}: {error.strerror or error}; nothing that was there before has been removed"
    )


What = Literal["server", "client", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The paths of the files of one directory."""

    directory: Path
    ca_cert: Path
    ca_key: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path

    @classmethod
    def at(cls, directory: Path) -> Bundle:
        """The paths in a directory. The names are fixed; the files may not exist."""
        paths = {
            f"{who}_{what}": directory / f"{who}.{suffix}"
            for who in ("ca", "server", "client")
            for what, suffix in (("cert", "crt"), ("key", "key"))
        }
        return cls(directory=directory, **paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """The result of `renew`: the replaced certificates, their new end, and notes."""

    renewed: tuple[Path, ...]
    not_after: datetime
    warnings: tuple[str, ...] = ()


def create_bundle(
    directory: Path,
    *,
    hosts: Sequence[str],
    client_name: str = DEFAULT_CLIENT,
    days: int = 365,
    ca_days: int = 3650,
    not_before: datetime | None = None,
    not_after: datetime | None = None,
) -> Bundle:
    """Makes an authority, a server's certificate for ``hosts`` and a client's certificate.

    Never overwrites: AlreadyExistsError when one of the files exists. ``not_before`` and ``not_after`` override the
    times of server and client, not those of the authority: that is for tests that need an expired certificate.
    """
    parsed, name = parse_hosts(hosts), parse_client_name(client_name)
    validity = _overridden(Validity.days(days), not_before, not_after)
    ca_validity = Validity.days(ca_days)
    if ca_validity.not_after < validity.not_after:
        raise InvalidArgumentError(
            f"the authority would end before its certificates do: give it more than {ca_days} days"
        )
    ca = new_authority(ca_validity)
    bundle = Bundle.at(directory)
    files = [
        *_files(bundle.ca_cert, ca),
        *_files(bundle.server_cert, server_pair(ca, parsed, validity)),
        *_files(bundle.client_cert, client_pair(ca, name, validity)),
    ]
    with locked(directory):
        create_files(files)
    return bundle


def issue_client(
    directory: Path,
    name: str,
    *,
    days: int = 365,
    not_before: datetime | None = None,
    not_after: datetime | None = None,
) -> tuple[Path, Path]:
    """Makes a certificate for one more client, in ``NAME.crt`` and ``NAME.key``; returns the two paths."""
    client = parse_client_name(name)
    if client in {"ca", "server", "client"}:
        raise InvalidArgumentError(f"{client!r} is the name of other files here: choose another")
    path = directory / f"{client}.crt"
    ca = _load_ca(directory)
    validity, _ = _within(ca, _overridden(Validity.days(days), not_before, not_after))
    with locked(directory):
        create_files(_files(path, client_pair(ca, client, validity)))
    return path, path.with_suffix(".key")


def renew(
    directory: Path, *, what: What = "all", days: int = 365, add_hosts: Sequence[str] = (), keep_keys: bool = False
) -> Renewal:
    """Issues server and client certificates again, by the same authority and for the same names, for ``days`` from now.

    ``add_hosts`` go into the server's certificate beside those it has. A running server and old clients notice
    nothing, because the authority stays. With ``keep_keys`` only the certificates change, and no reader can ever see a
    pair that does not match; otherwise each key is replaced an instant before its certificate. After a crash in that
    instant, the next renewal repairs the pair.
    """
    hosts = [parse_host(host) for host in add_hosts]
    if hosts and what == "client":
        raise InvalidArgumentError("hosts belong into the server's certificate: renew `server` or `all`")
    if not is_directory(directory):
        raise NotFoundError(f"{directory} is not a directory; make one with `cloudgraft certs init {directory}`")
    ca = _load_ca(directory)
    validity, warnings = _within(ca, Validity.days(days))
    with locked(directory):
        paths = _selected(directory, what, ca)
        files: list[NewFile] = []
        for path in paths:
            key = load_key(path.with_suffix(".key")) if keep_keys else None
            added = hosts if path.name == "server.crt" else []
            pair = reissue(ca, load_certificate(path), validity, add_hosts=added, key=key)
            new_certificate, new_key = _files(path, pair)
            files += [new_certificate] if keep_keys else [new_key, new_certificate]
        replace_files(files)
    return Renewal(renewed=tuple(paths), not_after=validity.not_after, warnings=tuple(warnings))


def _selected(directory: Path, what: What, ca: Pair) -> list[Path]:
    """The certificates to renew: the server's, and every client's that this authority has signed."""
    server = directory / "server.crt"
    clients = [
        path
        for path in sorted(directory.glob("*.crt"))
        if path.name not in {"ca.crt", "server.crt"}
        and exists(path.with_suffix(".key"))
        and load_certificate(path).issuer == ca.certificate.subject
    ]
    servers = [server] if exists(server) else []
    chosen = {"server": servers, "client": clients, "all": [*servers, *clients]}[what]
    if not chosen:
        wanted = "certificate" if what == "all" else f"{what} certificate"
        raise NotFoundError(f"there is no {wanted} to renew in {directory}")
    return chosen


def _within(ca: Pair, validity: Validity) -> tuple[Validity, list[str]]:
    """The validity, cut to the authority's own end: no client accepts a certificate for longer than its issuer."""
    end = ca.certificate.not_valid_after_utc
    if end <= datetime.now(UTC):
        raise PreconditionError(
            f"the authority itself ended on {end:%Y-%m-%d}, so nothing it signs is accepted any more: make a new one "
            "with `cloudgraft certs init` in another directory, and give its ca.crt to server and clients"
        )
    if end >= validity.not_after:
        return validity, []
    cut = Validity(not_before=min(validity.not_before, ca.certificate.not_valid_before_utc), not_after=end)
    return cut, [f"the authority ends on {end:%Y-%m-%d}, so this certificate does too: plan for a new authority"]


def _overridden(validity: Validity, not_before: datetime | None, not_after: datetime | None) -> Validity:
    return Validity(not_before=not_before or validity.not_before, not_after=not_after or validity.not_after)


def _files(certificate: Path, pair: Pair) -> tuple[NewFile, NewFile]:
    return (
        NewFile(path=certificate, content=pair.certificate_pem, secret=False),
        NewFile(path=certificate.with_suffix(".key"), content=pair.key_pem, secret=True),
    )


def _load_ca(directory: Path) -> Pair:
    bundle = Bundle.at(directory)
    for path in (bundle.ca_cert, bundle.ca_key):
        if not exists(path):
            raise NotFoundError(
                f"{path} does not exist, and nothing can be signed without it: "
                "run this where `cloudgraft certs init` was run"
            )
    ca = Pair(certificate=load_certificate(bundle.ca_cert), key=load_key(bundle.ca_key))
    if ca.certificate.public_key() != ca.key.public_key():
        raise PreconditionError(f"{bundle.ca_key} is not the key of {bundle.ca_cert}: bring back the right one")
    return ca
