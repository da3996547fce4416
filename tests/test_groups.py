"""Equal entries of a column, against plain loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perc.groups import (
    count_before,
    distinct_so_far,
    first_equal,
    group_by,
    last_before,
)

entries = st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 3)), max_size=12)


@given(entries)
def test_equals_loops(entries):
    keys, labels = [k for k, _ in entries], [x for _, x in entries]
    groups = group_by(np.array(keys, np.int64))
    earlier = [[j for j in range(i) if keys[j] == keys[i]] for i in range(len(keys))]
    assert count_before(groups).tolist() == [len(found) for found in earlier]
    last = [found[-1] if found else -1 for found in earlier]
    assert last_before(groups).tolist() == last
    first = [found[0] if found else i for i, found in enumerate(earlier)]
    assert first_equal(groups).tolist() == first
    distinct = [
        len({labels[j] for j in [*found, i]}) for i, found in enumerate(earlier)
    ]
    assert distinct_so_far(groups, np.array(labels, np.int64)).tolist() == distinct


def test_pairs_of_neighbouring_groups_are_told_apart():
    """Key 0 with the highest label alone, then key 1 with the lowest as its second."""
    groups = group_by(np.array([0, 1, 1]))
    assert distinct_so_far(groups, np.array([1, 1, 0])).tolist() == [1, 1, 2]
