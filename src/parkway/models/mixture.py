"""A feed forward of experts: each row goes through a few of many, and in some families through one that all share."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from parkway.backends import Experts, Operations
from parkway.models.config import Config, ExpertSizes, Sizes, config_of
from parkway.models.dense import Dense, Gated, Layer
from parkway.models.keys import Keys
from parkway.models.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Shared:
    """The expert that all rows go through, and the matrix of one row that says how much of it. Both are packed for
    `Operations.linear`."""

    feed: Gated
    gate: Any


@dataclass(frozen=True, slots=True)
class Feed:
    experts: Experts
    shared: Shared | None


class Mixture(Dense):
    """Every layer's feed forward is a mixture of experts."""

    softmax: ClassVar[Literal["all", "chosen"]] = "all"

    @classmethod
    def configured(cls, keys: Keys, sizes: Sizes) -> Config:
        return config_of(keys, sizes, cls.attends(keys, sizes), experts=cls.expert_sizes(keys))

    @classmethod
    def expert_sizes(cls, keys: Keys) -> ExpertSizes:
        count, chosen = keys.count("expert_count"), keys.count("expert_used_count")
        if chosen > count:
            raise keys.bad(f"{keys.named('expert_used_count')} is {chosen}, of {count} experts")
        normalised = bool(keys.value("expert_weights_norm", True))
        return ExpertSizes(count, chosen, keys.count("expert_feed_forward_length"), normalised)

    def feed_forward(self, ops: Operations, layer: Layer, x: Any) -> Any:
        feed: Feed = layer.feed
        normed, scores = ops.routed(x, layer.ffn_norm, self.config.epsilon, feed.experts.router)
        x = ops.experts_add(normed, scores, feed.experts, x)
        return self._with_shared(ops, normed, feed.shared, x) if feed.shared else x

    def feed(self, tensors: Tensors, at: str) -> Feed:
        sizes, width = self.config.experts, self.config.width
        assert sizes
        gate, up = self._gate_and_up(tensors, at, (sizes.count, sizes.ffn_width, width))
        experts = Experts(
            count=sizes.count,
            chosen=sizes.chosen,
            router=tensors.matrix(f"{at}.ffn_gate_inp", sizes.count, width, bias="must" if self.needs_bias else "none"),
            gate=gate,
            up=up,
            down=tensors.stack(f"{at}.ffn_down_exps", sizes.count, width, sizes.ffn_width, biased=self.needs_bias),
            softmax=self.softmax,
            normalised=sizes.normalised,
            activation=self.activation,
        )
        return Feed(experts, self.shared(tensors, at))

    def shared(self, tensors: Tensors, at: str) -> Shared | None:
        """The layer's shared expert, where the family has one."""
        return None

    def _gate_and_up(self, tensors: Tensors, at: str, shape: tuple[int, int, int]) -> tuple[Any, Any]:
        if tensors.has(f"{at}.ffn_gate_up_exps.weight"):
            return tensors.halves(f"{at}.ffn_gate_up_exps", *shape)
        names = f"{at}.ffn_gate_exps", f"{at}.ffn_up_exps"
        gate, up = (tensors.stack(name, *shape, biased=self.needs_bias) for name in names)
        return gate, up

    def _with_shared(self, ops: Operations, normed: Any, shared: Shared, x: Any) -> Any:
        (gate,) = ops.linear(normed, shared.gate)
        (made,) = ops.linear(ops.gated(normed, shared.feed.gate, shared.feed.up, self.activation), shared.feed.down)
        return ops.add(ops.sigmoid_gate(made, gate), x)
