"""vllm#45387, vllm#45388, vllm#57841: half-loaded requests wait for each other."""

from perc.loads import REMEDY, Load, Move, finish_loads


def test_two_partial_loads_that_do_not_fit_together():
    """vllm#45387, vllm#45388. B passes A: 464 of 799 fit, then 335 + 1,200 >= 1,088."""
    found = finish_loads(2047, [Load("A", 1600, 512), Load("B", 1200, 736)])
    assert found.remedy == REMEDY == "pass the head, else roll back the last"
    assert found.moves == (
        Move("run", "B", blocks=464, free_blocks=1535),
        Move("run", "A", blocks=1088, free_blocks=2047),
    )


def test_a_head_that_does_not_fit_holds_nobody_up():
    """vllm#57841. L needs 5 more and W 10, H at the head of the queue needs 100."""
    queue = [Load("H", 100), Load("L", 255, 250), Load("W", 10)]
    found = finish_loads(270, queue)
    assert found.moves == (
        Move("run", "L", blocks=5, free_blocks=270),
        Move("run", "H", blocks=100, free_blocks=270),
        Move("run", "W", blocks=10, free_blocks=270),
    )
