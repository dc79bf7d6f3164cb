"""`report_to="rlexporter"`, in both orders of import, and an import that stays light."""

from __future__ import annotations

import sys

import pytest

from tests.programs import printed

_CHECK = """
from transformers.integrations.integration_utils import get_reporting_integration_callbacks as get
from rlexporter import RLExporterCallback
assert get("rlexporter") == [RLExporterCallback]
assert get(["rlexporter"]) == [RLExporterCallback]
import sys
assert not [f for f in sys.meta_path if type(f).__module__.startswith("rlexporter")], sys.meta_path
import inspect, transformers.integrations.integration_utils as m
print(inspect.getsource(m)[:1] != "", m.__spec__.loader.name, m.__file__.endswith(".py"))
"""


def _run(code: str) -> str:
    return printed(sys.executable, "-c", code).strip()


@pytest.mark.parametrize(
    "imports",
    [
        "import rlexporter, transformers",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                "import transformers, rlexporter",
                "import transformers.integrations.integration_utils, rlexporter",
                "import rlexporter, importlib; importlib.reload(rlexporter); import transformers.trainer",
            )
        ),
    ],
)
def test_the_name_is_known(imports: str) -> None:
    """Whichever is imported first; the finder is gone afterwards.

    The loader of the module is asked for everything that we do not know, and still says why an import fails.
    """
    assert _run(imports + _CHECK) == "True transformers.integrations.integration_utils True"


def test_waiting_for_transformers_costs_nothing() -> None:
    """The finder lets every other import through, and one is enough for two imports of ours."""
    found = _run(
        "import sys, rlexporter, importlib; importlib.reload(rlexporter); import json.tool, decimal\n"
        "print(sum(hasattr(f, 'waits_for') for f in sys.meta_path), 'transformers' in sys.modules)"
    )

    assert found == "1 False"
