"""Keys to which a user gives a meaning, and what unknown keys look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlexporter import Exporter
from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.config import mapping
from rlexporter.feed.keys import Resolver
from rlexporter.model.errors import SetupError
from rlexporter.status import document
from rlexporter.status.history import History


def test_a_mapping_is_read_from_a_text_a_mapping_and_a_file(tmp_path: Path) -> None:
    """Meanings are names of what is judged, or gauges with or without their prefix."""
    means = {"train/score": "rl_reward_mean", "a=b": "rl_kl_per_sequence", "len": "rl_completion_length_mean"}
    file = tmp_path / "keys.toml"
    file.write_text('[map]\n"train/score" = "reward"\n"a=b" = "kl_per_sequence"\nlen = "rl_completion_length_mean"\n')

    assert mapping.parse("train/score=reward, a=b=kl_per_sequence,len=length") == means
    assert mapping.parse({"train/score": "reward", "a=b": "rl_kl_per_sequence", "len": "length"}) == means
    assert mapping.parse(str(file)) == means


WRONG = {
    "a=rewrd": "there is no meaning 'rewrd'; did you mean reward",
    "a": "'a' must look like KEY=MEANING",
    "missing.toml": "cannot be read: No such file",
    "a=rl_reward_function_mean": "there is no meaning",
}


@pytest.mark.parametrize(("value", "said"), WRONG.items())
def test_an_error_says_what_is_wrong(value: str, said: str) -> None:
    """And what there is instead; a gauge with labels is no meaning."""
    with pytest.raises(ValueError, match=said):
        mapping.parse(value)
    with pytest.raises(SetupError, match="argument map="):
        Exporter(map=value)


def test_a_key_means_what_it_is_mapped_to_and_nothing_else() -> None:
    """Also one that the catalog knows otherwise; all other keys stay as they are."""
    mapped = mapping.catalog(CATALOG, {"my/score": "rl_reward_mean", "entropy": "rl_policy_approxkl"})
    resolver, usual = Resolver(mapped, "grpo"), Resolver(CATALOG, "grpo")

    assert [series.metric.series for series in resolver.resolve("my/score")] == ["rl_reward_mean"]
    assert [series.metric.series for series in resolver.resolve("entropy")] == ["rl_policy_approxkl"]
    assert usual.resolve("my/score") == ()
    assert resolver.resolve("kl") == usual.resolve("kl") != ()


def test_a_live_run_serves_and_judges_a_mapped_key(any_port: None) -> None:
    """As it does one of TRL."""
    with Exporter(map={"my/score": "reward", "my/kl": "kl"}, algorithm="grpo") as exporter:
        for step in range(1, 40):
            exporter.log({"my/score": 0.5, "my/kl": 0.01 if step < 30 else 9.0}, step=step)
        assert exporter.snapshot.value("rl_reward_mean") == 0.5
        assert exporter.snapshot.value("rl_condition", condition="kl_high", severity="critical") == 1.0
        assert not exporter.snapshot.value("rlexporter_unmapped_keys")


LOOKS = [
    (["train_episodes/kl", "train_episodes/kl_coef"], {"train_episodes/kl": "kl"}),
    (["ppo_value/grad_norm", "ppo_policy/grad_norm"], {"ppo_policy/grad_norm": "grad_norm"}),
    (
        ["ppo_value/clipfrac", "policy/clip_frac"],
        {"policy/clip_frac": "clipfrac"},
    ),
    (["average reward score", "cri_loss"], {"average reward score": "reward", "cri_loss": "value_loss"}),
    (["Avg Response Len", "KL_ref"], {"Avg Response Len": "length", "KL_ref": "kl"}),
    (["entropy_loss", "eval/score", "val/reward", "reward_std", "tokens", "memory/max"], {}),
]


@pytest.mark.parametrize(("keys", "looks"), LOOKS)
def test_what_keys_look_like(keys: list[str], looks: dict[str, str]) -> None:
    """Each meaning once; evaluations, coefficients, spreads and extremes are proposed for nothing."""
    assert mapping.proposed(keys) == looks
    assert {*looks.values()} <= {*mapping.MEANINGS}


GUESSES = {
    "train_episodes/scalar_reward": "rl_reward_mean",
    "average reward score": "rl_reward_mean",
    "reward/mean": "rl_reward_mean",
    "Reward": "rl_reward_mean",
    "train_episodes/kl": "rl_kl_per_sequence",
    "KL_ref": "rl_kl_per_sequence",
    "ppo_policy/approxkl": "rl_policy_approxkl",
    "ppo_policy/clipfrac": "rl_policy_clipfrac",
    "ppo_value/clipfrac": "rl_value_clipfrac",
    "ppo_policy/entropy": "rl_entropy_per_token",
    "actor.grad_norm": "rl_grad_norm",
    "cri_loss": "rl_value_loss",
    "ppo_value/loss": "rl_value_loss",
    "act_loss": "rl_policy_loss",
    "Avg Response Len": "rl_completion_length_mean",
    "Learning Rate": "rl_learning_rate",
    **dict.fromkeys(
        (
            *("eval/reward", "reward_std", "my/kl_coef", "kl_penalties", "entropy_loss", "my/total_return", "steps"),
            *("ppo_value/learning_rate", "ppo_value/grad_norm", "reward_model_loss", "reward_tokens", "rewarded"),
        ),
        "",
    ),
}


@pytest.mark.parametrize(("key", "series"), GUESSES.items())
def test_what_a_key_means_by_its_last_part(key: str, series: str) -> None:
    """A part of it that could be something else is no guess."""
    assert mapping.guessed(key, 1.0) == series


def test_a_first_number_can_contradict() -> None:
    """An approximate KL of 6 nats a token, or a share of 40, is something else."""
    assert mapping.guessed("policy/approx_kl", 6.2) == mapping.guessed("policy/clipfrac", 40.0) == ""
    assert mapping.guessed("policy/approx_kl", 0.01) == "rl_policy_approxkl"


def _guesses(exporter: Exporter) -> dict[str, str]:
    samples = exporter.snapshot.samples
    return dict(s.labels for s in samples if s.metric.series == "rlexporter_guessed_key_info")  # type: ignore[misc]


def test_a_live_run_of_an_unknown_trainer_serves_what_is_guessed(any_port: None) -> None:
    """One key a series, the first; until one comes that is known. `map` knows better from the start."""
    line = {"train/reward_score": 0.5, "iteration/reward": 0.7, "ppo_policy/entropy": 1.2, "steps": 3.0}
    with Exporter() as exporter:
        exporter.log(line, step=1)
        assert _guesses(exporter) == {
            "train/reward_score": "rl_reward_mean",
            "ppo_policy/entropy": "rl_entropy_per_token",
        }
        assert exporter.snapshot.value("rl_reward_mean") == 0.5
        assert exporter.snapshot.value("rl_logged_value", key="iteration/reward") == 0.7
        told = document.status(exporter.snapshot, History(), 0.0)["guesses"]
        assert {"key": "train/reward_score", "series": "rl_reward_mean"} in told
        exporter.log({**line, "reward": 0.9}, step=2)
        assert exporter.snapshot.value("rl_reward_mean") == 0.9
        assert _guesses(exporter) == {"ppo_policy/entropy": "rl_entropy_per_token"}
    with Exporter(map="iteration/reward=reward") as exporter:
        exporter.log(line, step=1)
        assert exporter.snapshot.value("rl_reward_mean") == 0.7


def test_nothing_is_guessed_of_a_trainer_that_is_known(any_port: None) -> None:
    """What it logs beside its own keys is the user's, whatever it is called."""
    with Exporter(algorithm="grpo") as exporter:
        exporter.log({"loss": 0.1, "my/entropy": 1.0, "my/kl": 3.0}, step=1)
        assert _guesses(exporter) == {}
        assert exporter.snapshot.value("rl_kl_per_sequence") is None


def test_meanings_are_gauges_without_labels() -> None:
    """A number of a log line can only be one of these."""
    assert {"reward", "kl", "entropy", "grad_norm", "length", "value_loss"} <= {*mapping.MEANINGS}
    assert [name for name, series in mapping.MEANINGS.items() if NAMED[series].labels] == []
