import pytest

from fxf.base.config import flatten
from fxf.runs.experiment import default_config
from fxf.runs.keys import of_config, sections
from fxf.tasks import TASKS
from small_runs import ROOT, command


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_keys_of_a_config_are_all_its_keys_with_its_values(task, optimizer):
    for model in TASKS[task].models:
        config = default_config(task, model, optimizer=optimizer).to_dict()
        found = {f"{path}.{key.name}": key.default for path, keys in of_config(config).items() for key in keys}
        values = {path: repr(value) if value == "" else str(value) for path, value in flatten(config) if path != "seed"}
        assert found == values


def test_the_page_of_all_keys_is_what_the_command_prints():
    assert all(key.meaning for keys in sections().values() for key in keys)
    page, printed = (ROOT / "docs/keys.md").read_text(), command("keys").stdout
    assert page.endswith(f"\n\n{printed}"), "put what fxf keys prints into docs/keys.md"
