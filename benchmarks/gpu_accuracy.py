"""The same as cpu_accuracy on the GPU: the default model's file, activations in bf16."""

from benchmarks import records
from benchmarks.cpu_accuracy import REACH, TOP, accuracy, record
from parkway.config import EngineSettings
from parkway.weights import default_model

COMMAND = "python -m benchmarks.gpu_accuracy"
RESULTS = records.RESULTS / "h200.json"
PACKAGES = ("torch", "triton")


def main() -> None:
    reach = REACH["smollm2"]
    made = accuracy(default_model.fetch(), EngineSettings(device="cuda", ctx_size=1024), reach.reference)
    print(f"{made.rows} rows, argmax agrees in {made.agreement:.1f} %, mean error {made.error:.5f}")
    agreement, error = "argmax agreement, SmolLM2 Q4_1", f"mean error of the top {TOP} log-probabilities, SmolLM2 Q4_1"
    record(RESULTS, agreement, made.agreement, "%", reach.agreement, command=COMMAND, packages=PACKAGES)
    record(RESULTS, error, made.error, "nat", reach.error["int8"], command=COMMAND, packages=PACKAGES)


if __name__ == "__main__":
    main()
