"""What a step and a copy cost, in seconds. Knows no planner."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """A device. A step takes `step` + `row` for each decoding chat + `token` for each other token, in seconds.

    A page is copied in `page` seconds, out and back beside each other if there are two `lanes`; one step begins
    `step_pages` at most. A step has up to `batch_tokens` rows; `ahead` of them may be in flight while one is planned.
    """

    step: float
    row: float
    token: float
    page: float
    step_pages: int
    batch_tokens: int
    lanes: int = 2
    ahead: int = 1

    def step_seconds(self, rows: int, tokens: int) -> float:
        return self.step + self.row * rows + self.token * tokens

    def alone_seconds(self, prompt: int, answer: int) -> float:
        """From the arrival to the last token of a chat that has the device for itself."""
        steps = -(-prompt // self.batch_tokens)
        decoded = answer - 1  # the prompt's last step brings the first
        # A prompt's last token in a step of its own counts as a row, as the simulator counts it.
        rows = decoded + (prompt % self.batch_tokens == 1)
        tokens = prompt - (prompt % self.batch_tokens == 1)
        return self.step * (steps + decoded) + self.row * rows + self.token * tokens


DEVICES = {
    # The study's: a 4B model on a GPU, 70 tok/s a stream beside three others, prefill at 3,000 tok/s. A park of 2,000
    # tokens lands after 0.13 s, as a restore does in the system whose study this repeats.
    "4b": Costs(step=0.0133, row=0.00025, token=1 / 3000, page=0.004, step_pages=8, batch_tokens=512),
    # results/h200.json, qwen3-8b in bf16: 212.5 tok/s for 1 stream, 2,983 for 16, 8,497 for 64; prefill at 39,810.
    # A page has 9.4 MB and takes the bus 0.18 ms; a step begins 256 MiB.
    "h200": Costs(step=0.00466, row=0.0000445, token=1 / 39810, page=0.000175, step_pages=28, batch_tokens=4096),
    # SmolLM2-135M in Q4_1 on two cores, nothing else on them: about 320 tok/s for 1 stream, 1,400 for 16; prefill at
    # 2,000. A page has 1.5 MB and takes the one thread that copies 0.25 ms; a step begins one page.
    "cpu": Costs(
        step=0.0026, row=0.00055, token=1 / 2000, page=0.00025, step_pages=1, batch_tokens=256, lanes=1, ahead=0
    ),
}
