"""What a run is called, over attempts, ranks and users."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rlexporter.run import identity
from rlexporter.run.identity import RUN_FILE, Identity


@pytest.mark.parametrize(
    ("run_name", "output_dir", "expected"),
    [
        (None, "trainer_output", None),
        ("", "trainer_output", None),
        ("out/run", "out/run", None),
        ("math-7b", "out", "math-7b"),
        ("/home/me/secret/math-7b/", "out", "math-7b"),
        ("..\\runs\\math", None, "math"),
    ],
)
def test_a_path_is_no_name(run_name: str | None, output_dir: str | None, expected: str | None) -> None:
    """transformers puts the output path where a name should be; a name that is a path gives its last part."""
    assert identity.given_name(run_name, output_dir) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "4711"}, "4711"),
        ({"TORCHELASTIC_RUN_ID": "none"}, None),
        ({"TORCHELASTIC_RUN_ID": "abc"}, "abc"),
        ({"KUBERNETES_SERVICE_HOST": "x", "HOSTNAME": "grpo-7b-0"}, "grpo-7b"),
        ({"KUBERNETES_SERVICE_HOST": "x", "HOSTNAME": "grpo-7b-x7k2p"}, "grpo-7b"),
        ({"KUBERNETES_SERVICE_HOST": "x", "HOSTNAME": "grpo-worker-3"}, "grpo"),
        ({"KUBERNETES_SERVICE_HOST": "x", "HOSTNAME": "grpo-master-0"}, "grpo"),
        ({"TORCHELASTIC_RUN_ID": "none", "KUBERNETES_SERVICE_HOST": "x", "HOSTNAME": "grpo-1"}, "grpo"),
        ({"TORCHELASTIC_RUN_ID": "a/b c"}, "a_b_c"),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, "5f638990"),
        ({"WORLD_SIZE": "1", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, None),
        ({"WORLD_SIZE": "2"}, None),
    ],
    ids=str,
)
def test_all_ranks_share_an_id(environ: dict[str, str], expected: str | None) -> None:
    """Where the scheduler or the launcher gives one."""
    assert identity.shared_id(environ) == expected


def test_a_long_id_is_shortened() -> None:
    """To eight digits, which are its own: all ranks have the same."""
    first, other = (identity.shared_id({"TORCHELASTIC_RUN_ID": each * 80}) for each in "xy")

    assert first != other
    assert len(first or "") == 8


def test_runs_with_default_names_stay_apart() -> None:
    """`trainer_output` is everybody's; no state of the user's random generators is drawn from."""
    random.seed(1)
    before = random.getstate()
    names = {identity.fresh("/home/someone/trainer_output", {}).name for _ in range(50)}

    assert len(names) == 50
    assert all(name.startswith("trainer_output-") and "/" not in name for name in names)
    assert random.getstate() == before


def _train(output: Path, given: str | None = None, resume: Path | None = None) -> Identity:
    """The two looks at a run that an exporter takes."""
    assumed = identity.provisional(given, str(output))
    settled = identity.settle(assumed, given, str(output), str(resume) if resume else None)
    identity.keep(settled, str(output))
    return settled


def test_a_resumed_run_keeps_its_name(tmp_path: Path) -> None:
    """And counts its attempts; so does a copy of the checkpoint elsewhere."""
    first = _train(tmp_path / "out")
    checkpoint = tmp_path / "out" / "checkpoint-5"
    checkpoint.mkdir()
    second = _train(tmp_path / "out", resume=checkpoint)
    elsewhere = _train(tmp_path / "other", resume=checkpoint)

    assert first.attempt == 1
    assert second == Identity(first.name, 2)
    assert elsewhere == Identity(first.name, 3)


def test_a_new_run_in_the_folder_of_an_old_one_gets_a_new_name(tmp_path: Path) -> None:
    """Checkpoints lie there, but nobody resumes them."""
    first = _train(tmp_path)
    (tmp_path / "checkpoint-5").mkdir()
    assert identity.provisional(None, str(tmp_path)).name == first.name

    second = _train(tmp_path)
    assert second.name != first.name
    assert second.attempt == 1


def test_the_name_does_not_change_when_training_begins(tmp_path: Path) -> None:
    """What is served while the run starts is what it is called later."""
    assumed = identity.provisional(None, str(tmp_path))

    assert identity.settle(assumed, None, str(tmp_path), None) == assumed


def test_a_given_name_is_kept(tmp_path: Path) -> None:
    """Whatever lies in the folder; started again it is another attempt."""
    _train(tmp_path)
    assert _train(tmp_path, given="mine") == Identity("mine", 1)
    assert _train(tmp_path, given="mine") == Identity("mine", 2)
    assert identity.provisional("mine", str(tmp_path)) == Identity("mine", 3)


def test_a_requeued_job_counts_its_attempts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Slurm does where nothing was kept; what lies beside the checkpoints knows of earlier jobs as well."""
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")

    assert identity.provisional("mine", None) == Identity("mine", 3)
    assert identity.provisional(None, str(tmp_path)) == Identity(f"{tmp_path.name}-4711", 3)
    assert _train(tmp_path) == Identity(f"{tmp_path.name}-4711", 3)
    assert _train(tmp_path) == Identity(f"{tmp_path.name}-4711", 4)
    for no_number in ("", "-1", "x"):
        monkeypatch.setenv("SLURM_RESTART_COUNT", no_number)
        assert identity.provisional("mine", None) == Identity("mine", 1)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": "x"}', '{"run": "x", "attempt": "many"}', "\x00"])
def test_a_broken_file_is_no_file(tmp_path: Path, content: str) -> None:
    """It is written anew."""
    (tmp_path / RUN_FILE).write_text(content)
    (tmp_path / "checkpoint-1").mkdir()

    assert _train(tmp_path, resume=tmp_path / "checkpoint-1").attempt == 1
    assert _train(tmp_path, resume=tmp_path / "checkpoint-1").attempt == 2


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """For the caller to count."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        identity.keep(Identity("x"), str(tmp_path / "file"))


def _rank(rank: int, restart: int = 0, folder: str = "/tmp/torchelastic_x/none_y") -> dict[str, str]:
    """The environment that `accelerate launch` gives a rank on one machine."""
    return {
        "TORCHELASTIC_RUN_ID": "none",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "RANK": str(rank),
        "TORCHELASTIC_ERROR_FILE": f"{folder}/attempt_{restart}/{rank}/error.json",
    }


def test_ranks_of_a_launch_without_an_id_share_one() -> None:
    """And keep it over an elastic restart; the next launch has another one."""
    first = identity.shared_id(_rank(0))

    assert first
    assert {identity.shared_id(_rank(1)), identity.shared_id(_rank(1, restart=2))} == {first}
    assert identity.shared_id(_rank(0, folder="/tmp/torchelastic_x/none_z")) != first


def test_ranks_come_to_one_name_whoever_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of an earlier run that is not resumed, where rank 0 writes the name before rank 1 looks."""
    out = tmp_path / "out"
    _train(out)
    (out / "checkpoint-3").mkdir()
    for name, value in _rank(0).items():
        monkeypatch.setenv(name, value)
    early = identity.provisional(None, str(out))
    leading = identity.settle(identity.provisional(None, str(out)), None, str(out), None)
    identity.keep(leading, str(out))
    late = identity.provisional(None, str(out))

    assert identity.settle(early, None, str(out), None).name == leading.name
    assert identity.settle(late, None, str(out), None).name == leading.name
