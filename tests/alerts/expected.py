"""Written by hand, and on purpose not derived: which alert each limit of each condition raises."""

_LIMITS = """
RLWeightsNonFinite nonfinite_weights critical
RLGradientNonFinite nonfinite_grad critical
RLRewardNonFinite nonfinite_reward critical
RLKLNonFinite nonfinite_kl critical
RLRatioNonFinite nonfinite_ratio critical
RLAdvantageNonFinite nonfinite_advantage critical
RLValueLossNonFinite nonfinite_value_loss critical
RLPolicyLossNonFinite nonfinite_policy_loss critical
RLLossNonFinite nonfinite_loss critical
RLMetricNonFinite nonfinite_other critical
RLRewardLost reward_lost critical
RLRewardFunctionLost reward_function_lost critical
RLGradientDead gradient_dead warning critical
RLLearningRateZero learning_rate_zero warning
RLLearningRateJump learning_rate_jump warning
RLGradientSpike grad_spike warning
RLGradientExplosion grad_explosion critical
RLGradientGrowth grad_growth warning
RLRatioHigh ratio_high warning critical
RLRatioLow ratio_low warning
RLRatioTail ratio_tail warning critical
RLRatioExtreme ratio_extreme warning
RLApproxKLSpike approxkl_spike warning
RLApproxKLHigh approxkl_high warning critical
RLClipFractionHigh clipfrac_high warning
RLSamplerMismatch sampling_mismatch warning critical
RLSamplerJump sampling_jump warning
RLSamplerDiffers sampler_differs warning
RLImportanceRatioLow sampling_ratio_low warning
RLKLAtStart kl_at_start info critical
RLReferenceDropout reference_dropout warning
RLReferenceNoisy reference_noisy warning
RLKLHigh kl_high warning critical
RLKLJump kl_jump warning
RLRewardHacking reward_hacking critical
RLLogProbabilityShift logprob_shift warning
RLKLNegative kl_negative warning critical
RLKLCoefficientRunaway kl_coef_runaway warning critical
RLKLCoefficientLost kl_coef_lost warning
RLKLCoefficientStuck kl_coef_stuck warning
RLKLPenaltyOff kl_coef_off info
RLEntropyLow entropy_low warning
RLEntropyCollapsed entropy_collapsed critical
RLEntropyHigh entropy_high warning
RLValueLossSpike value_loss_spike warning critical
RLValueClipFractionHigh value_clipfrac_high warning
RLExplainedVarianceFall explained_variance_fall info
RLAdvantageFlat advantage_flat warning critical
RLAdvantageDead advantage_dead warning critical
RLAdvantageOffCentre advantage_off_centre warning
RLRewardFlat reward_flat warning critical
RLRewardSolved solved info
RLZeroVarianceGroups zero_variance_groups info
RLRewardFunctionDead reward_function_dead warning
RLRewardFunctionSilent reward_function_silent info
RLRewardSpreadHigh reward_std_high warning
RLRewardJump reward_jump warning
RLRewardOutlier reward_outlier warning
RLRewardDrop reward_drop warning critical
RLRewardPlateau reward_plateau warning
RLWeightsFrozen weights_frozen warning critical
RLPolicyFrozen policy_frozen warning
RLTruncation truncation warning critical
RLTruncationUsual truncation_usual info
RLEOSMissing eos_missing warning critical
RLLengthCollapse length_low warning
RLLengthGrowth length_high warning
RLLengthSame same_length warning
RLKeysGone keys_gone warning
RLStepsSlow step_slow warning
RLStepStalled step_stalled warning
"""
RAISED = [
    (alert, condition, severity)
    for alert, condition, *severities in map(str.split, _LIMITS.strip().splitlines())
    for severity in severities
]
PROMETHEUS_ALERTS = {
    "RLManyRunsSick": "critical",
    "RLManyRunsWarn": "warning",
    "RLRunVanished": "critical",
    "RLRunStalled": "critical",
    "RLRunFailed": "critical",
    "RLRunRestarting": "warning",
    "RLRunLostProgress": "warning",
    "RLRunResumed": "info",
    "RLRunPreempted": "info",
    "RLRunNotBack": "warning",
    "RLTargetSilent": "warning",
    "RLClockOff": "warning",
    "RLExporterErrors": "warning",
    "RLSignalUnavailable": "info",
    "RLExporterWatchdog": "none",
}
