"""What goes wrong in PPO: that of trl 1.12, modern, and of trl 0.11, legacy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.faults.anywhere import Plant, nan_weight
from tests.faults.runs import BATCH, Run


def dropout_in_reference(run: Run) -> None:
    """Somebody has put the reference into training mode."""

    def drop_out() -> None:
        for module in run.trainer.ref_model.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.2
        run.trainer.ref_model.train()

    run.begin(drop_out)


def no_spread(run: Run) -> None:
    """Modern: whitening makes all advantages 0."""
    whiten = run.module.masked_whiten
    run.around(run.module, "masked_whiten", lambda method, values, *args, **kwargs: method(values, *args, **kwargs) * 0)
    run.restore = lambda: setattr(run.module, "masked_whiten", whiten)


def advantages(change: Callable[[Any], Any]) -> Plant:
    """Legacy: the advantages of a step are others."""

    def plant(run: Run) -> None:
        def compute(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            rewards, advantages, returns = method(*args, **kwargs)
            return rewards, change(advantages), returns

        run.around(run.trainer, "compute_advantages", compute)

    return plant


def permuted(each: Any) -> Any:
    """Advantages, each the one of another response."""
    return each.roll(1, 0)


def temperature(value: float) -> Plant:
    """Legacy: the sampler has another temperature."""
    return lambda run: run.begin(lambda: run.sampling.update(temperature=value))


def same_queries(run: Run) -> None:
    """Legacy: each step has the same queries."""
    choose = run.prompts
    kept: list[str] = []

    def prompts() -> list[str]:
        if not run.faulty:
            kept[:] = choose()
        return kept

    run.prompts = prompts


def other_queries(run: Run) -> None:
    """Legacy: each response goes with the query of another."""

    def step(method: Callable[..., Any], queries: Any, *args: Any, **kwargs: Any) -> Any:
        return method([queries[i - 1] for i in range(BATCH)], *args, **kwargs)

    run.around(run.trainer, "step", step)


def value_head_anew(run: Run) -> None:
    """Legacy: the value head has first weights again."""
    run.begin(lambda: run.trainer.model.v_head.summary.reset_parameters())


def coefficient_lost(run: Run) -> None:
    """Legacy: the KL coefficient is 0, where its controller leaves it."""
    run.begin(lambda: setattr(run.trainer.kl_ctl, "value", 0.0))


def coefficient_bound(run: Run) -> None:
    """Legacy: the adaptive KL coefficient is at a bound, and stays there."""
    run.around(run.trainer.kl_ctl, "update", lambda method, *args, **kwargs: None)


def nan_after_a_look(run: Run) -> None:
    """A weight is NaN after a callback has asked accelerate for the model, as one that saves it does."""
    run.when(run.at + 1, lambda: run.trainer.accelerator.unwrap_model(run.trainer.model))
    nan_weight(run)


def value_head(model: Any) -> Any:
    """Return legacy PPO's value head."""
    return model.v_head
