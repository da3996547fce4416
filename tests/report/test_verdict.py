"""What is said about a comparison, and what is not."""

from dataclasses import replace

from perc.report.verdict import lru_ratios, verdict

# LRU with 0 to 8 blocks; an infinite cache hits 400 of 1,000.
LRU = [0, 50, 100, 150, 200, 250, 300, 350, 400]


def test_headline_names_the_best_and_what_lru_would_need(comparison):
    result = comparison(LRU, [2, 4], lru=[100, 200], good=[220, 210], ok=[110, 201])
    assert verdict(result) == [
        "Largest gain at 2 blocks: good hits 22.0% of blocks, LRU 10.0%; LRU needs 5 "
        "blocks to match it, 2.5 times the memory.",
        "Best against LRU elsewhere, at 4 blocks: good +1.0 points.",
    ]


def test_a_policy_that_no_lru_matches(comparison):
    headline = verdict(comparison(LRU, [2], tight=[401]))[0]
    assert headline.endswith("no LRU cache of any size matches it.")


def test_of_two_equal_gains_the_smaller_cache_counts(comparison):
    headline = verdict(comparison(LRU, [2, 4], good=[150, 250]))[0]
    assert headline.startswith("Largest gain at 2 blocks")


def test_the_bound_is_never_the_best(comparison):
    result = comparison(
        LRU, [2], clairvoyant=["belady"], good=[110], belady=[400], lru=[100]
    )
    said = verdict(result)
    assert said[0].startswith("Largest gain at 2 blocks: good hits 11.0%")
    assert "belady" not in " ".join(said)


def test_a_bound_alone_gives_no_verdict(comparison):
    assert verdict(comparison(LRU, [2], clairvoyant=["belady"], belady=[400])) == []


def test_nothing_to_gain(comparison):
    flat = [396, 396, 398, 400]
    assert verdict(comparison(flat, [1, 2], lru=[396, 398], good=[399, 399])) == [
        "Nothing to gain: LRU hits 39.6% at 1 blocks, an infinite cache 40.0%."
    ]


def test_half_a_percent_is_something_to_gain(comparison):
    headline = verdict(comparison([395, 395, 400], [1], good=[399]))[0]
    assert headline.startswith("Largest gain")


def test_no_policy_here_beats_lru(comparison):
    said = verdict(comparison(LRU, [2, 4], lru=[100, 200], poor=[100, 190]))
    assert said[0].startswith("No policy here beats LRU on this trace: keep LRU")
    assert said[1:] == ["poor loses to LRU at 4 (-1.0 points) blocks."]


def test_losers_are_listed_with_every_size(comparison):
    result = comparison(
        LRU, [1, 2, 4], good=[60, 100, 199], poor=[0, 0, 0], lru=[50, 100, 200]
    )
    said = verdict(result)
    assert "good loses to LRU at 4 (-0.1 points) blocks." in said
    assert (
        "poor loses to LRU at 1 (-5.0 points), 2 (-10.0 points), 4 (-20.0 points) "
        "blocks." in said
    )
    assert not any(sentence.startswith("lru loses") for sentence in said)


def test_where_nothing_wins_elsewhere_lru_is_named(comparison):
    said = verdict(comparison(LRU, [2, 4], good=[150, 180]))
    assert "Best against LRU elsewhere, at 4 blocks: none." in said


def test_lru_need_not_be_asked_for_and_may_hold_everything(comparison):
    assert lru_ratios(comparison(LRU, [0, 3, 8, 10**9], good=[0, 0, 0, 0])) == {
        0: 0.0,
        3: 0.15,
        8: 0.4,
        10**9: 0.4,
    }


def test_nothing_counted_nothing_said(comparison):
    assert verdict(comparison([0], [0], counted=0, lru=[0], good=[0])) == []


def test_lru_alone_is_not_said_to_beat_others(comparison):
    said = " ".join(verdict(comparison(LRU, [2], lru=[100])))
    assert "No policy here beats" not in said


def test_fewer_hits_that_save_seconds_are_told(comparison):
    """A weight on cost trades hits for prefill seconds: both are said."""
    result = comparison(LRU, [2], lru=[100], dear=[90])
    rows = [
        replace(row, recompute_s=90.0 if row.policy == "dear" else 97.5)
        for row in result.rows
    ]
    assert verdict(replace(result, rows=rows))[-1] == (
        "dear loses to LRU at 2 (-1.0 points, but recomputes 7.5 s less) blocks."
    )
