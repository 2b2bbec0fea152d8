"""The problems of a file, as lines."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from cloudgraft.config import ConfigError, parse

MINIMAL = "cluster: prod\nproviders: [{type: memory}]\n"


def problem_lines(text: str, base_dir: Path, overrides: dict[str, object] | None = None) -> list[str]:
    """What is wrong with a text, with the directory shortened to D."""
    with pytest.raises(ConfigError) as caught:
        parse(textwrap.dedent(text), base_dir, name="f", overrides=overrides)
    assert caught.value.__cause__ is None  # pydantic's error would carry the values
    return str(caught.value).replace(str(base_dir), "D").splitlines()
