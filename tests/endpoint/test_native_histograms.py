"""A Prometheus 3 that turns our distributions into native histograms: what it has then, and what it has lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlexporter import Exporter
from tests.tools import Prometheus, eventually, prometheus

REWARDS = [[-2.0, 1.0, 4.0, 0.5], [3.0, 3.0, -1.0, -1.0]]
MEAN = sum(map(sum, REWARDS)) / 8
LENGTHS = [[3, 5], [8, 12]]


def _scraped(server: Prometheus, exporter: Exporter) -> None:
    for step, (rewards, lengths) in enumerate(zip(REWARDS, LENGTHS, strict=True), 1):
        exporter.observe("rl_reward_dist", rewards)
        exporter.observe("rl_completion_length_dist", lengths)
        exporter.log({"reward": sum(rewards) / 4}, step=step)
    eventually(lambda: server.value("rl_step") == len(REWARDS))


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True])
def test_the_mean_of_what_can_be_negative(both: bool, exporter: Exporter, tmp_path: Path) -> None:
    """Its two sums are there in any case. A native one has no sum; buckets are there if classic ones are kept too."""
    scrape = {"convert_classic_histograms_to_nhcb": True, "always_scrape_classic_histograms": both}
    targets, options = [f"127.0.0.1:{exporter.port}"], ["--enable-feature=native-histograms"]  # on by itself from 3.8
    with prometheus("3", tmp_path, targets, scrape=scrape, options=options) as server:
        _scraped(server, exporter)

        def value(expression: str) -> float | None:
            return server.value(f"max({expression})")

        sums = "(rl_reward_dist_positive_sum_total - rl_reward_dist_negative_sum_total)"
        assert value(f"{sums} / histogram_count(rl_reward_dist)") == MEAN
        assert value("histogram_sum(rl_reward_dist)") == 0
        assert value("histogram_avg(rl_completion_length_dist)") == 7
        assert value("histogram_count(rl_completion_length_dist)") == 4
        classic = value('rl_reward_dist_bucket{le="+Inf"}')
        assert classic == (8 if both else None)
        if both:
            assert value(f'{sums} / ignoring (le) rl_reward_dist_bucket{{le="+Inf"}}') == MEAN
