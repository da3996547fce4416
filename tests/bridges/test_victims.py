"""The heap of groups against a sorted list of blocks, over long random traffic."""

import random

import pytest

from perc.bridges.victims import Victims

SIZE = 400


class Plain:
    """Free blocks by what ranks them: one row a block."""

    def __init__(self):
        self.rows: dict[int, tuple] = {}  # rank, then the use
        self.releases = 0

    def add(self, ids, key=None, use=None):
        self.releases += 1
        # What has no content leaves before the rest, the last release first.
        head = (0, -self.releases) if key is None else (1, key, self.releases)
        for place, block in enumerate(ids):
            self.rows[block] = ((*head, place), use)

    def remove(self, ids):
        for block in ids:
            del self.rows[block]

    def order(self, kind=(0, 1)):
        rows = [(rank, block) for block, (rank, _) in self.rows.items()]
        return [block for rank, block in sorted(rows) if rank[0] in kind]


def play(draws, steps):
    """Random calls of `Victims`, each followed by a look at all that can be seen."""
    plain, used = Plain(), list(range(SIZE))
    victims = Victims(SIZE)
    for step in range(steps):
        # The cache fills up, then empties, and so on.
        release = draws.random() < (0.7 if step % 200 < 100 else 0.25)
        if release and used:
            draws.shuffle(used)
            n = min(draws.choice([1, 1, 2, 5, 60]), len(used))
            ids, used = used[:n], used[n:]
            if draws.random() < 0.2:
                victims.add_blank(ids)
                plain.add(ids)
            else:
                key = draws.choice([0.0, 1.0, -1.0, draws.random()])
                victims.add(ids, key, use=step)
                plain.add(ids, key, use=step)
        else:
            used += take_some(draws, victims, plain)
        assert list(victims.order()) == plain.order()
        assert victims.free == len(plain.rows)
        assert {b for b in range(SIZE) if victims.stands[b]} == set(plain.rows)


def take_some(draws, victims, plain):
    """Blocks that are used again, by one of the ways there are."""
    blank, full = plain.order((0,)), plain.order((1,))
    n = draws.choice([1, 2, 10])
    match draws.choice(["take", "take", "remove", "remove", "remove", "withdraw"]):
        case "take" if blank:
            ids = victims.take_blank(n)
            assert ids == blank[:n]
        case "take":
            parts = victims.take(min(n, len(full)))
            ids = [block for _, part in parts for block in part]
            assert ids == full[:n]
            uses = [use for use, part in parts for _ in part]
            assert uses == [plain.rows[block][1] for block in ids]
        case "remove":
            ids = draws.sample(sorted(plain.rows), min(4 * n, len(plain.rows)))
            assert victims.remove_own(ids) == []
        case _:
            key = draws.choice([-1.0, 0.1, 0.5])
            ids = [block for group in victims.withdraw(key) for block in group.ids]
            assert ids == [b for b in full if plain.rows[b][0][1] <= key]
    plain.remove(ids)
    return ids


@pytest.mark.parametrize("seed", range(4))
def test_equals_a_sorted_list(seed):
    play(random.Random(seed), 800)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_due_is_listed_where_it_would_stand(seed):
    """`due` says what `withdraw` gives, and `order` what follows if that is added."""
    draws = random.Random(seed)
    kept = Victims(60)
    held = Victims(60, kept.stands)
    blocks = draws.sample(range(60), 60)
    while blocks:
        ids, blocks = blocks[:4], blocks[4:]
        key, until_s = draws.choice([0.0, 1.0]), float(draws.randrange(4))
        if draws.random() < 0.5:
            held.add(ids, until_s, (key, seed))
        else:
            kept.add(ids, key)
    held.remove_own(draws.sample(range(60), 20))
    now_s = float(draws.randrange(4))
    due = held.due(now_s)
    listed = list(kept.order(due))
    held_before = list(held.order())
    gone = [(*group.use, group.ids) for group in held.withdraw(now_s)]
    assert due == gone
    assert [b for b in held_before if kept.stands[b]] == list(held.order())
    for key, use, ids in gone:
        kept.add(ids, key, use)
    assert listed == list(kept.order())


def test_order_outlives_a_sweep_of_empty_entries():
    """Most of 300 groups are emptied, so that the heap is made anew without them."""
    draws = random.Random(0)
    victims, plain = Victims(SIZE), Plain()
    for block in draws.sample(range(300), 300):
        key = draws.random()
        victims.add([block], key)
        plain.add([block], key)
    gone = draws.sample(range(300), 250)
    for block in gone:
        victims.remove([block])
        plain.remove([block])
        assert 2 * victims._empty <= len(victims._heap) + 64
    assert [ids for _, ids in victims.take(50)] == [[b] for b in plain.order()]
    assert victims.free == 0 and not any(victims.stands)


def test_a_group_that_others_took_over_is_cut_down():
    victims = Victims(SIZE)
    victims.add(list(range(100)), 0.0)
    group = victims.stands[0]
    assert group is not None
    for block in range(99, 5, -1):
        victims.remove([block])
        assert len(group.ids) <= 4 * victims.free + 32
    assert list(victims.order()) == list(range(6))


def test_blocks_of_another_order_are_given_back():
    one = Victims(4)
    two = Victims(4, one.stands)
    one.add([0, 1], 0.0)
    two.add([2], 0.0)
    assert one.remove_own([0, 2, 3]) == [2, 3]
    assert (one.free, two.free) == (1, 1)
    with pytest.raises(ValueError, match="block 3 is not free"):
        one.remove([3])
