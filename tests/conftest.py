"""Where the real traces are, and a small trace that several tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# No test is timed: a machine may be busy.
settings.register_profile("perc", deadline=None)
settings.load_profile("perc")


@pytest.fixture(scope="session")
def traces_folder() -> Path:
    """The folder of real traces; tests that ask for it skip where there is none."""
    folder = os.environ.get("PERC_TRACES")
    if not folder or not Path(folder).is_dir():
        pytest.skip("PERC_TRACES names no folder of real traces")
    return Path(folder)


@pytest.fixture(scope="module", autouse=True)
def programs_of_one_module():
    """Frees compiled programs after each file: every one maps memory, and a process
    that holds the whole suite's runs into the kernel's limit of maps (65,530) and dies.
    """
    yield
    import jax

    jax.clear_caches()


@pytest.fixture(scope="session")
def small_chat():
    """A few minutes of synthetic chat: about 7,000 accesses."""
    import perc

    return perc.make("chat", requests=300)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run that was to use the real traces and did not."""
    expected = int(os.environ.get("PERC_EXPECT_REAL_TRACE_TESTS", 0))
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not expected or reporter is None or session.config.option.collectonly:
        return
    passed = reporter.stats.get("passed", [])
    ran = sum(1 for report in passed if "real_trace" in report.keywords)
    reporter.write_line(f"real-trace tests passed: {ran}, expected {expected} or more")
    if ran < expected:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
