"""Renders the plain manifests of deploy/ from the Helm chart; with --check, only says whether they are current.

Each file of deploy/helm/plain is a recipe for the file of the same name in deploy/: the comment at its head becomes the
comment there, `values` are those of the chart, and `templates` are the templates that go into it, in that order.
Helm is built on first use, which takes minutes and needs Go: `.venv/bin/python -m scripts.render_manifests`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from e2e.build import CannotBuildError
from e2e.command_line import FAILED, NOT_RUN, tell
from e2e.helm import Helm

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
RECIPES = DEPLOY / "helm" / "plain"
_RENDERED = "# Rendered from deploy/helm/cloudgraft by scripts/render_manifests.py: change the chart, not this file.\n"
_SOURCE = re.compile(r"^---\n# Source: cloudgraft/templates/(\S+)\n", re.MULTILINE)


def rendered(helm: Helm) -> Mapping[Path, str]:
    """What each file must be."""
    return {DEPLOY / path.relative_to(RECIPES): _file(helm, path) for path in sorted(RECIPES.rglob("*.yaml"))}


def _file(helm: Helm, path: Path) -> str:
    text = path.read_text("utf-8")
    recipe = yaml.safe_load(text)
    values = {"releaseLabels": False, **(recipe["values"] or {})}
    found = _by_template(helm.template_of(values))
    objects = [each for template in recipe["templates"] for each in found[template]]
    return _head(text) + _RENDERED + "---\n".join(f"{each}\n" for each in objects)


def _head(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[: next(n for n, line in enumerate(lines) if not line.startswith("#"))])


def _by_template(output: str) -> Mapping[str, Sequence[str]]:
    """The objects by the template that made them, in helm's order: an account before what uses it."""
    found: dict[str, list[str]] = {}
    _, *parts = _SOURCE.split(output)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        found.setdefault(name, []).append(text.strip())
    return found


def stale(helm: Helm) -> Sequence[Path]:
    """The files that are not what the chart renders."""
    return [path for path, text in rendered(helm).items() if not path.exists() or path.read_text("utf-8") != text]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is not current")
    is_check = parser.parse_args().check
    try:
        helm = Helm.built(tell)
    except CannotBuildError as error:
        print(error, file=sys.stderr)
        return NOT_RUN
    found = stale(helm)
    if is_check:
        for path in found:
            print(f"{path.relative_to(ROOT)} is not what the chart renders: python -m scripts.render_manifests")
        return FAILED if found else 0
    files = rendered(helm) if found else {}
    for path in found:
        path.write_text(files[path], "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
