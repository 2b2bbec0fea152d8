"""Reads the fields of a class, or the assignments of a module, with the comments that stand at them in the source."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """One assignment."""

    name: str
    annotation: str  # empty for a member of an enum
    default: str  # in Python; empty when there is none
    text: str  # the comment behind it, after that above it; empty when there is none


def fields_in(source: str) -> Iterator[Field]:
    """The assignments in the source of a class or module, in their order."""
    lines = textwrap.dedent(source).splitlines()
    module = ast.parse("\n".join(lines))
    first = module.body[0]
    for node in first.body if isinstance(first, ast.ClassDef) else module.body:
        if isinstance(node, ast.AnnAssign | ast.Assign):
            yield Field(
                name=ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]),
                annotation=ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else "",
                default=ast.unparse(node.value) if node.value else "",
                text=_comment(lines, node.lineno - 1, (node.end_lineno or node.lineno) - 1),
            )


def _comment(lines: Sequence[str], first: int, last: int) -> str:
    beside = re.search(r"  # (?!noqa|type:)(.*)$", lines[last])
    above: list[str] = []
    while first > 0 and lines[first - 1].strip().startswith("# "):
        first -= 1
        above.insert(0, lines[first].strip()[2:])
    return " ".join([*above, beside[1] if beside else ""]).strip()
