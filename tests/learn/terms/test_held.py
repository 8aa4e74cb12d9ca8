from torch import nn

from likewise.learn.terms._held import hold_without_registering


def test_a_held_module_is_not_part_of_its_owner():
    owner, network = nn.Linear(2, 2), nn.Linear(3, 3)
    hold_without_registering(owner, "network", network)
    assert owner.network is network
    assert set(owner.state_dict()) == {"weight", "bias"} and len(list(owner.modules())) == 1
