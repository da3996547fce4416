"""The KV-offload lab: ten documents, a GPU too small for them, and memory beside it.

Whole documents are read in passes, forwards or backwards, through one cache for all
passes. It is small enough to follow by hand, and shows what every tiered cache has: a
cliff where the set fits, nothing before it, and the host memory that removes it.

Modules: `caches` (one tier, by policy), `tiers` (two of them, inclusive or exclusive),
`scenario` (passes and cliffs), `partial` (documents in blocks), `seconds` (what a pass
takes), `summarize` (measured times of first tokens).
"""
