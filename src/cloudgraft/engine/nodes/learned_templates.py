"""Reads the learned facts of the journal, and caches them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.nodes.node_facts import Facts, facts_from_json
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store.records import LearnedRecord

log = logging.getLogger("cloudgraft.engine")


class LearnedTemplates:
    """Parses the learned facts of each group once per change."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._read: dict[str, tuple[LearnedRecord, Facts | None]] = {}

    def of(self, group: str, settings: Mapping[str, object]) -> Facts | None:
        """The facts of a group's nodes whose machines were made with these settings; None when unknown."""
        record = self._fleet.learned.get(group)
        if record is None or not same_settings(record.settings, settings):
            return None
        known = self._read.get(group)
        if known is None or known[0] is not record:
            known = self._read[group] = (record, _facts(record))
        return known[1]


def same_settings(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two `machine` sections are equal, from the file or from the journal, which has only JSON."""
    return one is other or one == other or _text(one) == _text(other)


def _text(settings: Mapping[str, object]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def _facts(record: LearnedRecord) -> Facts | None:
    try:
        return facts_from_json(record)
    except InvalidArgumentError as error:  # written by a later version or by hand: it can be learned again
        extra = {"group": record.group, "error": error.message}
        log.warning("ignoring the learned template of a group: it cannot be read", extra=extra)
        return None
