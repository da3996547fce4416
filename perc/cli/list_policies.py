"""`perc policies`: every policy, what it keeps, and its parameters."""

import inspect


def list_policies() -> None:
    """List the policies: what each keeps, its parameters and their defaults."""
    from rich import box
    from rich.table import Table

    from perc.policies.registry import registry
    from perc.report.console import plain_console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("policy", "keeps", "parameters"):
        table.add_column(column)
    for name in registry:
        doc = inspect.getdoc(registry[name]) or ""
        parameters = inspect.signature(registry[name]).parameters.values()
        table.add_row(
            name,
            doc.splitlines()[0],
            "\n".join(f"{p.name}={p.default}" for p in parameters),
        )
    console = plain_console()
    console.print(table)
    console.print(
        "--policies perc_decay:tau_s=60 sets a parameter; --policies mine.npz takes a "
        "policy file.",
        style="dim",
        markup=False,
    )
