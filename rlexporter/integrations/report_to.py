"""`report_to="rlexporter"`: adds the name to transformers once its integrations are imported."""

from __future__ import annotations

from types import ModuleType

from rlexporter.integrations.import_hook import after_import

NAME = "rlexporter"


def register() -> None:
    """Make `report_to="rlexporter"` work from now on; a second call changes nothing."""
    after_import("transformers.integrations.integration_utils", _add_to)


def _add_to(module: ModuleType) -> None:
    from rlexporter.integrations.callback import RLExporterCallback

    module.INTEGRATION_TO_CALLBACK.setdefault(NAME, RLExporterCallback)
