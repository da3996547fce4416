"""Whole answers, kept for the next one who asks: what no KV cache has to compute.

    queries      what makes two questions the same: text and parameters, or likeness
    cache        bounded, with time to live, and a policy to make room
    judge        how often a likeness was none: the false-hit ratio
    log          a log of questions as a trace, for every other policy

States go in and come out; the clock is an argument.
"""
