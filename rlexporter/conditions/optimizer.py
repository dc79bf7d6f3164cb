"""The update: gradients, the learning rate, the weights and what the optimizer knows of them, the value loss."""

from __future__ import annotations

from rlexporter.conditions.declare import PPO, TRAINERS, condition, mean, read, signal
from rlexporter.conditions.detectors import (
    LASTING,
    MOSTLY,
    SOME,
    Own,
    Still,
    critical,
    found,
    info,
    level,
    ratio,
    warning,
)
from rlexporter.conditions.learning import untaught
from rlexporter.conditions.reward import ORDERS
from rlexporter.conditions.view import ROUNDING, Context, Found, Reading, View
from rlexporter.model.condition import Family

_CHANGED, _GRADIENTS = "rl_weight_changed_fraction", "rl_grad_norm_dist"
_UNTIL_MOVED = 20
"""The number of looks after which weights that have never changed are frozen; before it the rate may be tiny yet."""
_WARM_RATE = 0.1
"""The share of its highest value above which a learning rate must change weights in bf16 too."""
_LOOKS = 10
"""The number of looks before the usual share of weights that change is known."""

read("grad_norm", "", mean(_GRADIENTS), "rl_grad_norm")
read("value_loss", "squared reward", mean("rl_value_loss_dist"), "rl_value_loss")
read("learning_rate", "", "rl_learning_rate")
read("not_in_optimizer", "fraction", mean("rl_optimizer_missing_fraction"))
read("gradient_zero", "fraction", mean("rl_gradient_zero_fraction"))
read("optimizer_updates", "updates", mean("rl_optimizer_updates"))
read("weights_changed", "fraction", mean(_CHANGED))
read("weight_norm", "", mean("rl_weight_norm"))
read("update_size", "", mean("rl_weight_update_size"))


@signal("gradient_dead", ORDERS, of="grad_norm", after=("reward_std", "zero_std_fraction"), window=20)
class GradientDead:
    """How improbable it is that the gradient is exactly 0 for so many steps in a row although rewards differ.

    The gradient may be of one step of several that the rewards are of, or of a part of the groups. By chance it is 0
    then with at most the probability that a group has no spread.
    """

    keeps = True
    """Zero is zero wherever it is read."""

    def __init__(self) -> None:
        self._still = Still()

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the orders of magnitude; None in a step whose rewards do not differ."""
        gradient, width = run.new("grad_norm"), run.new("reward_std")
        if gradient is None or width is None or abs(width) <= ROUNDING:
            return None
        flat = run.new("zero_std_fraction")
        improbable = self._still.add(gradient == 0.0, 0.5 if flat is None else flat)
        return Reading(improbable, window=max(1, self._still.length))


@signal("learning_rate_share", "fraction", of="learning_rate")
def learning_rate_share(view: View, run: Context) -> float | None:
    """Return the learning rate over its highest value so far; None if no logged value was above 0."""
    rate, highest = run.new("learning_rate"), run.past["learning_rate"].high
    return rate / highest if rate is not None and highest > 0.0 else None


@signal("learning_rate_step", of="learning_rate")
def learning_rate_step(view: View, run: Context) -> float | None:
    """Return the learning rate over the one before; None before there are three, and after 0."""
    rate, past = run.new("learning_rate"), run.past["learning_rate"]
    return rate / past.values[-2] if rate is not None and past.count > 2 and past.values[-2] > 0.0 else None


@signal("weights_still", after=("learning_rate",), reads=(_CHANGED, _GRADIENTS))
class WeightsStill:
    """Finds out that no weight has changed since the last look although gradients were not zero.

    None where nothing is to be expected: without a gradient, at the low end of a schedule (in bf16 such updates are
    lost in rounding), and before weights have ever changed.
    """

    def __init__(self) -> None:
        self._pushed = False
        """True if all gradients since the weights were last looked at were not zero, and there was one."""
        self._looks = 0
        self._moved = False
        """True if a weight has ever changed."""

    def __call__(self, view: View, run: Context) -> Found | None:
        """Return what was found."""
        gradients, changed = view.counted.get(_GRADIENTS), view.counted.get(_CHANGED)
        here = gradients is not None and gradients.count > 0 and gradients.minimum > 0
        if changed is None or not changed.count:
            self._pushed = self._pushed and (here or gradients is None)
            return None
        pushed, self._pushed = self._pushed, here
        self._looks += 1
        if changed.maximum > 0:
            self._moved = True
            return {}
        moved = self._moved or self._looks > _UNTIL_MOVED
        return {"": 0} if pushed and here and moved and not _is_waning(run) else None


def _is_waning(run: Context) -> bool:
    """Return True at the low end of a schedule of the learning rate, before it is 0."""
    rate = run.past["learning_rate"]
    return bool(rate.count) and 0 < rate.newest < _WARM_RATE * rate.high


@signal("weights_rounded", "fraction", of="weights_changed")
def weights_rounded(view: View, run: Context) -> float | None:
    """Return the share of the weights that change; None where none does, as then they are frozen."""
    return run.new("weights_changed") or None


@signal("optimizer_missing", "fraction", of="not_in_optimizer", after=("weights_changed", "learning_rate"))
def optimizer_missing(view: View, run: Context) -> float | None:
    """Return the share of the trained tensors that the optimizer has lost since the start, or 1 if it never had any.

    An optimizer that works on copies has none of them either: then weights that do not change must prove it.
    """
    share, changed = run.new("not_in_optimizer"), run.new("weights_changed")
    if share is None:
        return None
    first = run.past["not_in_optimizer"].first[0]
    if share < 1.0 or first < 1.0:
        return max(0.0, share - first)
    rate = max(run.past["learning_rate"].values[-2:], default=0.0)
    return None if changed is None else float(changed == 0.0 and rate > 0.0)


@signal("gradients_lost", "fraction", of="gradient_zero")
def gradients_lost(view: View, run: Context) -> float | None:
    """Return by how much more of the tensors have no gradient than in any of the first steps; None in those."""
    share, past = run.new("gradient_zero"), run.past["gradient_zero"]
    return None if share is None or past.count <= _LOOKS else max(0.0, share - max(past.first[:_LOOKS]))


@signal("weight_norm_step", of="weight_norm")
def weight_norm_step(view: View, run: Context) -> float | None:
    """Return by which part of itself the norm of the weights has changed since the last look."""
    norm, before = run.new("weight_norm"), run.past["weight_norm"].last(1, 1)
    return abs(norm / before[0] - 1.0) if norm is not None and before and before[0] > 0.0 else None


@signal("update_per_rate", of="update_size", after=("learning_rate", "weights_changed", "flat_share"))
def update_per_rate(view: View, run: Context) -> float | None:
    """Return the size of the last update over its learning rate; None where most of it is lost in rounding."""
    if untaught(run):
        return None
    size, share = run.new("update_size"), run.new("weights_changed")
    rate = max(run.past["learning_rate"].values[-2:], default=0.0)  # the update was made in the step before
    return size / rate if size is not None and share is not None and share > 0.5 and rate > 0.0 else None


@signal("optimizer_restart", of="optimizer_updates")
def optimizer_restart(view: View, run: Context) -> Found | None:
    """Find out that the optimizer counts fewer updates than before, or half as many as a run that resumes has steps.

    A trainer may take several updates a step; a scaler of fp16 skips a few.
    """
    count, past = run.new("optimizer_updates"), run.past["optimizer_updates"]
    if count is None:
        return None
    fewer = count < past.values[-2] if past.count > 1 else run.resumed and count < view.step / 2
    return {"": 0} if fewer else {}


WEIGHTS = (
    condition("gradients_lost", "RLWeights", Family.OPTIMIZER, "gradients_lost", TRAINERS).when(
        level(warning(0.05, SOME)),
        "Some of the weights no longer get a gradient.",
        related=("rl_gradient_zero_fraction", "rl_weight_changed_fraction", "rl_grad_norm"),
    ),
    condition("weight_norm_jump", "RLWeights", Family.WEIGHTS, "weight_norm_step", TRAINERS).when(
        ratio(warning(8.0), of=Own.RECENT, floor=0.08),
        "The norm of the trained weights has jumped.",
        related=("rl_weight_norm", "rl_weight_update_size", "rl_weight_changed_fraction"),
    ),
    condition("weights_moved", "RLWeights", Family.WEIGHTS, "update_per_rate", TRAINERS).when(
        ratio(warning(8.0), of=Own.RECENT, after=20),
        "The weights have moved much farther than an update moves them.",
        related=("rl_weight_update_size", "rl_learning_rate", "rl_weight_norm"),
    ),
    condition("optimizer_restarted", "RLWeights", Family.WEIGHTS, "optimizer_restart", TRAINERS).when(
        found(warning()),
        "The optimizer has lost its moments.",
        related=("rl_optimizer_updates", "rl_weight_update_size", "rl_learning_rate"),
    ),
    condition("optimizer_incomplete", "RLPolicyFrozen", Family.OPTIMIZER, "optimizer_missing", TRAINERS).when(
        level(warning(0.0, SOME), critical(0.99, SOME)),
        "Some of the trained weights are not in the optimizer.",
        foretold_by=("weights_frozen", "policy_frozen"),
        related=("rl_optimizer_missing_fraction", "rl_weight_changed_fraction"),
    ),
    condition("weights_barely_change", "RLPolicyFrozen", Family.OPTIMIZER, "weights_rounded", TRAINERS).when(
        level(info(0.05, LASTING), below=True),
        "Hardly any weight changes: most updates are lost to rounding.",
        related=("rl_weight_changed_fraction", "rl_learning_rate"),
    ),
)
GRADIENT = (
    condition("gradient_dead", "RLNoSignal", Family.GRAD_DEAD, "gradient_dead", TRAINERS).when(
        level(warning(1.9, SOME), critical(5.5)),
        "The gradient is exactly zero although rewards differ.",
        related=("rl_grad_norm", "rl_reward_std", "rl_completion_truncated_fraction"),
    ),
    condition("learning_rate_zero", "RLPolicyFrozen", Family.LR, "learning_rate_share").when(
        level(warning(1e-06, MOSTLY), below=True),
        "The learning rate is zero.",
        related=("rl_learning_rate",),
    ),
    condition("learning_rate_jump", "RLUpdateTooLarge", Family.LR, "learning_rate_step").when(
        level(warning(5.0)),
        "The learning rate has jumped.",
        related=("rl_learning_rate",),
    ),
    condition("grad_spike", "RLGradient", Family.GRAD, "grad_norm").when(
        ratio(warning(100.0), of=Own.RECENT, quantile=0.9, floor=1e-06, after=20),
        "The gradient norm has spiked.",
        related=("rl_grad_norm", "rl_reward_std"),
    ),
    condition("grad_explosion", "RLGradient", Family.GRAD, "grad_norm").when(
        ratio(critical(5.0, SOME), of=Own.RECENT, quantile=0.9, floor=1e-06),
        "The gradient norm explodes.",
        related=("rl_grad_norm", "rl_reward_std", "rl_sampling_logp_difference_mean"),
    ),
)
VALUE = (
    condition("value_loss_spike", "RLValueLoss", Family.VALUE, "value_loss", PPO).when(
        ratio(warning(20.0), critical(5.0, SOME), of=Own.RECENT, quantile=0.9, floor=1e-06),
        "The value loss spikes.",
        stops=False,
        related=("rl_value_loss", "rl_return_mean", "rl_value_mean"),
    ),
)
FROZEN = (
    condition("weights_frozen", "RLPolicyFrozen", Family.OPTIMIZER, "weights_still", TRAINERS).when(
        found(warning(lasts=SOME), critical(lasts=MOSTLY)),
        "The weights no longer change, although there is a gradient.",
        related=("rl_weight_changed_fraction", "rl_weight_norm", "rl_grad_norm", "rl_learning_rate"),
    ),
)
