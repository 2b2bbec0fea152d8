"""The one place where pyVmomi is taken in: its types are made when they are first used, so nothing can check them."""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

__all__ = ["Data", "Reference", "StubAdapter", "vim", "vmodl"]

_library: Any = importlib.import_module("pyVmomi")
vim: Any = _library.vim
vmodl: Any = _library.vmodl
StubAdapter: Any = _library.SoapStubAdapter
Reference: TypeAlias = Any  # to a managed object: what is asked of it is asked of vCenter
Data: TypeAlias = Any  # a data object of the API, or a value in one
