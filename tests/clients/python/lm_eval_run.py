"""lm-eval against the server at the address that it is given, with its tokenizer. Tells the samples as JSON."""

import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read at import

from lm_eval import simple_evaluate

from tests.clients.python.scenarios import MODEL

DOCS = [{"ask": "first A", "choices": ["b", "é日"]}, {"ask": "never A", "choices": ["b", "é日"]}]
COMMON = {"test_split": "test", "doc_to_text": "{{ask}}", "target_delimiter": "", "dataset_path": "json"}
CHOOSE: dict[str, Any] = {"output_type": "multiple_choice", "doc_to_choice": "{{choices}}", "doc_to_target": 0}
TELL: dict[str, Any] = {
    "output_type": "generate_until",
    "doc_to_target": "",
    "metric_list": [{"metric": "exact_match"}],
}
ROLL: dict[str, Any] = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{ask}}"}
TASKS = {"choose": CHOOSE, "tell": TELL | {"generation_kwargs": {"until": ["!"], "max_gen_toks": 60}}, "roll": ROLL}


def told(url: str, documents: str) -> dict[str, Any]:
    where = {"dataset_kwargs": {"data_files": {"test": documents}}}
    made = simple_evaluate(
        model="local-completions",
        model_args={"model": MODEL, "base_url": f"{url}/v1/completions", "max_length": 200, "num_concurrent": 2},
        tasks=[{"task": name, **COMMON, **where, **task} for name, task in TASKS.items()],
        bootstrap_iters=0,
    )
    return {name: [sample["resps"] for sample in made["samples"][name]] for name in TASKS}


if __name__ == "__main__":
    with TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        documents = Path(folder, "documents.json")
        documents.write_text("\n".join(map(json.dumps, DOCS)))
        answers = told(sys.argv[1], str(documents))
    print(json.dumps(answers))
