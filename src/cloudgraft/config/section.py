"""The base of all sections, and how secrets that stand in a file are hidden."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from cloudgraft.sdk.secrecy import hide, secret_values

__all__ = ["Section", "hide_secrets"]


class Section(BaseModel):
    """A mapping with known keys, in camelCase; frozen, and silent about its values in errors.

    Values that depend on each other are checked by the validator of the last of them, which sees those before it in
    ``info.data``. A validator of the whole section would have nothing to say while any other key is wrong, and then
    not all problems would be told at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)


# -- secrecy -----------------------------------------------------------------------------------------------------------
# Secrets that a file holds although they should be in one of their own: at least they are shown nowhere.


def hide_secrets(options: object) -> None:
    """Hides whatever is below a key that says that it is secret, in the options of somebody else's code."""
    hide(*secret_values(options))
