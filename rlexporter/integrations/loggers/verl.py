"""verl: `Tracking`, its one way out of the driver process. Written for `verl/utils/tracking.py` of verl 0.9.1.

`__init__` is handed the whole configuration, `log(data, step)` every line, and the trainer calls `finish(exit_code)` at
its end; older versions have no `finish`. The class is not documented, but trainers and recipes import it by this name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rlexporter.catalog import family
from rlexporter.catalog.frameworks.verl import VERL, VERL_V1
from rlexporter.integrations.log_sources import Sources, watch
from rlexporter.integrations.loggers.common import at, linger_in_actor, of_framework, settings_at
from rlexporter.model.step import RunFacts

NAME = "verl"
_VALIDATION = "val"
"""The first letters of the keys of a validation, of all versions: ``val/``, ``val-core/``, ``val-aux/``."""
_AGGREGATION = "actor_rollout_ref.actor.loss_agg_mode"
"""The setting that says how the loss of a batch is made from that of its tokens."""
_AGGREGATED = frozenset(("actor/entropy", "actor/entropy_loss", "actor/kl_loss"))
"""The keys of what is aggregated over tokens as the loss is."""
_SETTINGS = {
    "num_generations": ("actor_rollout_ref.rollout.n",),
    "temperature": ("actor_rollout_ref.rollout.temperature",),
    "top_p": ("actor_rollout_ref.rollout.top_p",),
    "top_k": ("actor_rollout_ref.rollout.top_k",),
    "learning_rate": ("actor_rollout_ref.actor.optim.lr",),
    "weight_decay": ("actor_rollout_ref.actor.optim.weight_decay",),
    "max_grad_norm": ("actor_rollout_ref.actor.grad_clip",),
    "ppo_epochs": ("actor_rollout_ref.actor.ppo_epochs",),
    "epsilon": ("actor_rollout_ref.actor.clip_ratio_low",),
    "epsilon_high": ("actor_rollout_ref.actor.clip_ratio_high",),
    "entropy_coef": ("actor_rollout_ref.actor.entropy_coeff",),
    "max_prompt_length": ("data.max_prompt_length",),
    "max_completion_length": ("data.max_response_length",),
    "gamma": ("algorithm.gamma",),
    "lam": ("algorithm.lam",),
    "max_steps": ("trainer.total_training_steps",),
    "num_train_epochs": ("trainer.total_epochs",),
}
"""Settings of TRL that verl has too, with the same meaning, and where they are in its configuration."""


def watch_tracking(module: ModuleType, sources: Sources) -> None:
    """Read what `Tracking` logs. ``module``: `verl.utils.tracking`."""
    tracking = module.Tracking

    def made(
        self: Any, project_name: Any, experiment_name: Any, default_backend: Any = None, config: Any = None
    ) -> None:
        vars(self)["_rlexporter"] = (experiment_name, config)

    def log(self: Any, data: Mapping[str, Any], step: Any, *_: Any, **__: Any) -> None:
        name, config = vars(self).get("_rlexporter", (None, None))
        line = _without_sums(config, data)
        sources.log(NAME, lambda: _facts(name, config, data, int(step)), line, int(step), whole=True)

    def finish(self: Any, exit_code: int = 0) -> None:
        error = sys.exc_info()[1] or (RuntimeError(f"exit code {exit_code}") if exit_code else None)
        linger_in_actor(sources.end(NAME, error if exit_code else None))

    watch(tracking, "__init__", made)
    watch(tracking, "log", log)
    if hasattr(tracking, "finish"):
        watch(tracking, "finish", finish)
        watch(tracking, "__del__", _nothing)  # what calls `finish` there knows nothing of how the training ended


def _without_sums(config: Any, line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``line`` with other keys for what is a sum over a completion here, and a mean over tokens elsewhere.

    Only the configuration says which it is: `agg_loss` in `verl/trainer/ppo/core_algos.py`. A sum grows with the
    length, and no limit of a mean fits it.
    """
    mode = str(at(config, _AGGREGATION) or "")
    if "token-sum" not in mode:
        return line
    return {f"{key} ({mode})" if key in _AGGREGATED else key: value for key, value in line.items()}


def _nothing(tracking: Any) -> None:
    pass


def _facts(name: Any, config: Any, line: Mapping[str, Any], step: int) -> RunFacts:
    """Return the facts of a run whose first line is that of ``step``."""
    found = settings_at(config, _SETTINGS)
    found["kl_coef"] = at(config, "algorithm.kl_ctrl.kl_coef") if at(config, "algorithm.use_kl_in_reward") else None
    if config is not None:
        in_loss = at(config, "actor_rollout_ref.actor.use_kl_loss")
        found["beta"] = at(config, "actor_rollout_ref.actor.kl_loss_coef") if in_loss else 0.0
    algorithm = _algorithm(config)
    validates = all(str(key).startswith(_VALIDATION) for key in line)
    return of_framework(
        found,
        framework=VERL_V1.name if at(config, "trainer.use_v1") else VERL.name,
        algorithm=algorithm,
        judged_as=family(algorithm),
        name=name,
        model=at(config, "actor_rollout_ref.model.path"),
        prompts=at(config, "data.train_batch_size"),
        step=step if validates else step - 1,
        trainer="verl",
        loss_type=str(at(config, _AGGREGATION) or ""),
        importance_sampling_level="sequence" if algorithm == "gspo" else "",
    )


def _algorithm(config: Any) -> str:
    """Return the algorithm: the estimator of advantages, which verl calls GAE where a critic makes it PPO, or GSPO."""
    if at(config, "actor_rollout_ref.actor.policy_loss.loss_mode") == "gspo":
        return "gspo"
    estimator = at(config, "algorithm.adv_estimator")
    name = str(getattr(estimator, "value", estimator) or "").lower().replace("_", "-")
    return "ppo" if name == "gae" else name
