"""What `chat` knows of real users, measured on the Mooncake conversation trace.

Source: kvcache-ai/Mooncake, FAST'25 release, 59 min of a production chat service,
12,031 requests. Sessions were inferred by prefix extension. The recording ends before
some late follow-ups, so gaps and continuations are Kaplan-Meier estimates of what a
longer recording would show, then adjusted until a simulated hour, cut off like the
real one, shows the real one's quantiles.
"""

# Tables of quantiles: (share below, value).
FIRST_PROMPT_TOKENS = (
    (0.0, 891), (0.05, 897), (0.1, 904), (0.15, 935), (0.2, 1_061), (0.25, 1_281),
    (0.3, 1_602), (0.4, 3_701), (0.5, 5_036), (0.6, 6_980), (0.7, 10_133),
    (0.8, 15_235), (0.9, 24_946), (0.95, 37_034), (0.98, 63_195), (0.99, 87_301),
    (1.0, 126_000),
)  # fmt: skip
OUTPUT_TOKENS = (
    (0.0, 1), (0.05, 10), (0.1, 24), (0.15, 46), (0.2, 100), (0.3, 213), (0.4, 291),
    (0.5, 350), (0.6, 399), (0.7, 447), (0.8, 504), (0.9, 597), (0.95, 698),
    (0.98, 892), (0.995, 1_568), (1.0, 2_000),
)  # fmt: skip
FOLLOW_UP_GAP_S = (
    (0.0, 4), (0.01, 12), (0.05, 28), (0.1, 41), (0.25, 69), (0.5, 131), (0.75, 285),
    (0.9, 515), (0.95, 680), (0.98, 1_520), (0.99, 2_500), (1.0, 3_500),
)  # fmt: skip
LONGEST_PROMPT_TOKENS = 126_000

# Continuing. Factors on its probability after turn 1 by the length of the prompt:
# (tokens from, factor). Below 1,000 tokens are a helper's one-offs, no conversations.
CONTINUE_FACTOR = (
    (0, 0.04), (1_000, 1.7), (3_000, 1.4), (6_000, 1.2), (12_000, 0.92),
    (24_000, 0.8),
)  # fmt: skip
CONTINUE_FACTOR_BRANCH = 0.6  # for all first prompts of branches
# A turn adds the answer and either a short message or, less often later, a document.
MESSAGE_TOKENS_LN = (2.88, 0.91)  # log-normal: mean and deviation of the logarithm
DOCUMENT_TOKENS = (
    (0.0, 150), (0.1, 290), (0.25, 520), (0.5, 2_800), (0.75, 5_400), (0.9, 9_700),
    (0.95, 14_000), (0.99, 30_000), (1.0, 60_000),
)  # fmt: skip
DOCUMENT_SHARE = ((0, 0.39), (3, 0.24), (4, 0.16), (5, 0.08))  # (turn from, share)
DOCUMENT_FACTOR = ((0, 0.5), (3_000, 1.1))  # on that share: (tokens from, factor)

# Branching off. Factors on its probability by the length of the prompt that is left:
# (tokens from, factor).
BRANCH_FACTOR = (
    (0, 0.0), (2_048, 0.1), (4_096, 0.3), (8_192, 1.0), (16_384, 1.3), (32_768, 0.5),
)  # fmt: skip
# Quantiles of the share of that prompt which the branch keeps.
BRANCH_SHARE = (
    (0.0, 0.02), (0.05, 0.05), (0.1, 0.07), (0.25, 0.12), (0.5, 0.22), (0.75, 0.47),
    (0.9, 0.9), (0.99, 0.98), (1.0, 1.0),
)  # fmt: skip
BRANCH_LENGTH_LN = (-0.05, 0.33)  # log-normal, relative to the prompt that it leaves
SHORTEST_BRANCH_TOKENS = 1_024  # with less in common, two sessions count as strangers
