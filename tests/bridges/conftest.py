"""Other engines: `.ci/vllm` installs them and sets PERC_EXPECT_ENGINES."""

import importlib.util
import os

import pytest


@pytest.fixture
def needs_engine():
    """Skips a test where the package is missing, unless it must run."""

    def needs(package):
        if importlib.util.find_spec(package) is None:
            assert not os.environ.get("PERC_EXPECT_ENGINES"), f"no {package} here"
            pytest.skip(f"{package} is not installed")

    return needs
