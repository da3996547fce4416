"""Attention with a cache, small and clear: what the blocks that perc counts hold.

    multihead    append-only keys and values; heads that share them
    rotary       positions as rotations
    sinks        the first tokens and a window of the last, positions counted anew
    heavy        what was attended to most, and the last, against a window
    paged        keys and values in blocks, read through a table
    decoder      a small language model, with the cache and without
    speculative  several tokens a pass of the target model, drawn from its distribution

Axes: n queries, t keys, H query heads, G key-value heads, D head size. float32 unless
said; every function is jitted, shapes are static.
"""
