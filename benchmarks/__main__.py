"""`python -m benchmarks`: measures, prints, and writes docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from rlexporter.demo import quiet

PAGE = Path(__file__).parent.parent / "docs/benchmarks.md"

_HEAD = """\
<!-- Written by `make bench`. Do not edit. -->

# Benchmarks

Measured by `make bench`: {cores} cores, no more than that is used; Python {python}, torch {torch}, prometheus_client
{client}. The alternatives run in turn in every round; each figure is the median, with the middle half of the rounds in
brackets, or how many times longer than rlexporter it takes. The machine is shared and noisy: read the factors.
"""
_TENSOR = """
## A tensor on the host

Counting importance ratios (around 1, spread 0.1) in the 24 buckets of `rl_policy_ratio_dist`, with a mask that leaves
four of five; microseconds by the clock. The two clients that take one value a call were given 4,096 values, and their
time is scaled up. rlexporter also counts NaN and infinities apart and sums positive and negative values; `bucketize`
and numpy only count. `clone` copies the tensor once, without looking at the mask.
"""
_KINDS = """
What it costs depends on how many bounds lie between the smallest and the largest value: each is one comparison and
one count of each chunk, 0.09 ns an element on the machine that this was written on, as fast as numpy and its cache
allow: 0.055 for the comparison and 0.038 for the count. On top come the mask (0.4 ns), the smallest and the largest
value (0.1) and the sum (0.32). A count over the upper 16 bits of each value takes 0.3 to take them out and 1.0 to 1.3
for `bincount`, however many bounds there are, and would have to look again at a quarter of these values, which share
those bits with a bound. So a goal of 1.5 ns an element is out of reach for a dozen bounds with numpy and torch as they
are. The same bounds the factor to a loop over single values: a goal of 400 is nearly met without a mask, and not with
one, since the loop does not see what is masked.
"""
_GPU = """
## A tensor on a GPU
"""
_LINE = """
## A log line

Microseconds a line of so many keys, those of GRPO first; "judged": with every condition of a GRPO run, once a step.
"""
_LOGGERS = """
## Lines of other loggers

Microseconds by the clock for one line of 60 keys: the logger's own call, and what `rlexporter run --from` adds to that
call, with every condition judged once a step. Of 60 parts of a line, each is kept, and the line is served once.
"""
_SCRAPE = """
## A scrape

Microseconds an answer, in the endpoint's thread.
"""
_PAGES = """
## Open pages

What `/api/status` costs: milliseconds of CPU time to make it, and by the clock to ask for it while steps go on. Then a
loop of torch and Python with 64 open pages, which ask when they are told to and for the curves each fifth time; without
and with them in turn. The pages are a process on the same cores.
"""
_FLOOD = """
## A flood

The same loop, beside one client without a token that asks as fast as it is answered, in a process of its own on the
same cores. Strangers are kept to a tenth of a core together, 100 ms a second, whoever asks for how much.
"""
_PROMISES = """
## Promises

Each on a quiet machine and on one where eight processes compute without end; each in a process of its own.
"""
_KNOCKS = """
## Strangers at TLS

Megabytes that a process which has imported TRL grows by, beside a thread that makes and drops objects as a training
does. asyncio keeps a quarter of a megabyte for each connection and, where a handshake was not finished, keeps it until
a full collection comes by: seldom in a training, and never in one that has turned the collector off. So the endpoint
does TLS itself, on asyncio's transport.
"""
_STEP = """
## What a step pays

Real runs of TRL on the CPU, on models so small that it shows: CPU milliseconds a step of the whole process, in pairs of
one process with the exporter, scraped every five seconds, and one without. A group trainer has 32 completions of up to
24 tokens, a reference model and two reward functions; its batch is used in two steps, and a step here is their mean.
PPO has 32 completions too, and four updates a step (sixteen in trl 0.11). "Beside collections": TRL's own calls of
`gc.collect()` are taken out of both processes. Machines differ by a factor of three, so the percentages matter too.
"""
_WHY = """
## Where that goes

The two processes of a pair take turns, batch by batch, since this machine may be half as fast in one second as in the
next. So twice the time of a step goes by for the thread that answers scrapes, which costs two milliseconds a second of
a clock, half of it for scrapes. A figure below zero shows how much two processes of the same training differ.

The cost hardly grows with the model: about 20 looks at tensors a step, then one log line and one judgment. They take
some 100 small operations of torch and 1,400 calls of Python. Each runs between two passes of the model, which have
filled the caches, so it is three times slower than in a loop. By CPU timers inside a run, the log line and its judgment
are nearly half; the weights, what the loss is made of, and the rewards and their groups are a tenth each.

TRL's PPO calls `gc.collect()` twice a step. In the smaller run that is three quarters of the step. The collector also
visits our 36 thousand objects, beside TRL's 420 thousand, for one to two microseconds each; 22 thousand of ours belong
to FastAPI and pydantic. Python cannot leave out the objects of one library: `gc.freeze()` leaves out all that exist,
those of the user too, so rlexporter leaves it to you ([faq.md](faq.md#does-it-slow-my-training-down)).
"""
_STRANGERS = """
## What strangers pay

Who attacks an endpoint with TLS and a token, and what becomes of 100 scrapes on new connections, and of 100 on a kept
one: each brings the token, and gives up after ten seconds, as Prometheus does. The training is a loop of torch and
Python in the process of the endpoint; who attacks and who scrapes are processes of their own on the same two cores,
which is most of what a step takes longer. Each row begins when the two seconds that may be used at once are used up.
"""
_RANKS = """
## Many ranks

One GRPO run, each of whose ranks is a target that serves what it sees itself (`RLEXPORTER_RANKS=all`), in one
Prometheus 3.5.3 with all rules: scrape and evaluation every 5 seconds, looked at after a minute. The ranks are
simulated by one process on the same two cores, whose time the durations of scrapes contain. Default is rank 0 only.
"""
_OPENING = """
## Opening a dashboard

What it costs a Prometheus 3.5.3 that holds 100 GRPO runs, scraped every 15 seconds for the three hours that are shown:
720 samples a series. Nobody waits for that: the series are those of a real run of TRL and what it served after each of
its steps, one step a scrape, over and over, handed over by remote write with the times that scrapes would have had;
beside them what the rules record. Then everything is asked that Grafana asks: variables, annotations and the panels
that are open, on a screen of 1,920 pixels, over a connection that stays. CPU time of the server, which does nothing
else, beyond that of as long without a question; "kept open": a dashboard asks again every 30 seconds, *compare* every
five minutes. A sample in the window of a rate is looked at again at each point. The rows of GPUs, vLLM, pods and hosts
find nothing here, and *compare*, which shows a week by default, is asked for the same three hours.

The column beside it is what as many requests for the number 1 take, since the machine is part of the figure: on one
machine, at other hours, the medians of *run* were 0.16, 0.17, 0.25 and 0.32 s.
"""
_PAGING = """
## A page

From what happens in a run until a webhook is called, in seconds of a clock: Prometheus 3.5.3 and Alertmanager 0.33.1 on
the same two cores, which scrape and evaluate every 15 seconds; rules, routes and the times of groups as they are in
`alerts/`. Five trials of each, all at once, each in a cluster of its own. On average a fault waits half a scrape
for the next one and half an evaluation, then 30 seconds in its group for what may be its cause.
"""


def sections() -> dict[str, Callable[[], Iterator[str]]]:
    """The parts of the page: what stands before the rows, and what measures them."""
    from benchmarks import (
        flood,
        gpu,
        knocks,
        log_line,
        loggers,
        opening,
        pages,
        paging,
        paired,
        promises,
        ranks,
        strangers,
        tensors,
    )

    parts = {
        _STEP: paired.rows,
        _WHY: lambda: iter(()),
        _TENSOR: tensors.rows,
        _KINDS: tensors.kind_rows,
        _GPU: gpu.rows,
        _LINE: log_line.rows,
        _LOGGERS: loggers.rows,
    }
    parts |= {
        _SCRAPE: log_line.scrape_rows,
        _PAGES: pages.rows,
        _FLOOD: flood.rows,
        _PROMISES: promises.rows,
        _KNOCKS: knocks.rows,
        _STRANGERS: strangers.rows,
        _RANKS: ranks.rows,
        _OPENING: opening.rows,
    }
    return parts | {_PAGING: paging.rows}


def measured(only: str) -> Iterator[str]:
    """The page, line by line. ``only``: measure the parts that say so in their heading, and keep the others."""
    versions = {"torch": version("torch"), "client": version("prometheus-client")}
    yield _HEAD.format(cores=os.cpu_count(), python=platform.python_version(), **versions)
    kept = PAGE.read_text() if only else ""
    for text, rows in sections().items():
        yield text
        if only and only not in text.partition("\n\n")[0]:
            rest = "\n" + kept.partition(text + "\n")[2]
            if rows_kept := rest.partition("\n\n## ")[0].partition("\n\nWhat it costs")[0].strip("\n"):
                yield rows_kept
        else:
            yield from rows()


def main() -> None:
    """Measure everything, or the parts that the argument is in the heading of; written when all is there."""
    quiet()
    lines = []
    for line in measured(" ".join(sys.argv[1:])):
        print(line, flush=True)
        lines.append(line)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
