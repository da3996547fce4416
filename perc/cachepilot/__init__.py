"""CachePilot's experiments: its published numbers, and what they are worth.

`reference` is its engine, made deterministic: the digits that it published, all of them
the policy's own *estimates*. `thrash` books in that engine what was computed again, at
equal work. `serving` is what perc reports: one simulated clock, the same requests to
their end, seconds of prefill that evictions really cost. `evictor` and `scorecard` are
its two other published tables, `admission` its network, `placement` its choice of a
GPU.

Modules: `workloads`, `sessions`, `reference`, `thrash`, `serving`, `compare`,
`evictor`, `scorecard`, `admission`, `placement`.

References:
    https://github.com/aryanputta/cachepilot, its first commit 450786e ("classic") and
    e8b99a5 ("seeded"). Written from a description of it; no line is copied.
"""
