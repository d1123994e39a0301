"""Runs from Python, and what `import fxf` costs and gives."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import fxf
from fxf.runs.generation import CUT_OFF
from small_runs import KEPT, ROOT, records, sharing_programs, tiny_config, trained


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    trained(tiny_config(), folder, kept=KEPT)
    with pytest.MonkeyPatch.context() as patch:
        sharing_programs(patch)
        yield folder


def test_a_finished_run_is_loaded_and_has_its_config_its_result_and_a_table_of_its_records(workdir):
    run = fxf.load(workdir)
    assert re.fullmatch(r"Run\(reversal, transformer_lm, step 6, [\d,]+ weights\)", repr(run))
    run = fxf.load(workdir, step=2, temperature=0.5)
    assert run.step == 2
    changed = {**run.config.decode.to_dict(), "temperature": 0.0}
    assert {**run.config.to_dict(), "decode": changed} == tiny_config()
    assert run.config.to_dict().keys() == fxf.read_config("reversal").to_dict().keys()
    assert run.result == json.loads((workdir / "result.json").read_text()) and run.result["steps"] == 6
    assert run.metrics == records(workdir)
    assert run.metrics[0].keys() >= {"step", "loss", "learning_rate", "tokens_per_second"}


def test_an_answer_has_its_text_its_score_and_whether_it_was_cut_off(workdir, caplog):
    run = fxf.load(workdir)
    room = run.model.max_len
    biased = run._replace(params={**run.params, "final": {**run.params["final"], "bias": np.eye(4)[2] * 1e6}})
    answers = biased.answers(["1 2", "3"])
    found = [(len(answer.text.split()), answer.score, answer.cut_off) for (answer,) in answers]
    assert found == [(room - 3, None, True), (room - 2, None, True)]
    assert biased.generate(text for text in ("1 2", "3")) == [answer.text for (answer,) in answers]
    assert caplog.messages == ["warning: prompt 1, 2: " + CUT_OFF]
    beam = fxf.load(workdir, beam_width=2).answers(["1 2"])[0]
    assert len(beam) == 2 and beam[0].score >= beam[1].score


def test_importing_fxf_imports_nothing_else_and_each_name_is_there():
    program = (
        "import sys; before = set(sys.modules); import fxf; assert set(sys.modules) - before == {'fxf'}, sys.modules;"
        "assert set(fxf.__all__) <= set(dir(fxf))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=600)
    assert all(getattr(fxf, name) for name in fxf.__all__)
    with pytest.raises(AttributeError, match="module 'fxf' has no attribute 'fitt'"):
        fxf.fitt  # noqa: B018


@pytest.mark.thorough
def test_a_type_checker_knows_the_names(tmp_path):
    (tmp_path / "typed.py").write_text(
        "import fxf\nreveal_type(fxf.fit)\nreveal_type(fxf.load('run').generate(['1']))\nfxf.fitt\nfxf.fit(3)\n"
    )
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "typed.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}  # mypy does not follow an editable installation
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert '"list[str]"' in done.stdout
    assert 'Module has no attribute "fitt"' in done.stdout
    assert 'Argument 1 to "fit" has incompatible type "int"' in done.stdout
