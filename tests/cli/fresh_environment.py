"""A new virtual environment that holds only the core of cloudgraft, installed by pip without a network.

Stands for a user's machine. The wheels are made from this environment's own packages, and are all that pip can get.
"""

from __future__ import annotations

import os
import re
import subprocess
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
# Beside the core's dependencies: what installs a package, and what the next steps install by name.
INSTALLED_BY_NAME = ("editables", "hatchling", "pytest")


class FreshEnvironment:
    """Runs commands as a user does who has just installed cloudgraft."""

    def __init__(self, base: Path) -> None:
        """Makes the environment below ``base``."""
        self.wheels, self.home = base / "wheels", base / "venv"
        self.wheels.mkdir()
        core = [Requirement(text) for text in distribution("cloudgraft").requires or () if "extra ==" not in text]
        for dist in _closure([*(one.name for one in core), *INSTALLED_BY_NAME]):
            _write_wheel(dist, self.wheels)
        venv.create(self.home, with_pip=True)
        self.run(f"pip install --quiet {ROOT}", cwd=base)

    def run(self, command: str, cwd: Path) -> str:
        """Runs a line of a shell, and returns what it printed; the line must succeed."""
        env = {
            "HOME": str(self.home),
            "PATH": f"{self.home / 'bin'}:/usr/bin:/bin",
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "COLUMNS": "200",
        }
        result = subprocess.run(
            ["bash", "-c", command], cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert result.returncode == 0, f"$ {command}\n{result.stdout}{result.stderr}"
        return result.stdout


def _closure(names: list[str]) -> list[Distribution]:
    """These packages, and all that they need here."""
    found: dict[str, Distribution] = {}
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in found:
            continue
        found[name] = distribution(name)
        wanted = [Requirement(text) for text in found[name].requires or ()]
        names += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return list(found.values())


def _write_wheel(dist: Distribution, directory: Path) -> None:
    """Packs an installed package again; without what pip added to it."""
    tag = re.search(r"^Tag: (\S+)$", dist.read_text("WHEEL") or "", re.MULTILINE)
    assert tag, dist.name
    name = f"{re.sub(r'[-_.]+', '_', dist.name)}-{dist.version}-{tag[1]}.whl"
    added = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
    packed: list[str] = []
    with zipfile.ZipFile(directory / name, "w") as wheel:
        for file in dist.files or ():
            place = PurePosixPath(file)
            is_info = place.parent.name.endswith(".dist-info") and place.name in added
            if ".." in place.parts or place.suffix == ".pyc" or is_info:
                continue
            wheel.write(str(dist.locate_file(file)), str(place))
            packed.append(str(place))
        info = next(PurePosixPath(path).parts[0] for path in packed if ".dist-info/" in path)
        record = [*(f"{path},," for path in packed), f"{info}/RECORD,,"]
        wheel.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
