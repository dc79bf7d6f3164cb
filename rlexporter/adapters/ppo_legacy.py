"""Taps on legacy PPO (`PPOTrainer` up to trl 0.11): the user writes the loop, and calls `step()` and `log_stats()`.

There are no callbacks: one call of `step()` is a step, and the time between two calls is the rollout.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from rlexporter.adapters.consistency import Consistency
from rlexporter.adapters.optimizer import BackwardTaps
from rlexporter.adapters.trainer_facts import gpus, hyperparameters, model_name, version_of
from rlexporter.adapters.weights import StepWeights
from rlexporter.catalog import algorithms
from rlexporter.frameworks.known import TRL
from rlexporter.model.sink import Rollout, TrainedRun
from rlexporter.model.step import RunFacts, StepUpdate

_ONLY_ITS_MEAN = "the trainer computes only its mean over the tokens of a mini-batch: see rl_entropy_per_token"
_NAMES = ("exp_name", "tracker_project_name")
"""Settings that name a run, if the user gave them: the first one's default is the name of the script."""


def run_facts(trainer: Any) -> RunFacts:
    """Return the facts of a run of the legacy ``trainer``, which never says when the run is over."""
    accelerator, config = trainer.accelerator, trainer.config
    model = accelerator.unwrap_model(trainer.model)
    return RunFacts(
        algorithm=algorithms.PPO_LEGACY,
        framework=TRL,
        rank=int(accelerator.process_index),
        local_rank=int(accelerator.local_process_index),
        world_size=int(accelerator.num_processes),
        gpus=gpus(accelerator.device, int(accelerator.num_processes)),
        run_name=_given_name(config),
        info={
            "trainer": type(trainer).__name__,
            "model": model_name(getattr(model, "pretrained_model", model)),
            **{name: version_of(name) for name in ("trl", "transformers")},
        },
        hyperparameters=hyperparameters(config),
        step=0,
        open_ended=True,
        totals={"num_tokens": 0, "episode": 0},
    )


class LegacyTaps(BackwardTaps):
    """Taps on legacy PPO. They see the data of this rank only."""

    def __init__(self, trainer: Any, run: TrainedRun) -> None:
        super().__init__(trainer, run.sink)
        self._run = run
        self._rollout = contextlib.ExitStack()
        self._begun = False
        self._weights = StepWeights(trainer, run.sink)
        self._consistency = Consistency(trainer, run.sink)
        self._since = 0.0
        self._done = 0
        self._logged: frozenset[str] = frozenset()
        self._fresh = False
        """True until the first mini-batch of a step."""
        self._skipped: Any = 0
        """The count, on the trainer's device from the first mini-batch on: reading it would wait for the device."""

    def install(self) -> None:
        """Wrap `step()`, what it calls, and the log line. The run begins with the first `generate()` or `step()`."""
        trainer, sink = self.trainer, self.sink
        sink.signal("entropy", _ONLY_ITS_MEAN)
        self._consistency.without_groups()
        self.tap(trainer, "generate", self._generate)
        self.tap(trainer, "step", self._step, "reward", "weights")
        self.tap(trainer, "compute_advantages", self._advantages, "advantage", "value")
        self.tap(trainer, "loss", self._loss, "ratio", "loss")
        signals = ("kl", "logprob", "completion_length", "prompt_length", "reference", "prompt")
        self.tap(trainer, "record_step_stats", self._record, *signals)
        self.tap(trainer.accelerator, "backward", self._backward, "grad_norm")
        self.tap(trainer.accelerator, "log", self._log)
        self.tap(trainer, "log_stats", self._log_stats)
        self.tap(trainer, "save_pretrained", self._save)
        sink.on_close(self._rollout.close)

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._since = time.perf_counter()
        with self.sink.guard("event"):
            self._run.begin(run_facts(self.trainer))
            self._rollout.enter_context(self.sink.phase("rollout"))

    def _generate(self, generate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._begin()
        self._weights.see_before()  # the rollout fails where a weight is NaN
        return generate(*args, **kwargs)

    def _step(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._begin()
        self._weights.see_before()
        with self.sink.observing("reward"):  # the raw scores: the trainer scales and clips them
            import torch

            scores = torch.cat([score.detach().reshape(-1) for score in self.argument(step, "scores", args, kwargs)])
            self.sink.observe("rl_reward_dist", scores)
            self.sink.observe("rl_reward_zero_fraction", (scores == 0).float())
        with self.sink.phase("update"):
            stats = step(*args, **kwargs)
        self._weights.see_after()
        with self.sink.guard("tap"):
            now = time.perf_counter()
            self._done += 1
            update = StepUpdate(step=self._done, duration=now - self._since)
            self._since = now
            self._logged = frozenset(stats)
            self.sink.log(stats, step=self._done, update=update)
        return stats

    def _log(self, log: Callable[..., Any], values: Any, *args: Any, **kwargs: Any) -> Any:
        """Serve what `log_stats()`, or the user, adds to the statistics of the last step."""
        with self.sink.guard("tap"):
            added = {key: value for key, value in values.items() if key not in self._logged}
            if added:
                self.sink.log(added, step=self._done)
        return log(values, *args, **kwargs)

    def _save(self, save: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        saved = save(*args, **kwargs)
        self.sink.saved(self._done)
        return saved

    def _log_stats(self, log_stats: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Keep the texts that the script hands over with the statistics; the trainer has read the rewards by then."""
        logged = log_stats(*args, **kwargs)

        def texts() -> Rollout | None:
            batch, rewards = (self.argument(log_stats, name, args, kwargs) for name in ("batch", "rewards"))
            if not {"query", "response"} <= set(batch):
                return None
            scores = [float(score) for score in rewards]
            return Rollout(list(batch["query"]), list(batch["response"]), {}, scores)

        self.sink.completions(texts, done=True)
        return logged

    def _advantages(self, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        output = compute(*args, **kwargs)
        self._fresh = True
        with self.sink.observing("advantage"):
            self.sink.observe("rl_advantage_dist", output[1], self.argument(compute, "mask", args, kwargs))
        with self.sink.observing("value"):
            mask = self.argument(compute, "mask", args, kwargs)
            self.sink.observe("rl_value_dist", self.argument(compute, "values", args, kwargs), mask)
            self.sink.observe("rl_return_dist", output[2], mask)
        return output

    def _loss(self, loss: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        output = loss(*args, **kwargs)

        def given(name: str) -> Any:
            return self.argument(loss, name, args, kwargs)

        with self.sink.observing("ratio"):
            ratio, mask = output[2]["policy/ratio"], given("mask")
            self.sink.observe("rl_policy_ratio_dist", ratio, mask)
            mean = (ratio * mask).sum() / mask.sum()  # the trainer skips an update with a mean above the limit
            self._skipped = self._skipped + (mean.double() > self.trainer.config.ratio_threshold)
            self.sink.observe("rl_skipped_updates_total", self._skipped)
        if self._fresh:  # once a step: it takes as many operations as all else here
            self._fresh = False
            with self.sink.observing("advantage"):
                self._consistency.see_returns(*map(given, ("advantages", "returns", "values", "mask")))
        with self.sink.observing("loss"):  # zeroing makes NaN of an infinite one
            self.sink.observe("rl_loss_dist", output[2]["loss/total"])
            self.sink.observe("rl_policy_loss_dist", output[2]["loss/policy"])
            self.sink.observe("rl_value_loss_dist", output[2]["loss/value"])
        return output

    def _record(self, record: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        stats = record(*args, **kwargs)
        sink = self.sink

        def given(name: str) -> Any:
            return self.argument(record, name, args, kwargs)

        with sink.observing("kl"):
            sink.observe("rl_kl_per_token_dist", given("kls"), given("masks"))
            sink.observe("rl_kl_per_sequence_dist", stats["objective/kl_dist"])
            sink.observe("rl_ref_logprob_dist", given("ref_logprobs"), given("masks"))
        with sink.observing("logprob"):
            sink.observe("rl_logprob_dist", given("logprobs"), given("masks"))
        with sink.observing("completion_length"):
            sink.observe("rl_completion_length_dist", [len(response) for response in given("responses")])
        with sink.observing("prompt_length"):
            sink.observe("rl_prompt_length_dist", [len(query) for query in given("queries")])
        with sink.guard("tap"):
            self._consistency.see_queries(given("queries"))
            self._consistency.see_reference()
        return stats


def _given_name(config: Any) -> str | None:
    """Return the name that the user gave; a data class keeps its defaults as attributes of the class."""
    for name in _NAMES:
        given = getattr(config, name, None)
        if given != getattr(type(config), name, None):
            return str(given) if given else None
    return None
