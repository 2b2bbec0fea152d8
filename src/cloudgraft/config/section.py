"""Provides the base class of all sections, and hides secrets that stand in a file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from cloudgraft.sdk.secrecy import hide, secret_values


class Section(BaseModel):
    """A mapping with known keys, in camelCase; frozen, and without its values in errors.

    Values that depend on each other are checked by the validator of the last of them, which sees those before it in
    ``info.data``. A validator of the whole section would not run while any other key is wrong, and then not all
    problems would be reported at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)


# -- secrecy -----------------------------------------------------------------------------------------------------------
# Secrets should be in files of their own. Those in the configuration file are at least shown nowhere.


def hide_secrets(options: object) -> None:
    """Hides all values below a key with the name of a secret, in the options of a driver or provider."""
    hide(*secret_values(options))
