"""How to train: what a user may change."""

from dataclasses import dataclass

from perc.errors import check_number, check_whole

MOST_HIDDEN = 15  # layers; a policy file holds one more


@dataclass(frozen=True)
class Settings:
    """How to train. Defaults were chosen on the first 7,000 conversation requests.

    Raises:
        InputError: if one is out of range.
    """

    seed: int = 0
    steps: int = 0  # 0 = as the method likes
    members: int = 0  # networks, averaged; 0 = as the method likes
    hidden: tuple[int, ...] = (32, 32)
    classes: int = 32  # of blocks, each with a worth by age
    batch: int = 0  # examples a step; 0 = as the method likes
    rate: float = 0.0  # of Adam, falling to 0 as a cosine; 0 = as the method likes
    decay: float = 0.1  # of weights, AdamW
    weight_power: float = 0.5  # a run of n blocks weighs n to that
    held_out: float = 0.1  # share of the sessions that teach nothing, and judge

    def __post_init__(self) -> None:
        check_whole("train", "seed", self.seed, 0, 2**31 - 1)
        check_whole("train", "steps", self.steps, 0, 10**6)
        check_whole("train", "members", self.members, 0, 64)
        check_whole("train", "batch", self.batch, 0, 2**20)
        check_whole("train", "classes", self.classes, 1, 256)
        check_whole("train", "hidden: its length", len(self.hidden), 0, MOST_HIDDEN)
        for width in self.hidden:
            check_whole("train", "hidden", width, 1, 4096)
        check_number("train", "rate", self.rate, high=1.0)
        check_number("train", "decay", self.decay, high=10.0)
        check_number("train", "weight_power", self.weight_power, high=1.0)
        check_number("train", "held_out", self.held_out, high=0.9)
