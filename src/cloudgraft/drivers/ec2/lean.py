"""botocore without the work that nobody here needs: it is most of the time that a list of thousands takes.

By itself it turns each of some forty fields of an instance into objects, with all that is in them, of which few are
read here; and it reads each time with a parser that takes times in any form. It also reads all the XML of an answer in
one go, which lets no other thread run meanwhile: for a thousand instances that is more than a tenth of a second.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from botocore.parsers import EC2QueryParser, ResponseParserFactory
from botocore.utils import parse_timestamp

__all__ = ["LeanLoader", "LeanParsers"]

_EC2: Final = ("ec2", "service-2")
_PIECE: Final = 1 << 15  # bytes of XML, which take about a millisecond


class LeanLoader:
    """In the place of botocore's loader of descriptions of APIs: in EC2's, these shapes have these members only."""

    def __init__(self, loader: Any, members: Mapping[str, Collection[str]]) -> None:
        self._loader = loader
        self._members = members

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        """The description of one API."""
        model = self._loader.load_service_model(service_name, type_name, api_version)
        if (service_name, type_name) != _EC2:
            return model
        shapes = dict(model["shapes"])  # the loader keeps what it has read, and gives it to others too
        for name, kept in self._members.items():
            members = {key: value for key, value in shapes[name]["members"].items() if key in kept}
            shapes[name] = {**shapes[name], "members": members}
        return {**model, "shapes": shapes}


class LeanParsers(ResponseParserFactory):  # type: ignore[misc]  # botocore has no types
    """In the place of botocore's own."""

    def __init__(self) -> None:
        super().__init__()
        self.set_parser_defaults(timestamp_parser=_read_time)

    def create_parser(self, protocol_name: str) -> Any:
        """For the answers of one kind of API."""
        return (
            _InPieces(timestamp_parser=_read_time) if protocol_name == "ec2" else super().create_parser(protocol_name)
        )


class _InPieces(EC2QueryParser):  # type: ignore[misc]  # likewise
    """Lets other threads have their turn between two pieces of the XML."""

    def _parse_xml_string_to_dom(self, xml_string: bytes) -> Any:
        parser = ET.XMLParser(encoding=self.DEFAULT_ENCODING)  # noqa: S314 - as botocore reads what AWS answers
        try:
            for start in range(0, len(xml_string), _PIECE):
                parser.feed(xml_string[start : start + _PIECE])
            return parser.close()
        except ET.ParseError:
            return super()._parse_xml_string_to_dom(xml_string)  # which raises what it raises


def _read_time(value: Any) -> datetime:
    """A time: as AWS writes it, or in any other form that botocore knows."""
    if isinstance(value, str) and value.endswith("Z") and "T" in value:
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass  # then botocore says what is wrong with it
    found: datetime = parse_timestamp(value)
    return found
