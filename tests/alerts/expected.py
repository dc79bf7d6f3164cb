"""Which alert each limit raises; by hand, and on purpose not derived, those from outside and the numbers in texts."""

from __future__ import annotations

from rlexporter.conditions.table import CONDITIONS

_EACH = [(each.alert, each.name, limit.severity.value) for each in CONDITIONS for limit in each.limits]
RAISED = [each for each in _EACH if each[2] != "info"]
INFORMS = [each for each in _EACH if each[2] == "info"]
"""What is known of a run and is no alert."""
PROMETHEUS_ALERTS = {
    "RLManyRunsSick": "",
    "RLRunVanished/run_vanished": "critical",
    "RLRunStalled/run_stalled": "critical",
    "RLRunFailed/run_failed": "critical",
    "RLRunVanished/run_end_unseen": "warning",
    "RLRunRestarting/run_restarting": "warning",
    "RLRunRestarting/run_lost_progress": "warning",
    "RLRunFailed/run_not_back": "warning",
    "RLTargetSilent": "warning",
    "RLRanks/rank_straggles": "warning",
    "RLRanks/rank_missing": "warning",
    "RLRanks/rank_zero_missing": "warning",
    "RLExporterErrors/clock_off": "warning",
    "RLExporterErrors/exporter_errors": "warning",
    "RLExporterWatchdog": "none",
}
"""The severity of each, by its name and condition; empty where it is that of what it stands for."""
NUMBERS = {
    ": 7 NaN or infinite values": "nonfinite_reward nonfinite_value_loss nonfinite nonfinite_eval_reward",
    "": "reward_lost optimizer_restarted advantage_dead weights_frozen reference_dropout reward_function_lost "
    "reward_function_dead reward_function_blind",
    ": a chance of 1 in 10^7, limit 1 in 10^3": "gradient_dead reward_flat",
    ": 700%, limit 300%": "learning_rate_zero ratio_tail clipfrac_high kl_coef_lost "
    "truncation eos_missing same_length prompts_stuck prompts_short prompt_end_changed "
    "loss_mask_wrong reference_moved gradients_lost optimizer_incomplete completions_copied reward_zeroed",
}
"""What is said of 7 with a limit of 3, by hand: the conditions of which it is not `: 7, limit 3`."""
