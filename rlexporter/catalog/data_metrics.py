"""The metrics of trainers that learn from a data set or a teacher.

SFT, reward modelling, preference optimization and distillation, as trl 1.16's sources compute them. Where a key has
another meaning than with GRPO, PPO or DPO it feeds a series of its own:
  entropy            over the tokens of the data: sft_trainer.py 1640, dpo_trainer.py 1537, kto_trainer.py 1486,
                     tpo_trainer.py 716; over what a teacher scores: distillation_trainer.py 1811,
                     async_distillation_trainer.py 1750
  kl                 log-ratios of mismatched pairs, clamped at 0: kto_trainer.py 1441
  rewards/*          beta times the log-probability, no reference: cpo_trainer.py 894, orpo_trainer.py 699,
                     tpo_trainer.py 758
  logps/*            means over tokens: orpo_trainer.py 802; by loss_type: cpo_trainer.py 847, tpo_trainer.py 661
  logits/*           padding included: cpo_trainer.py 906, orpo_trainer.py 861; completion tokens: dpo_trainer.py 1555
  advantage          reward minus estimated optimum, of one rank: a2po_trainer.py 353
  completions/*      by source, and at the limit instead of without an end token: iw_opd_trainer.py 1691
"""

from __future__ import annotations

from rlexporter.catalog.algorithms import ONLINE_DPO
from rlexporter.catalog.entries import Entries, keys
from rlexporter.model.metric import Group, Level, Range

_preference = Entries(Group.PREFERENCE, level=Level.SEQUENCE, unit="reward")
_preferred_token = Entries(Group.PREFERENCE, level=Level.TOKEN, unit="nats")
_likelihood = Entries(Group.PREFERENCE, level=Level.SEQUENCE, unit="nats")
_data = Entries(Group.DATA, level=Level.TOKEN)
_score = Entries(Group.DATA, level=Level.SEQUENCE, unit="reward")
_distillation = Entries(Group.DISTILLATION, level=Level.TOKEN)
_distilled_sample = Entries(Group.DISTILLATION, level=Level.SEQUENCE)
_distilled = Entries(Group.DISTILLATION, level=Level.STEP)
_divergence = Entries(Group.DISTILLATION, level=Level.TOKEN, unit="nats")

_NO_REFERENCE = "cpo orpo tpo"

DATA = (
    *_preference.gauges(
        "rl_implicit_reward_",
        "Implicit reward of the {} completion.",
        keys=keys("dpo online-dpo kto", "rewards/{}"),
        chosen="Falling together with the rejected one: the likelihood of both is being pushed down.",
        rejected="Falls while the policy learns to avoid them.",
    ),
    _preference.fraction(
        "rl_implicit_reward_accuracy",
        "Share of pairs whose chosen completion has the higher implicit reward.",
        keys=keys("dpo online-dpo", "rewards/accuracies"),
        reading="Rises from about 0.5; at 1 from the start the pairs are trivial.",
    ),
    _preference.gauge(
        "rl_implicit_reward_margin",
        "Implicit reward of the chosen completion minus that of the rejected one.",
        keys=keys("dpo online-dpo kto", "rewards/margins"),
        reading="Rises while the policy learns.",
    ),
    _preference.fraction(
        "rl_judge_probability",
        "Mean probability that the judge gives to the policy's completion.",
        keys=keys(ONLINE_DPO, "rewards/probabilities"),
        reading="Rises above 0.5 while the policy beats its opponent.",
    ),
    *_likelihood.gauges(
        "rl_sequence_logprob_",
        "Log-probability of the {} completion; CPO and TPO with a loss that is normalized by length (ipo, simpo, "
        "tpo-l): its mean per token.",
        keys=keys("dpo online-dpo kto cpo tpo", "logps/{}"),
        chosen="A steep fall: chosen answers become unlikely too.",
        rejected="Falls while the policy learns to avoid them.",
    ),
    *_preference.gauges(
        "rl_reference_free_reward_",
        "Implicit reward of the {} completion without a reference model: beta times its log-probability.",
        keys=keys(_NO_REFERENCE, "rewards/{}"),
        chosen="Negative by nature. Falling together with the rejected one: both become unlikely.",
        rejected="Falls while the policy learns to avoid them.",
    ),
    _preference.gauge(
        "rl_reference_free_reward_margin",
        "Reference-free reward of the chosen completion minus that of the rejected one.",
        keys=keys(_NO_REFERENCE, "rewards/margins"),
        reading="Rises while the policy learns.",
    ),
    _preference.fraction(
        "rl_reference_free_reward_accuracy",
        "Share of pairs whose chosen completion is the more likely one, without a reference model.",
        keys=keys(_NO_REFERENCE, "rewards/accuracies"),
        reading="Rises; at 1 from the start the pairs are trivial.",
    ),
    *_preferred_token.gauges(
        "rl_token_logprob_",
        "Log-probability of a token of the {} completion: ORPO's mean over its tokens.",
        keys=keys("orpo", "logps/{}"),
        chosen="Rises while the policy learns them.",
        rejected="Falls behind the chosen one while the policy learns.",
    ),
    _preferred_token.gauge(
        "rl_logits",
        "Mean logit over the vocabulary at the tokens of the chosen or rejected completions.",
        unit="",
        labels=("completion",),
        keys=keys("dpo kto tpo", "logits/{completion}"),
        reading="A steady drift: the scale of the output layer changes.",
    ),
    _preferred_token.gauge(
        "rl_logits_unmasked",
        "Mean logit over the vocabulary at all positions of the chosen or rejected rows, prompt and padding included.",
        unit="",
        labels=("completion",),
        keys=keys("cpo orpo", "logits/{completion}"),
        reading="Depends on the padding: compare with the same run only.",
    ),
    _preferred_token.gauge(
        "rl_chosen_nll_loss",
        "Cross-entropy of the chosen completions, before its weight. ORPO: over prompt and completion; CPO: 0 where "
        "cpo_alpha is 0.",
        keys=keys("cpo orpo", "nll_loss"),
        reading="Falls while the policy learns the chosen completions.",
    ),
    _likelihood.gauge(
        "rl_log_odds",
        "Logarithm of the odds of the chosen completion over those of the rejected one.",
        keys=keys("orpo", "log_odds_chosen"),
        reading="Rises above 0 while the policy prefers the chosen one.",
    ),
    _likelihood.gauge(
        "rl_log_sigmoid_odds",
        "Log-sigmoid of the log odds: ORPO's preference term before beta.",
        keys=keys("orpo", "log_odds_ratio"),
        reading="Rises towards 0 while the policy learns.",
    ),
    _likelihood.gauge(
        "rl_mismatched_kl_per_sequence",
        "KL divergence to the reference in KTO: the mean log-ratio of completions that belong to other prompts, "
        "summed over their tokens, never below 0.",
        keys=keys("kto", "kl"),
        reading="The point of reference of the loss. Growing without end: the policy leaves the reference everywhere.",
    ),
    _data.gauge(
        "rl_data_entropy_per_token",
        "Entropy of the model's next-token distribution, mean over the trained tokens of the data set, not of samples.",
        unit="nats",
        keys=keys("sft dpo kto tpo", "entropy"),
        reading="Falls while the model learns the data. Near 0: it knows them by heart.",
    ),
    _data.fraction(
        "rl_token_accuracy",
        "Share of the trained tokens that the model finds most likely. DPO, TPO: of the chosen completions.",
        keys=keys("sft dpo tpo", "mean_token_accuracy"),
        reading="Rises while the model learns. Near 1: the data are known by heart.",
    ),
    *_score.gauges(
        "rl_reward_model_score_",
        "{} score of a batch by the reward model in training, chosen and rejected; mean over the logging window.",
        keys=keys("reward", "{}_reward", only=True),
        mean="Only differences are trained, so it may drift; far from 0, center_rewards_coefficient helps.",
        min="Running away downwards: the scores grow without end.",
        max="Running away upwards: the scores grow without end.",
    ),
    _score.fraction(
        "rl_reward_model_score_accuracy",
        "Share of pairs whose chosen completion gets the higher score.",
        keys=keys("reward", "accuracy", only=True),
        healthy=Range(0.5, None, "0.5 is a coin"),
        reading="Rises from about 0.5; 1 at once: the pairs differ in something trivial, such as length.",
    ),
    _score.gauge(
        "rl_reward_model_score_margin",
        "Score of the chosen completion minus that of the rejected one.",
        keys=keys("reward", "margin", only=True),
        reading="Rises. Growing on while the accuracy stays: the model becomes too sure.",
    ),
    _divergence.gauge(
        "rl_student_entropy_per_token",
        "Entropy of the student's next-token distribution, mean over the tokens that the teacher scores.",
        keys=keys("distillation async-distillation", "entropy"),
        reading="Moves towards the teacher's: a low one is no fault where the teacher is sure.",
    ),
    _divergence.gauge(
        "rl_teacher_entropy_per_token",
        "Entropy of the teacher's next-token distribution over the candidates that it returned.",
        keys=keys("async-distillation", "teacher_entropy"),
        reading="Where the student's should go.",
    ),
    _divergence.gauge(
        "rl_one_teacher_entropy_per_token",
        "Entropy of the next-token distribution of one of several teachers.",
        labels=("teacher",),
        keys=keys("async-distillation", "teacher_entropy/{teacher}"),
        reading="A teacher that differs from the others: its tokens are other ones, or it is another kind.",
    ),
    _divergence.gauge(
        "rl_jsd_per_token",
        "Divergence between student and teacher: generalised Jensen-Shannon with beta, mean over tokens.",
        keys=keys("async-distillation", "jsd"),
        reading="Falls while the student learns.",
    ),
    _divergence.gauge(
        "rl_one_teacher_jsd_per_token",
        "Divergence between the student and one of several teachers.",
        labels=("teacher",),
        keys=keys("async-distillation", "teacher_jsd/{teacher}"),
        reading="One that does not fall: the student cannot follow this teacher, or has too few of its tokens.",
    ),
    _distillation.fraction(
        "rl_one_teacher_token_fraction",
        "Share of the tokens that one of several teachers scored.",
        labels=("teacher",),
        keys=keys("async-distillation", "teacher_token_frac/{teacher}"),
        reading="0: nothing is learned from this teacher.",
    ),
    _distilled_sample.gauge(
        "rl_one_teacher_score_time_seconds",
        "Time that one of several teachers took to score a completion.",
        unit="seconds",
        labels=("teacher",),
        keys=keys("async-distillation", "teacher_score_s/{teacher}"),
        reading="The slow one holds its rollouts back.",
    ),
    _distilled.gauge(
        "rl_on_policy_loss",
        "Loss on completions that the student wrote, rounded to four digits by TRL.",
        keys=keys("gold iw-opd", "on_policy_loss"),
        reading="Falls while the student learns.",
    ),
    _distilled.gauge(
        "rl_off_policy_loss",
        "Loss on completions of the data set, rounded to four digits by TRL.",
        keys=keys("gold iw-opd", "off_policy_loss"),
        reading="Falls; far below the other one, the student is good only on the data.",
    ),
    _distilled.gauge(
        "rl_matched_token_loss",
        "Part of GOLD's loss on tokens that both vocabularies have, summed over the micro-batches of a step.",
        keys=keys("gold", "matched_loss"),
        reading="Falls while the student learns.",
    ),
    _distilled.gauge(
        "rl_unmatched_token_loss",
        "Part of GOLD's loss on tokens that one vocabulary lacks, summed over the micro-batches of a step.",
        keys=keys("gold", "unmatched_loss"),
        reading="Falls more slowly than the other part: these tokens are compared by rank only.",
    ),
    *_distilled_sample.gauges(
        "rl_source_completion_length_",
        "{} length of a completion of one source: on_policy, written by the student, or off_policy, of the data.",
        unit="tokens",
        labels=("source",),
        keys=keys("iw-opd", "completions/{source}_{}_length"),
        mean="on_policy drifting away from off_policy: the student writes otherwise than the data.",
        min="Near 0: some completions are empty.",
        max="At the limit: some completions are cut off.",
    ),
    _distilled_sample.fraction(
        "rl_completion_at_limit_fraction",
        "Share of the student's completions that are as long as the limit, those included that end exactly there.",
        keys=keys("iw-opd", "completions/truncated_fraction"),
        reading="High: the limit is too short, or the student forgets to stop.",
    ),
    _divergence.gauge(
        "rl_distillation_advantage",
        "Teacher's minus sampler's log-probability of a token: mean, weighted by its place, or mean_abs, unweighted.",
        labels=("statistic",),
        keys=keys("iw-opd", "iw_opd/{statistic}_advantage"),
        reading="mean below 0: the teacher finds the student's tokens unlikely. Both go to 0 while it learns.",
    ),
    _distillation.gauge(
        "rl_distillation_weight",
        "Weight of a token by its place in the completion: mean, min and max over the trained tokens.",
        labels=("statistic",),
        keys=keys("iw-opd", "iw_opd/{statistic}_weight"),
        reading="Between 1 and 1 + iw_opd_gamma; early tokens weigh more.",
    ),
    _distilled.gauge(
        "rl_distillation_loss",
        "Divergence from the model as its own teacher, before its weight; 0 where no sample has a teacher.",
        keys=keys("sdft sdpo", "self_distillation/distillation_loss")
        + keys("sdft", "sdft/distillation_loss")
        + keys("sdpo", "sdpo/distillation_loss"),
        reading="Falls while the model takes in what its teacher is shown. Exactly 0 for long: nothing is distilled.",
    ),
    _divergence.gauge(
        "rl_server_logprob_difference_mean",
        "Mean absolute difference between the student's and the teacher server's log-probability of a token.",
        keys=keys("sdft sdpo", "self_distillation/server_logprob_abs_diff"),
        reading="A jump: the server has stale weights, or rounds otherwise.",
    ),
    _distilled_sample.fraction(
        "rl_self_distillation_fraction",
        "Shares of SDPO: groups and samples with a success, samples with feedback and with it used, samples with a "
        "prompt for the teacher, and groups whose rewards are all alike.",
        labels=("share",),
        keys=keys("sdpo", "self_distillation/{share}_fraction"),
        reading="reprompt_sample at 0: nothing is distilled. flat_group at 1: the reward teaches nothing.",
    ),
)
