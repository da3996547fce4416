"""Perfect LFU: counts that outlive an eviction, in vectors of policies.md section 3."""

import pytest

from perc.compare import run
from perc.policies.lfu import lfu
from tests.test_online_vectors import LATER, LETTERS, one_block, stream


def test_twenty_letters():
    (hits,) = run(lfu(), one_block([ord(c) for c in LETTERS]), [4])
    assert "".join(map(str, hits)) == LATER


@pytest.mark.parametrize(("size", "hits"), [(20, 8371), (50, 11_325), (100, 14_234)])
def test_the_generated_stream(size, hits):
    assert run(lfu(), one_block(stream()), [size]).sum() == hits
