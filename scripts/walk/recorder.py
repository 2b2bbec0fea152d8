"""Notes which module's function is entered, in every thread, in the order of time.

Python 3.12 and later report the entries themselves (``sys.monitoring``). Python 3.11 has the hook for profilers, which
also reports generators and coroutines that go on after a pause: these are told apart and left out.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# Python 3.12 and later run these inside the function that they stand in, and report no entry.
_COMPREHENSIONS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_PAUSE = 0.005  # seconds between two looks whether anything happens


class Recorder:
    """The entries into functions of one package. Threads that were started before :meth:`start` may be missed."""

    def __init__(self, package: Path, *, apart: str = "") -> None:
        """``package`` is the folder of the package; its name is that of the folder.

        What is called by a module of the package ``apart`` is noted as an entry of that module.
        """
        self._apart = apart
        self._root = f"{package.resolve()}/"
        self._modules: dict[str, str] = {}  # file -> module; empty for files of others
        self._entries: list[str] = []
        self._learnt: set[tuple[CodeType, ...]] | None = None  # while chores are learnt
        self._chores: set[tuple[CodeType, ...]] = set()
        self._never_again: Any = None

    def start(self) -> None:
        """Begins to note entries."""
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            self._never_again = monitoring.DISABLE
            monitoring.use_tool_id(monitoring.PROFILER_ID, "walk")
            monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.PY_START, self._on_start)
            monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_START)
        else:
            threading.setprofile(self._on_profile)
            sys.setprofile(self._on_profile)

    def stop(self) -> None:
        """Notes no more."""
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(sys.monitoring.PROFILER_ID, 0)
            sys.monitoring.free_tool_id(sys.monitoring.PROFILER_ID)
            sys.monitoring.restart_events()  # for the next user of this tool id
        else:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def learning_chores(self) -> Iterator[None]:
        """What the main thread does while the block lasts is a chore: nothing is asked of the program then.

        From then on, a function that is called in the very same way, from the task's beginning on, is not noted.
        """
        self._learnt = set()
        yield
        self._chores, self._learnt = self._learnt, None

    def mark(self) -> int:
        """This moment, for :meth:`since`."""
        return len(self._entries)

    def since(self, mark: int) -> Sequence[str]:
        """The modules whose functions were entered since then, one for each entry."""
        return self._entries[mark:]

    def wait_for_calm(self, mark: int, *, calm: float = 0.06, most: float = 1.0) -> None:
        """Returns when something has happened since ``mark`` and then nothing for ``calm`` seconds; or after ``most``.

        Asking the server whether it is done would itself be noted, so this looks at the entries only.
        """
        end = time.monotonic() + most
        seen, since = mark, time.monotonic()
        while (now := time.monotonic()) < end:
            count = len(self._entries)
            if count != seen:
                seen, since = count, now
            elif count > mark and now - since >= calm:
                return
            time.sleep(_PAUSE)

    # -- one entry -----------------------------------------------------------------------------------------------------

    def _on_start(self, code: CodeType, offset: int) -> Any:
        module = self._module(code)
        if module:
            self._note(module, sys._getframe(1))  # noqa: SLF001 - the function that was entered
            return None
        # What is not of the package is not reported again, so that it runs at its usual speed.
        return self._never_again

    def _on_profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and (module := self._module(frame.f_code)) and _is_entry(frame):
            self._note(module, frame)

    def _note(self, module: str, frame: FrameType) -> None:
        way: list[CodeType] = []  # from the function to where the task or the thread begins
        above: FrameType | None = frame
        while above is not None:
            file = above.f_code.co_filename
            if file.startswith(self._root):
                if above.f_code.co_name == "<module>":
                    return  # this is part of an import
                if not self._is_apart(module) and self._is_apart(self._modules.get(file, "")):
                    module = self._modules[file]
                way.append(above.f_code)
            above = above.f_back
        if threading.current_thread() is threading.main_thread():
            if self._learnt is not None:
                self._learnt.add(tuple(way))
            if tuple(way) in self._chores:
                return
        self._entries.append(module)

    def _is_apart(self, module: str) -> bool:
        return bool(self._apart) and f"{module}.".startswith(f"{self._apart}.")

    def _module(self, code: CodeType) -> str:
        module = self._modules.get(code.co_filename)
        if module is None:
            module = self._modules[code.co_filename] = self._named(code.co_filename)
        # Only functions have locals that the compiler counted; the bodies of modules and classes have not.
        is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name not in _COMPREHENSIONS
        return module if is_function else ""

    def _named(self, file: str) -> str:
        if not file.startswith(self._root):
            return ""
        parts = [Path(self._root).name, *Path(file[len(self._root) :]).with_suffix("").parts]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_entry(frame: FrameType) -> bool:
    """Whether a function begins; the other calls of the hook are generators and coroutines that go on.

    The instruction RESUME, at which the hook is called, has 0 as its argument at the beginning of a function only.
    """
    return frame.f_code.co_code[frame.f_lasti + 1] == 0
