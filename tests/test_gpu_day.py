"""The GPU measurements, in toy sizes on this CPU."""

import json
import subprocess
import sys

import pytest

from small_runs import ROOT


@pytest.mark.thorough  # each part is a process that compiles
def test_each_part_prints_its_results_as_lines_of_json(tmp_path):
    output = tmp_path / "day.jsonl"
    words = ["-m", "experiments.benchmarks.gpu_day", "--toy", "--parts=step,decoding,tests", f"--output={output}"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert not [line for line in lines if "error" in line]
    traced = {line["kind"]: line for line in lines if "kind" in line}
    assert traced["products"]["TFLOP"] > 0 and traced["products"]["milliseconds"] > 0
    parts = [line["milliseconds"] for kind, line in traced.items() if kind != "all"]
    assert traced["all"]["milliseconds"] == pytest.approx(sum(parts))
    assert "unknown" not in traced or traced["unknown"]["milliseconds"] < 0.05 * traced["all"]["milliseconds"]
    assert len([line for line in lines if "tokens a second" in line and line["tokens a second"] > 0]) == 1 + 2
    (tests,) = [line for line in lines if "exit code" in line]
    assert tests["exit code"] == 0 and "test_flash_on_gpu" in tests["said"]
