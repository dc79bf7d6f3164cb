"""The sentences that the verdict and its neighbours are made of, in English: the languages translate each of them."""

STATE_UNKNOWN = "The state of the run is not known."
NO_STEP = "The run has not ended a step yet."
FINISHED = "The run has finished"
STOPPED = "The run was stopped"
PREEMPTED = "The run was told to end (SIGTERM)"
FAILED = "The run has failed"
FAILED_WITH = "The run has failed with {exception}"
ENDED = "{ended}."
ENDED_AFTER = "{ended} after step {step}."

STALLED = "The run makes no steps: its last step ended {time} ago, and {limit} is the limit."
STALLED_AT_START = "The run makes no steps: it began, without a step, {time} ago, and {limit} is the limit."
PHASE = "It is in the phase {phase}."
SECONDS = "{seconds} s"
MINUTES = "{minutes} min"
HOURS = "{hours} h"

BEGAN = "It began in step {step}."
BEGAN_AND_OVER = "It began in step {step}, and holds no more."
WAS_CRITICAL = "Earlier a condition was critical."
ONE_OTHER = "1 other condition holds as well."
OTHERS = "{count} other conditions hold as well."

ONE_NONFINITE = "1 value was NaN or infinite so far."
SOME_NONFINITE = "{count} values were NaN or infinite so far."
NOTHING_HOLDS = "None of the {count} conditions that are judged holds."

GOOD_CHECKPOINT = "The last good checkpoint is that of step {step}."
NO_GOOD_CHECKPOINT = "No checkpoint is known to be good."
NO_CHECKPOINT = "There is no checkpoint."

NO_VALUES = "not enough values yet, or none: {series}"
