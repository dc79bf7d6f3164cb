"""What a test of this folder attaches is closed when it ends, as in tests/adapters."""

from tests.adapters.conftest import _closed_at_the_end as _closed_at_the_end
