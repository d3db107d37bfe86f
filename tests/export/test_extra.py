"""Whether the tests of this folder can run at all."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("package", ["deltalake", "pyarrow", "pyspark", "pandas"])
def test_the_extras_are_installed(package: str) -> None:
    reason = f"{package} is not installed (extras `export` and `spark`): nothing here is tested"
    assert pytest.importorskip(package, reason=reason).__version__
