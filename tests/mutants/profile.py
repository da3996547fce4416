"""A plugin of pytest: Hypothesis draws the same examples in every run."""

from hypothesis import Phase, settings


def pytest_configure(config):
    """After the suite has loaded its own profile, before tests are collected."""
    phases = (Phase.explicit, Phase.generate)  # a fault need not be made small
    settings.register_profile(
        "mutants", deadline=None, derandomize=True, database=None, phases=phases
    )
    settings.load_profile("mutants")
