"""Virtual media of a system: images that its controller fetches, and shows to it as drives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sushy.exceptions import MissingAttributeError

from cloudgraft.sdk.errors import ConflictError, UnsupportedError

__all__ = ["eject_all", "insert_all"]

_DISCS: Final = frozenset({"CD", "DVD"})
_STICKS: Final = ("USBStick", "Floppy")  # a system finds the seed by its label on any of them


def eject_all(system: Any, host: str) -> None:
    """Takes out whatever is in, and looks that it is: the library is silent about a refusal."""
    for drive in _drives(system):
        if not drive.inserted:
            continue
        drive.eject_media()
        drive.refresh(force=True)
        if drive.inserted:
            raise ConflictError(f"{host}: its controller does not eject {drive.identity}")


def insert_all(system: Any, image: str, seed: str, host: str) -> None:
    """Puts in the image, as a disc; and the seed, into another drive, as a disc or as a stick."""
    drives = list(_drives(system))
    discs = [drive for drive in drives if _types(drive) & _DISCS]
    sticks = [drive for kind in _STICKS for drive in drives if kind in _types(drive) and drive not in discs]
    places = [*discs, *dict.fromkeys(sticks)]
    wanted = [url for url in (image, seed) if url]
    if not discs or len(places) < len(wanted):
        there = ", ".join(str(drive.identity) for drive in drives) or "none"
        raise UnsupportedError(
            f"{host}: its controller has too few virtual drives for {len(wanted)} images: {there}; see machine.image"
        )
    for drive, url in zip(places, wanted, strict=False):
        drive.insert_media(url)


def _drives(system: Any) -> Iterator[Any]:
    """Those of the system, or, of older controllers, those of its managers."""
    collection = None
    with contextlib.suppress(MissingAttributeError):
        collection = system.virtual_media
    collections = [collection] if collection is not None else _of_managers(system)
    for one in collections:
        yield from one.get_members()


def _of_managers(system: Any) -> Sequence[Any]:
    found = []
    with contextlib.suppress(MissingAttributeError):
        for manager in system.managers:
            with contextlib.suppress(MissingAttributeError):
                found.append(manager.virtual_media)
    return found


def _types(drive: Any) -> set[str]:
    return {kind.value for kind in drive.media_types or ()}
