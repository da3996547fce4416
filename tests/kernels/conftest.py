"""Two of these suites need Triton: `.ci/kernels` runs them in their own environment.

Triton interprets or compiles, for a whole process: `TRITON_INTERPRET=1` chooses. Where
`PERC_EXPECT_KERNELS` is set, nothing of the chosen suite may be missing.
"""

import os

import pytest

EXPECTED = bool(os.environ.get("PERC_EXPECT_KERNELS"))
try:
    import triton  # noqa: F401  # pyright: ignore
except ImportError:
    if EXPECTED:
        raise
    collect_ignore_glob = ["test_compiled*.py", "test_interpreted*.py", "test_lowered*"]
else:
    if os.environ.get("TRITON_INTERPRET") == "1":
        collect_ignore_glob = ["test_compiled*.py", "test_lowered*.py"]
    else:
        collect_ignore_glob = ["test_interpreted*.py"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skip is a failure where the suite is expected to run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if EXPECTED and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
