"""What `agent` knows of real coding agents, measured on Claude Code sessions.

Source: callanjfox/kv-cache-tester, 422 distinct sessions, 25,294 calls. Gaps run from
the arrival of one call of an agent to the arrival of its next one.
"""

# Tables of quantiles: (share below, value).
TOOL_GAP_S = (
    (0.0, 0.5), (0.01, 1), (0.1, 7), (0.25, 10), (0.5, 16), (0.75, 35), (0.9, 106),
    (0.99, 929), (1.0, 7_200),
)  # fmt: skip
USER_GAP_S = (
    (0.0, 1), (0.1, 7), (0.25, 36), (0.5, 174), (0.75, 726), (0.9, 2_546),
    (0.99, 75_000), (1.0, 86_400),
)  # fmt: skip
SUBAGENT_GAP_S = ((0.0, 1), (0.01, 2), (0.1, 4), (0.5, 7), (0.9, 13), (1.0, 60))
SUBAGENT_CALLS = ((0.0, 2), (0.1, 5), (0.5, 10), (0.75, 13), (0.9, 18), (1.0, 24))
# What the first prompt holds behind the system prompt: a question, or a session
# that is taken up again.
OPENING_TOKENS = (
    (0.0, 150), (0.25, 1_500), (0.5, 5_000), (0.75, 31_000), (0.9, 86_000),
    (1.0, 140_000),
)  # fmt: skip
GROWTH_TOKENS = (
    (0.0, 60), (0.1, 175), (0.25, 315), (0.5, 690), (0.75, 1_900), (0.9, 5_160),
    (0.99, 30_000), (1.0, 60_000),
)  # fmt: skip
SUBAGENT_GROWTH_TOKENS = (
    (0.0, 150), (0.1, 402), (0.25, 947), (0.5, 2_567), (0.75, 5_619), (0.9, 13_313),
    (1.0, 60_000),
)  # fmt: skip
OUTPUT_TOKENS = (
    (0.0, 40), (0.01, 64), (0.1, 109), (0.25, 141), (0.5, 215), (0.75, 415), (0.9, 870),
    (0.99, 3_700), (1.0, 8_000),
)  # fmt: skip
SUMMARY_TOKENS = ((0.0, 5_000), (0.5, 20_000), (1.0, 60_000))  # after a compaction
SUBAGENT_TASK_TOKENS = ((0.0, 200), (0.5, 800), (1.0, 4_000))
