"""The configurations that pages and examples show, and what `cloudgraft deploy render` makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from cloudgraft.app.check import check_file
from cloudgraft.config import ConfigError
from cloudgraft.deploy.draft import Choices
from cloudgraft.deploy.render import Rendering, render
from e2e.helm import CHART

__all__ = ["Example", "examples", "rendering_of"]

_ROOT: Final = CHART.parents[2]
_FENCE: Final = re.compile(r"^```yaml file=(\S+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SOURCES: Final = frozenset({"clouds", "providers"})
# What the chart cannot express, or this machine cannot load; the beginning of why.
_REFUSED: Final[Mapping[str, str]] = {
    "docs/how-to/let-drivers-dial-in.md: cloudgraft.yaml": "dock.drivers: in the pod: is missing",
    "docs/how-to/run-a-node-manager.md: manager.yaml": "nodeManager: this command makes values for the file of",
    "docs/how-to/use-redfish.md: cloudgraft.yaml": "clouds.metal.seedDirectory: the chart has no volume",
}
_NEEDS_LIBRARY: Final[Mapping[str, str]] = {"docs/how-to/use-libvirt.md: cloudgraft.yaml": "clouds.kvm1.driver"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A configuration, and the beginning of the message with which it must be refused; empty for none."""

    name: str
    text: str
    refusal: str = ""
    may_lack_library: str = ""  # the key that is refused where a library is not installed


def examples() -> Iterator[Example]:
    """Every whole configuration of a server in the documentation and in the examples."""
    for page in sorted((_ROOT / "docs").rglob("*.md")):
        for file, text in _FENCE.findall(page.read_text("utf-8")):
            content = next(yaml.safe_load_all(text), None)
            if isinstance(content, dict) and "cluster" in content and _SOURCES & content.keys():
                name = f"{page.relative_to(_ROOT)}: {file}"
                refusal, key = _REFUSED.get(name, ""), _NEEDS_LIBRARY.get(name, "")
                yield Example(name=name, text=text, refusal=refusal, may_lack_library=key)
    for path in sorted((_ROOT / "examples" / "config").glob("*.yaml")):
        yield Example(name=str(path.relative_to(_ROOT)), text=path.read_text("utf-8"))


def rendering_of(example: Example, directory: Path, choices: Choices) -> Rendering:
    """What becomes of it on a host that has none of its files. Raises ConfigError."""
    path = directory / "cloudgraft.yaml"
    path.write_text(example.text, "utf-8")
    checked = check_file(path, needs_host=False)
    if checked.config is None or checked.problems:
        raise ConfigError(checked.problems)
    return render(checked.config, choices)
