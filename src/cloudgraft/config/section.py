"""What all sections of the configuration file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["Section"]


class Section(BaseModel):
    """A mapping with known keys, in camelCase; frozen, and silent about its values in errors.

    Values that depend on each other are checked by the validator of the last of them, which sees those before it in
    ``info.data``. A validator of the whole section would have nothing to say while any other key is wrong, and then
    not all problems would be told at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)
