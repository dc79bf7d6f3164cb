"""`report_to="rlexporter"`, in both orders of import, and an import that stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CHECK = """
from transformers.integrations.integration_utils import get_reporting_integration_callbacks as get
from rlexporter import RLExporterCallback
assert get("rlexporter") == [RLExporterCallback]
assert get(["rlexporter"]) == [RLExporterCallback]
import sys
assert not [f for f in sys.meta_path if type(f).__module__.startswith("rlexporter")], sys.meta_path
"""


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "imports",
    [
        "import rlexporter, transformers",
        "import transformers, rlexporter",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                "import transformers.integrations.integration_utils, rlexporter",
                "import rlexporter, transformers.trainer",
                "import rlexporter; import importlib; importlib.reload(rlexporter)",
            )
        ),
    ],
)
def test_the_name_is_known(imports: str) -> None:
    """Whichever is imported first; the finder is gone afterwards."""
    _run(imports + _CHECK)


def test_waiting_for_transformers_costs_nothing() -> None:
    """The finder lets every other import through, and one is enough for two imports of ours."""
    found = _run(
        "import sys, rlexporter, importlib; importlib.reload(rlexporter); import json.tool, decimal\n"
        "print(sum(hasattr(f, 'waits_for') for f in sys.meta_path), 'transformers' in sys.modules)"
    )

    assert found == "1 False"


def test_a_module_that_fails_to_import_still_says_why() -> None:
    """The loader of the module is asked for everything that we do not know."""
    found = _run(
        "import rlexporter, inspect, transformers.integrations.integration_utils as m\n"
        "print(inspect.getsource(m)[:1] != '', m.__spec__.loader.name, m.__file__.endswith('.py'))"
    )

    assert found == "True transformers.integrations.integration_utils True"
