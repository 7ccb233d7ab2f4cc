"""Between strings and token ids: everything that the engine, which speaks only token ids, doesn't know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parkway.errors import BadFile, BadRequest
from parkway.text.chat_template import ChatTemplate
from parkway.text.gguf_tokenizer import GgufTokenizer
from parkway.text.hugging_face_tokenizer import HuggingFaceTokenizer
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

    @classmethod
    def from_path(cls, path: Path) -> "ModelText":
        """Of a model file or folder. Raises BadFile or Unsupported."""
        checkpoint = open_checkpoint(path)
        return cls.from_metadata(checkpoint.metadata, checkpoint.name, path)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], name: str, path: object = "model file") -> "ModelText":
        """Raises BadFile or Unsupported, naming what and where (`path`)."""
        kind = HuggingFaceTokenizer if "tokenizer.huggingface.json" in metadata else GgufTokenizer
        tokenizer: Tokenizer = kind.from_metadata(metadata, path)
        source = metadata.get("tokenizer.chat_template", "")
        if not isinstance(source, str):
            raise BadFile(path, f"tokenizer.chat_template must be str, not {type(source).__name__}")
        template = ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token) if source else None
        return cls(name, tokenizer, template)

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]], /, **variables: Any) -> list[int]:
        """Token ids of the rendered chat, with BOS once where the file asks for it; `variables` as in render.

        Raises BadRequest, also where the model has no template.
        """
        if self.template is None:
            raise BadRequest(
                "messages", f"the model {self.name} has no chat template: only completions can be asked for"
            )
        return self.tokenizer.with_bos(self.tokenizer.encode(self.template.render(messages, **variables)))
