"""What a page says of each kind of run."""

from dataclasses import replace

from perc.report.page.cells import Section
from perc.report.page.compared import compared
from perc.report.page.folders import Run
from perc.report.page.planned import planned, swept
from perc.report.page.ruled import ruled
from perc.report.page.served import simulated, tried

MAKERS = {
    "compare": compared,
    "compare --rules": ruled,
    "simulate": simulated,
    "plan": planned,
    "sweep": swept,
    "vllm-benchmark": tried,
    "compare-models": tried,
    "show-job": tried,
}


def section_of(run: Run) -> Section:
    """Everything that a page shows of a run."""
    made = MAKERS[run.command](run)
    told = run.about.get("definitions", {})
    return replace(made, definitions=told | made.definitions)
