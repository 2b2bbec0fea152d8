"""Stored and sent JSON is what it was when the golden files were written, both ways."""

from __future__ import annotations

import pytest

from tests.golden import discovery_forms, driver_forms, engine_forms, nodemanager_forms, simcloud_forms
from tests.golden.forms import FOLDER, Form, golden, text_of, told

FORMS = (
    *engine_forms.FORMS,
    *driver_forms.FORMS,
    *simcloud_forms.FORMS,
    *nodemanager_forms.FORMS,
    *discovery_forms.FORMS,
)
_WRITTEN = [pytest.param(form, case, id=f"{form.name}: {case}") for form in FORMS for case in form.written]
_READ = [pytest.param(form, case, id=f"{form.name}: {case}") for form in FORMS for case in form.expected()]


@pytest.mark.parametrize(("form", "case"), _WRITTEN)
def test_what_is_written_is_the_golden_json(form: Form, case: str) -> None:
    assert form.write is not None
    assert text_of(form.write(form.written[case])) == text_of(golden(form.name)[case])


@pytest.mark.parametrize(("form", "case"), _READ)
def test_what_is_read_from_the_golden_json_is_the_value(form: Form, case: str) -> None:
    assert form.read is not None
    read, expected = form.read(golden(form.name)[case]), form.expected()[case]
    assert read == expected
    assert text_of(told(read)) == text_of(told(expected))  # 1 and 1.0, "1000m" and "1" are equal, but not the same


def test_every_golden_file_and_every_case_in_it_is_compared() -> None:
    cases = {form.name: {*form.written, *form.only_read} for form in FORMS}
    assert cases == {path.stem: set(golden(path.stem)) for path in FOLDER.glob("*.json")}


@pytest.mark.parametrize("case", engine_forms.REPORT.written)
def test_keys_of_a_report_come_in_the_order_in_which_a_person_reads_them(case: str) -> None:
    assert engine_forms.REPORT.write is not None
    assert repr(engine_forms.REPORT.write(engine_forms.REPORT.written[case])) == repr(golden("report")[case])
