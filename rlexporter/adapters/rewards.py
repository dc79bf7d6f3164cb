"""Taps on the rewards of GRPO and RLOO (trl 1.16): each function's, their sum, and the resulting advantages.

TRL turns a None into NaN, which then looks like a NaN of the function's own: so the functions are watched.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import time
import weakref
from collections.abc import Callable
from typing import Any

from rlexporter.adapters.taps import Taps

Report = Callable[[list[bool], float], None]
"""Callback that gets, for each sample of a call, whether its reward was None; and the seconds that the call took."""
During = Callable[[], contextlib.AbstractContextManager[None]]


_PLAIN = "_rlexporter_plain"
"""The attribute of a watched coroutine function with the function itself."""
_SAME = 1e-6
"""The range up to which the rewards of a group are the same."""


class RewardTaps(Taps):
    """Taps on rewards. They ignore the samples of other ranks, and count those of an evaluation for themselves."""

    method = "_calculate_rewards"
    """The trainer's method that returns the rewards of all ranks."""
    samples = "prompts"
    """Its argument that holds the samples of this rank."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._none: dict[int, list[bool]] = {}
        self._seconds: dict[int, float] = {}
        self._dataset = ""
        self._weights: list[float] = []
        self._rewards: Any = None
        self._timed = False
        """True if each function is timed by itself, without the wait for other ranks that follows it."""

    def install(self) -> None:
        """Wrap ``method``, and replace each reward function by a watched one."""
        self.tap(self.trainer, self.method, self._calculate, "reward")
        self.tap(self.trainer, "evaluation_loop", self._evaluate)
        with self.sink.guard("tap"):
            self.sink.on_close(functools.partial(_restore, weakref.ref(self.trainer)))
            functions = self.trainer.reward_funcs
            during = functools.partial(self.sink.phase, "reward")
            for i, function in enumerate(functions):
                functions[i] = watch(function, functools.partial(self._called, i), during)
            self._timed = all(type(function) is Watched for function in functions)

    def _called(self, i: int, none: list[bool], seconds: float) -> None:
        """Keep what a call of function ``i`` was. The thread that runs coroutines may call this."""
        self._none[i], self._seconds[i] = none, seconds

    def _calculate(self, calculate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self.trainer.model.training:
            per_function = calculate(*args, **kwargs)
            with self.sink.guard("tap"):
                self._see_evaluated(per_function, len(self.argument(calculate, self.samples, args, kwargs)))
            return per_function
        with contextlib.nullcontext() if self._timed else self.sink.phase("reward"):
            per_function = calculate(*args, **kwargs)
        with self.sink.observing("reward"):
            self._see(per_function, len(self.argument(calculate, self.samples, args, kwargs)))
        return per_function

    def _evaluate(self, evaluate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the loop over one data set, whose name is in the prefix of its log keys."""
        prefix = str(kwargs.get("metric_key_prefix", ""))
        self._dataset = prefix.removeprefix("eval").removeprefix("_") or "default"  # as the rest of it is named
        try:
            return evaluate(*args, **kwargs)
        finally:
            self.sink.evaluated()

    def _see_evaluated(self, per_function: Any, count: int) -> None:
        """Observe what functions returned in an evaluation, as `_see` does: none of it is of the training."""
        self._see_functions("rl_eval_reward_function_unfiltered_mean", per_function, count, self._dataset)

    def _see_functions(self, metric: str, per_function: Any, count: int, *labels: str) -> tuple[Any, list[list[bool]]]:
        """Observe each function's rewards of this rank; return those, and by function which of them were None."""
        start = self.trainer.accelerator.process_index * count
        names = self.trainer.reward_func_names
        none = [self._none.get(i) or [False] * count for i in range(len(names))]
        local = per_function.narrow(0, start, count)
        for i, (name, rewards) in enumerate(zip(names, local.unbind(1), strict=True)):
            self.sink.observe(metric, rewards, _except(none[i], local), (*labels, name))
            self.sink.undefined(metric, sum(none[i]))
        return local, none

    def _see(self, per_function: Any, count: int) -> None:
        """Observe ``per_function`` (samples of all ranks, functions; NaN for None); this rank has ``count`` samples."""
        local, none = self._see_functions("rl_reward_function_dist", per_function, count)
        for i, name in enumerate(self.trainer.reward_func_names):
            if (seconds := self._seconds.pop(i, None)) is not None:
                self.sink.observe("rl_reward_function_time_seconds", [seconds], labels=(name,))
        start = self.trainer.accelerator.process_index * count
        unscored = [all(flags) for flags in zip(*none, strict=True)]
        scored = _except(unscored, local)
        rewards = weighted(per_function, self.trainer.reward_weights)
        self.sink.observe("rl_reward_dist", rewards.narrow(0, start, count), scored)
        self.sink.undefined("rl_reward_dist", sum(unscored))
        self._rewards = rewards
        self._see_weights()
        self._see_groups(per_function, rewards, [*none, unscored], start)
        # TRL replaces advantages that are not finite by 0 or the largest number: they are counted before that.
        advantages = self._centred(rewards).narrow(0, start, count)
        lost = advantages - advantages != 0  # the difference is NaN for NaN and the infinities
        self.sink.observe("rl_advantage_dist", advantages, lost if scored is None else lost & scored)
        self.sink.undefined("rl_advantage_dist", sum(unscored))

    def take(self) -> Any:
        """Return the rewards of the rollout that was just made, one for each completion of all ranks, once."""
        rewards, self._rewards = self._rewards, None
        return rewards

    def _see_groups(self, per_function: Any, rewards: Any, none: list[list[bool]], start: int) -> None:
        """Observe within the groups of all ranks: ranges, how many have none, and exact zeros in those that have one.

        Of each function, and of ``rewards``, the sum; ``none``: by function and for the sum, which samples have none.
        """
        import torch

        given = torch.cat([per_function, rewards.unsqueeze(1)], 1).view(-1, self.trainer.num_generations, len(none))
        ranges, known = ranges_of(given)
        self.sink.observe("rl_reward_group_range_dist", ranges.select(1, -1), known.select(1, -1))
        zeros = ((given == 0) & (ranges > _SAME).unsqueeze(1)).view(-1, len(none)).narrow(0, start, len(none[0]))
        *of_functions, of_all = zeros.float().unbind(1)
        self.sink.observe("rl_reward_zero_fraction", of_all, _except(none[-1], zeros))
        flat = (ranges.abs() <= _SAME).float().unbind(1)
        for i, name in enumerate(self.trainer.reward_func_names):
            zero, judged = _except(none[i], zeros), known.select(1, i) if any(none[i]) else None
            self.sink.observe("rl_reward_function_zero_fraction", of_functions[i], zero, (name,))
            self.sink.observe("rl_reward_function_flat_fraction", flat[i], judged, (name,))

    def _see_weights(self) -> None:
        """Observe the weight of each function where it has changed, unless reading it would wait for a device."""
        given = self.trainer.reward_weights
        if getattr(getattr(given, "device", None), "type", "cpu") != "cpu":
            return
        weights = [*map(float, given.tolist() if hasattr(given, "tolist") else given)]
        if weights != self._weights:
            self._weights = weights
            for name, weight in zip(self.trainer.reward_func_names, weights, strict=True):
                self.sink.observe("rl_reward_function_weight", [weight], labels=(name,))

    def _centred(self, rewards: Any) -> Any:
        """Return ``rewards`` minus the sum of their group: finite exactly where TRL's own advantage is at first.

        TRL subtracts the mean, which costs five times as many operations and is NaN or infinite where the sum is.
        """
        grouped = rewards.view(-1, self.trainer.num_generations)
        return (grouped - grouped.nansum(1, keepdim=True)).view(-1)


def ranges_of(groups: Any) -> tuple[Any, Any]:
    """Return the largest minus the smallest number along dimension 1, NaN left out; and where that is a number."""
    import torch

    high, low = (torch.nan_to_num(groups, missing, math.inf, -math.inf) for missing in (-math.inf, math.inf))
    ranges = high.amax(1) - low.amin(1)
    return ranges, ranges - ranges == 0


def weighted(per_function: Any, weights: Any) -> Any:
    """Return the reward of each completion as TRL sums it: NaN only if every function's is.

    ``per_function``: completions, functions; ``weights``: one a function, which a curriculum may change. A weight in
    host memory is passed to a kernel by value, so nothing waits for a device.
    """
    import torch

    parts = torch.stack([rewards * weight for rewards, weight in zip(per_function.unbind(1), weights, strict=True)], 1)
    return torch.where(parts.isnan().all(1), math.nan, parts.nansum(1))


class Watched:
    """A reward function that reports its Nones and its time, and runs in ``during``; a pickle is the plain function."""

    def __init__(self, function: Callable[..., Any], report: Report, during: During) -> None:
        self.function = function
        self.report = report
        self.during = during
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        with self.during():
            rewards = self.function(*args, **kwargs)
        return _seen(rewards, self.report, started)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.function, name)

    def __reduce__(self) -> Any:
        return (_itself, (self.function,))


def _watched_async(function: Callable[..., Any], report: Report) -> Callable[..., Any]:
    """Return the same for a coroutine function, but not timed: several run at once.

    It is a function: TRL up to 1.10 awaits what `inspect.iscoroutinefunction` says is one, which no object can be.
    """

    @functools.wraps(function)
    async def watched(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        return _seen(await function(*args, **kwargs), report, started)

    setattr(watched, _PLAIN, function)
    return watched


def _seen(rewards: Any, report: Report, started: float) -> Any:
    """Report which rewards are None, and the time since ``started``; return them, as a list where they can be."""
    if not isinstance(rewards, (list, tuple)) and not hasattr(rewards, "shape"):
        rewards = list(rewards)
    none = [] if hasattr(rewards, "shape") else [reward is None for reward in rewards]
    report(none, time.perf_counter() - started)
    return rewards


def watch(function: Any, report: Report, during: During) -> Any:
    """Return ``function``, watched; a reward model, which always gives numbers, is returned as it is."""
    if not callable(function) or hasattr(function, "parameters"):
        return function
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    coroutine = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)
    return _watched_async(function, report) if coroutine else Watched(function, report, during)


def _itself(function: Any) -> Any:
    return function


def _restore(trainer: weakref.ref[Any]) -> None:
    """Put the plain functions back, without keeping the trainer and its reward models alive until then."""
    still = trainer()
    functions = still.reward_funcs if still is not None else []
    for i, function in enumerate(functions):
        functions[i] = function.function if isinstance(function, Watched) else getattr(function, _PLAIN, function)


def _except(flags: list[bool], like: Any) -> Any:
    """Return a mask of the samples that are not flagged, on the device of ``like``; None if none is flagged."""
    if not any(flags):
        return None
    import torch

    # One byte a sample: CUDA takes so little along with the call, so that nothing waits and no memory is locked.
    return torch.tensor([not flag for flag in flags]).to(like.device, non_blocking=True)
