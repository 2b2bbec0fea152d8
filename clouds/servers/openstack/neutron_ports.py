"""What lets Neutron bind ports without an agent on any host: a mechanism driver that says yes.

It is written into a directory that goes onto Neutron's PYTHONPATH, with the entry point by which Neutron finds it.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Final

__all__ = ["write_plugin"]

_DRIVER: Final = '''
    """Binds every port at once."""
    from neutron_lib import constants
    from neutron_lib.api.definitions import portbindings
    from neutron_lib.plugins.ml2 import api


    class Binder(api.MechanismDriver):
        def initialize(self):
            pass

        def bind_port(self, context):
            segment = context.segments_to_bind[0]
            details = {portbindings.CAP_PORT_FILTER: False}
            context.set_binding(segment[api.ID], portbindings.VIF_TYPE_OTHER, details, constants.PORT_STATUS_ACTIVE)
'''
# SQLAlchemy must know all tables before the first question; without this one a list of ports fails.
_APPLICATION: Final = '''
    """Neutron's API, after its tables are known."""
    from neutron.db.models import port_forwarding  # noqa: F401
    from sqlalchemy import orm

    orm.configure_mappers()
    from neutron.wsgi.api import application  # noqa: E402, F401
'''
_ENTRY_POINT: Final = "[neutron.ml2.mechanism_drivers]\njudge = judge_binder:Binder\n"
_METADATA: Final = "Metadata-Version: 2.1\nName: judge-binder\nVersion: 1.0\n"


def write_plugin(directory: Path) -> None:
    """The driver, and the application that is served in the place of Neutron's own."""
    about = directory / "judge_binder-1.0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (directory / "judge_binder.py").write_text(dedent(_DRIVER), "utf-8")
    (directory / "judge_neutron.py").write_text(dedent(_APPLICATION), "utf-8")
    (about / "entry_points.txt").write_text(_ENTRY_POINT, "utf-8")
    (about / "METADATA").write_text(_METADATA, "utf-8")
