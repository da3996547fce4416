"""A server in simulated time: queue, batches, prefix cache, and what users wait for.

`perc.serving.simulate.simulate` plays a trace through a server (`settings.Server`) and
returns when each request was admitted, saw its first token and ended. The clock is
simulated: a step takes what `perc.roofline` says, and nothing else takes time.

One step of the engine, as in vLLM's scheduler:

    arrivals -> queue -> room for one token a decoder (or preempt) -> chunks of prompts,
    until the tokens of a step are spent -> the step -> tokens, ends, next turns

Modules: `settings` (the options), `arrivals`, `orders` (the queue), `heap`, `pool` (the
blocks), `slots` (what runs), `queueing`, `scheduling`, `timing`, `completion`, `engine`
(the loop), `simulate`, `laws` (conservation), `metrics`. Of the tiers below the GPU:
`offload` (their options), `below` (their blocks and links), `moves`, `landing`,
`tier_metrics`. Of orders that change while blocks idle: `pricing` (a policy laid out),
`free` (who may leave), `victims` (who leaves). Of retention: `programs` (what is kept
of them), `retained` (shields), `lifecycle` (the same formulas in plain Python),
`forced_release` (a small lab).
"""
