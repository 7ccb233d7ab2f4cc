"""Between strings and token ids: everything that the engine, which speaks only token ids, doesn't know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from parkway.errors import BadFile, BadRequest
from parkway.text.chat_template import ChatTemplate
from parkway.text.gguf_tokenizer import GgufTokenizer
from parkway.text.hugging_face_tokenizer import HuggingFaceTokenizer
from parkway.text.model_file_tokenizer import ModelFileTokenizer
from parkway.text.stream_parser import TextStream
from parkway.text.tokenizer import Tokenizer
from parkway.weights import open_checkpoint

__all__ = ["ChatTemplate", "ModelText", "TextStream", "Tokenizer"]


@dataclass(frozen=True, slots=True)
class ModelText:
    """The text side of one model file: what whoever stands at the engine's door needs to speak to people."""

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    pooling: Literal["last", "mean"] | None = "last"
    """How the file wants the states of tokens made one embedding; None: in a way that there isn't."""

    @classmethod
    def from_path(cls, path: Path) -> "ModelText":
        """Of a model file or folder. Raises BadFile or Unsupported."""
        checkpoint = open_checkpoint(path)
        return cls.from_metadata(checkpoint.metadata, checkpoint.name, path)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], name: str, path: object = "model file") -> "ModelText":
        """Raises BadFile or Unsupported, naming what and where (`path`)."""
        tokenizer: Tokenizer = _kind(metadata).from_metadata(metadata, path)
        source = metadata.get("tokenizer.chat_template", "")
        if not isinstance(source, str):
            raise BadFile(path, f"tokenizer.chat_template must be str, not {type(source).__name__}")
        template = ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token) if source else None
        return cls(name, tokenizer, template, _pooling(metadata))

    def with_template(self, source: str, variables: Mapping[str, Any]) -> "ModelText":
        """With a template of this source ("": its own) that is told these variables too. Raises Unsupported."""
        if not source and (self.template is None or not variables):
            return self
        source = source or (self.template.source if self.template else "")
        tokenizer = self.tokenizer
        return replace(self, template=ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token, variables))

    def chat_text(self, messages: Sequence[Mapping[str, Any]], /, **variables: Any) -> str:
        """The rendered chat; `variables` as in render. Raises BadRequest, also where the model has no template."""
        if self.template is None:
            raise BadRequest(
                "messages", f"the model {self.name} has no chat template: only completions can be asked for"
            )
        return self.template.render(messages, **variables)

    def encoded(self, text: str) -> list[int]:
        """Token ids of a prompt's text, with BOS once where the file asks for it. Raises BadRequest."""
        return self.tokenizer.with_bos(self.tokenizer.encode(text))

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]], /, **variables: Any) -> list[int]:
        """Token ids of the rendered chat. Raises as chat_text."""
        return self.encoded(self.chat_text(messages, **variables))


def _kind(metadata: Mapping[str, Any]) -> type[GgufTokenizer | HuggingFaceTokenizer | ModelFileTokenizer]:
    if "tokenizer.huggingface.json" not in metadata:
        return GgufTokenizer
    return ModelFileTokenizer if metadata["tokenizer.huggingface.json"] is None else HuggingFaceTokenizer


def _pooling(metadata: Mapping[str, Any]) -> Literal["last", "mean"] | None:
    """By llama.cpp's numbers: none said, none, mean and last; the others are of models that are not causal, or rank."""
    kinds: dict[Any, Literal["last", "mean"]] = {None: "last", 0: "last", 1: "mean", 3: "last"}
    return kinds.get(metadata.get(f"{metadata.get('general.architecture')}.pooling_type"))
