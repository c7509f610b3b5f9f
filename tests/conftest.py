"""What all tests share: property tests draw the same examples in every run."""

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests counted, so that a log tells how much was tried."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    counted = [pair for report in reports for pair in report.user_properties]
    if counted:
        terminalreporter.section("counted")
    for name, value in counted:
        terminalreporter.write_line(f"{name}: {value}")
