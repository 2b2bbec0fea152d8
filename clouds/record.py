"""What was judged, by what, and when: kept in a file, from which the page of clouds is made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from clouds.trial import Trial

__all__ = ["RECORD", "read_record", "write_record"]

RECORD: Final = Path(__file__).resolve().parent / "judged.json"


def read_record(file: Path = RECORD) -> dict[str, Any]:
    """By the name of the judge: what it was, the day, and what was seen."""
    return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}


def write_record(trials: Sequence[Trial], file: Path = RECORD) -> None:
    """Adds the drivers that passed. One that failed loses its place; one that was not judged keeps what it had."""
    known = read_record(file)
    for trial in trials:
        if trial.is_passed:
            known[trial.name] = {
                "driver": trial.driver,
                "judgedBy": trial.judged_by,
                "on": f"{datetime.now(UTC):%Y-%m-%d}",
                "checks": [f"{check.name}: {check.detail}" if check.detail else check.name for check in trial.checks],
            }
        elif not trial.not_run:
            known.pop(trial.name, None)
    file.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
