"""A tour of perc as a notebook that is a Python file.

pip install 'perc-kv[tour]'
marimo edit docs/tour.py      in a browser, every cell to be changed
python docs/tour.py           without one: runs to the end
"""

import marimo

app = marimo.App(app_title="perc: a tour")


@app.cell
def _():
    import marimo as mo
    import numpy as np

    import perc

    mo.md(
        """
        # What should an LLM server keep?

        Blocks of earlier prompts are kept so that the next turn need not compute them
        again. Here is some traffic of chats; give a file of your own to `perc.load`.
        """
    )
    return mo, np, perc


@app.cell
def _(mo):
    requests = mo.ui.slider(500, 6000, 500, value=1500, label="requests")
    mo.vstack([requests])
    return (requests,)


@app.cell
def _(mo, perc, requests):
    trace = perc.make("chat", requests=requests.value)
    again = (trace.prev >= 0).mean()
    mo.md(
        f"""
        **{trace.n_requests:,} requests** of {trace.n_blocks:,} distinct blocks;
        {again:.1%} of the accesses are of a block that was there before: a cache that
        holds everything hits that much, and no policy more.
        """
    )
    return again, trace


@app.cell
def _(mo, perc, trace):
    result = perc.compare(trace, ["lru", "lfu", "perc", "belady"], [0.02, 0.1])
    rows = [
        {
            "blocks": row.capacity_blocks,
            "policy": row.policy,
            "block hits": f"{row.block_hit_ratio:.1%}",
            "recompute, s": round(row.recompute_s, 1),
        }
        for row in result.rows
    ]
    mo.vstack(
        [
            mo.md("## Who hits what\n\n`belady` knows the future: a bound."),
            mo.ui.table(rows, selection=None),
        ]
    )
    return (result,)


@app.cell
def _(mo, perc, result, trace):
    from perc.capacities import log_grid
    from perc.report.chart import curve_chart

    curves = perc.compare(trace, ["lru", "lfu", "perc", "belady"], log_grid(trace, 12))
    chart = mo.ui.altair_chart(curve_chart(curves, result), chart_selection=False)
    mo.vstack([mo.md("## How much memory"), chart])
    return


@app.cell
def _(mo, perc, trace):
    size = int(0.02 * trace.n_blocks)
    why = perc.attribute(trace, ["lru"], [size])
    (row,) = why.rows
    causes = [
        f"* **{cause}**: {missed.tokens / row.prompt_tokens:.1%} of the tokens, "
        f"{why.definitions[cause]}"
        for cause, missed in row.misses.items()
        if missed.tokens
    ]
    mo.md(f"## Why LRU misses at {size:,} blocks\n\n" + "\n".join(causes))
    return (size,)


@app.cell
def _(mo, perc, size, trace):
    from perc.types import Policy

    own = Policy(
        {},
        lambda params, f: f.time_s + 60.0 * f.frequency,
        "own",
        uses=("time_s", "frequency"),
        chain=True,
    )
    found = perc.compare(trace, ["lru", own], [size]).rows
    mo.md(
        "## A policy of your own\n\nA score: the lowest leaves first. This one gives a "
        "minute for each earlier use. At "
        f"{size:,} blocks: "
        + ", ".join(f"{row.policy} {row.block_hit_ratio:.1%}" for row in found)
        + "."
    )
    return


@app.cell
def _(again, mo, np, result):
    best = max(
        (row for row in result.rows if row.policy not in result.clairvoyant),
        key=lambda row: row.block_hit_ratio,
    )
    share = best.block_hit_ratio / again if again else np.nan
    mo.md(
        f"## And now\n\nThe best here reached {share:.0%} of what an endless cache "
        "hits. `perc compare YOUR_TRACE --out run` and `perc report run` do the same "
        "for your own traffic."
    )
    return


if __name__ == "__main__":
    app.run()
