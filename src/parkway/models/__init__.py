"""Model families as plain forward passes over the operations table. Know no array library and no memory."""

from parkway.errors import Unsupported
from parkway.models.dense import Dense
from parkway.models.gemma2 import Gemma2
from parkway.models.gemma3 import Gemma3
from parkway.models.gpt_oss import GptOss
from parkway.models.granite import Granite
from parkway.models.llama import Llama
from parkway.models.olmo2 import Olmo2
from parkway.models.phi3 import Phi3
from parkway.models.qwen2 import Qwen2
from parkway.models.qwen3 import Qwen3
from parkway.models.qwen3moe import Qwen3Moe
from parkway.models.qwen3next import Qwen3Next
from parkway.models.qwen35 import Qwen35
from parkway.models.qwen35moe import Qwen35Moe
from parkway.models.smollm3 import SmolLM3
from parkway.models.tensors import Pack
from parkway.weights.checkpoint import Checkpoint

__all__ = ["FAMILIES", "Dense", "architecture_of", "build_model"]

FAMILIES: dict[str, type[Dense]] = {
    "llama": Llama,
    "smollm3": SmolLM3,
    "granite": Granite,
    "olmo2": Olmo2,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
    "gemma2": Gemma2,
    "gemma3": Gemma3,
    "phi3": Phi3,
    "qwen3moe": Qwen3Moe,
    "gpt-oss": GptOss,
    "qwen3next": Qwen3Next,
    "qwen35": Qwen35,
    "qwen35moe": Qwen35Moe,
}
_OF_ANOTHER_KIND = {
    "adapter": "an adapter (LoRA), not a model; adapters are not supported",
    "mmproj": "a projector for images or sound, not a model; it is not supported",
    "imatrix": "an importance matrix, not a model",
    "vocab": "a vocabulary without weights",
}
"""GGUF's general.type → what the file is."""
_ENCODERS = ("bert", "nomic-bert", "jina-bert", "modern-bert", "t5encoder", "gemma-embedding")
_LATENT = ("deepseek2", "minicpm3", "plm", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM")


def build_model(checkpoint: Checkpoint, pack: Pack) -> Dense:
    """The model of a checkpoint, its weights taken in by `pack`. Raises Unsupported, BadFile."""
    return FAMILIES[architecture_of(checkpoint)](checkpoint, pack)


def architecture_of(checkpoint: Checkpoint) -> str:
    """The name of the checkpoint's family. Raises Unsupported where there is none of that name."""
    architecture = str(checkpoint.value("general.architecture", ""))
    if other := _OF_ANOTHER_KIND.get(str(checkpoint.value("general.type"))):
        raise Unsupported(f"{checkpoint.path}: this is {other}")
    if architecture not in FAMILIES:
        raise Unsupported(
            f"{checkpoint.path}: architecture {architecture!r}{_why(architecture)} is not supported; "
            f"supported: {', '.join(FAMILIES)}"
        )
    return architecture


def _why(architecture: str) -> str:
    if architecture in _ENCODERS or "bert" in architecture.lower():
        return " (an encoder)"
    if architecture in _LATENT:
        return " (multi-head latent attention)"
    return " (a projector)" if architecture == "clip" else ""
