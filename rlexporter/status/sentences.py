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
BEGAN_AND_EASED = "It began in step {step}. It is within its limit again, but not where it was before."
BEGAN_AND_OVER = "It began in step {step}, and is over."
SUBJECT = "This is {subject}."
WAS_CRITICAL = "Something was critical earlier."
ONE_OTHER = "1 more thing is wrong."
OTHERS = "{count} more things are wrong."

NOTHING_HOLDS = "All {count} checks pass."

GOOD_CHECKPOINT = "The last good checkpoint is that of step {step}."
NO_GOOD_CHECKPOINT = "No checkpoint is known to be good."
NO_CHECKPOINT = "There is no checkpoint."

NO_VALUES = "not enough values yet, or none: {series}"
