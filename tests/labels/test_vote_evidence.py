import numpy as np
import torch

from likewise.labels.ballots import cast_ballots, decide
from likewise.labels.vote_evidence import find_consensus, fit_temperature, fit_weights


def world(seed=0, samples=400, classes=5, accuracy=0.6, distance=2.5, per_sample=3):
    """Gaussian classes, and votes of six workers."""
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % classes
    x = distance * rng.normal(size=(classes, 8))[y] / 2 + rng.normal(size=(samples, 8))
    row = np.arange(samples).repeat(per_sample)
    worker = np.concatenate([rng.choice(6, per_sample, False) for _ in range(samples)])
    wrong = (y[row] + rng.integers(1, classes, len(row))) % classes
    vote = np.where(rng.random(len(row)) < accuracy, y[row], wrong)
    votes = cast_ballots(*map(torch.as_tensor, (row, worker, vote)), samples, 6, classes)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y), votes


def test_features_and_votes_together_are_better_than_each():
    x, y, votes = world()
    both, alone = find_consensus(x, votes), find_consensus(None, votes)
    wrong = [float((decide(one.q, votes.counts).label != y).double().mean()) for one in (both, alone)]
    assert both.features is not None and both.gain > 0 and alone.features is None
    of_features = float((both.features.argmax(1) != y).double().mean())
    assert wrong[0] < wrong[1] and wrong[0] < of_features
    expected = float(decide(both.q, votes.counts).wrong.mean())
    assert abs(expected - wrong[0]) < 0.04  # two standard errors of a share of 0.1 in 400 samples are 0.03


def test_features_without_information_change_nothing():
    _, _, votes = world()
    x = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
    found, alone = find_consensus(x, votes), find_consensus(None, votes)
    assert found.features is None and found.gain == 0
    torch.testing.assert_close(found.q, alone.q)


def test_a_sample_does_not_confirm_its_own_votes():
    """The votes of one sample change: what the features suggest for it stays nearly the same, its posterior does not."""
    x, y, votes = world()
    mine = votes.row == 7
    other = (y[7] + 1) % 5
    changed = cast_ballots(votes.row, votes.worker, votes.label.where(~mine, other), 400, 6, 5)
    found = [find_consensus(x, one, rounds=1) for one in (votes, changed)]
    assert found[0].features is not None and found[1].features is not None
    p, moved = found[0].features[7], found[1].features[7]
    assert float((p - moved).abs().max()) < 0.05  # weights and frequencies are fitted on all samples
    assert float(found[1].q[7, other]) > float(found[0].q[7, other])


def test_weights_maximise_the_likelihood_of_the_votes():
    _, y, _ = world()
    scores = torch.zeros(1, 400, 5, dtype=torch.float64).scatter_(2, y[None, :, None], 1.0)
    like = torch.zeros(400, 5, dtype=torch.float64).scatter_(1, y[:, None], 1.5)
    frequency = torch.full((5,), 0.2, dtype=torch.float64).log()
    found = fit_weights(scores, like, frequency)
    assert float(found[0]) > 5  # the scores are always right: the weight goes to its bound
    like = torch.zeros_like(like).scatter_(1, ((y + 1) % 5)[:, None], 1.5)
    assert float(fit_weights(scores, like, frequency)[0]) < 0.05  # the votes always contradict them


def test_the_temperature_makes_an_overconfident_posterior_fit_held_out_votes():
    """True log odds of classes are drawn; a model that doubles them must be divided by 2, and the true ones stay."""
    random = torch.Generator().manual_seed(0)
    odds = 2 * torch.randn(20000, 3, generator=random, dtype=torch.float64)
    y = torch.multinomial(odds.softmax(1), 1, generator=random)[:, 0]
    right = torch.rand(20000, generator=random) < 0.8
    vote = torch.where(right, y, (y + torch.randint(1, 3, (20000,), generator=random)) % 3)
    logs = torch.full((3, 3), 0.1, dtype=torch.float64).fill_diagonal_(0.8).log().T[vote]
    assert abs(fit_temperature(odds, logs) - 1) < 0.1  # 20,000 votes: the deviation over seeds is about 0.03
    assert abs(fit_temperature(2 * odds, logs) - 2) < 0.2


def test_few_votes_do_not_move_the_temperature():
    logs = torch.tensor([[0.8, 0.2]], dtype=torch.float64).log()
    assert abs(fit_temperature(torch.tensor([[-3.0, 3.0]], dtype=torch.float64), logs) - 1) < 0.5


def test_the_temperature_changes_no_label():
    """The same model without and with workers who all copy one vote: certain, but no label moves by the temperature."""
    _, _, votes = world(samples=200)
    row, label = votes.row[::3].repeat(3), votes.label[::3].repeat(3)
    copied = cast_ballots(row, torch.arange(3).repeat_interleave(200), label, 200, 3, 5)
    found = find_consensus(None, copied)
    assert found.q.argmax(1).equal(votes.label[::3])
