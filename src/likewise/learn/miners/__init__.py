"""Miners: choose the pairs or triplets of a batch that a loss uses. The classes imported here are the registry."""

from likewise.learn.miners.batch_hard import BatchHard as BatchHard
from likewise.learn.miners.distance_weighted import DistanceWeighted as DistanceWeighted
from likewise.learn.miners.easy_positive import EasyPositive as EasyPositive
from likewise.learn.miners.hard_pairs import HardPairs as HardPairs
from likewise.learn.miners.random import Random as Random
from likewise.learn.miners.semi_hard import SemiHard as SemiHard
from likewise.learn.miners.soft_hard import SoftHard as SoftHard
from likewise.learn.miners.switch import Switch as Switch
from likewise.learn.miners.tsint import TSINT as TSINT

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
