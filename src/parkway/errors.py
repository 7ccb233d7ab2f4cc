"""Everything that Parkway raises on purpose, as one tree. Knows no other module.

ParkwayError
├── StartError            the server or library can't start: one sentence, exit code 2
│   ├── BadFile           a file is missing, truncated, corrupt or of the wrong kind
│   ├── Unsupported       an architecture, tensor type or tokenizer that is not built
│   ├── BadSetting        a flag or variable with a value that can't be honoured
│   └── NoRoom            the pool or a buffer doesn't fit into memory
├── BadRequest            the client's fault: names the parameter, becomes a 4xx
│   └── ContextExceeded   the prompt alone is longer than the context
├── ShuttingDown          the server drains or stops; becomes a 503
├── Overloaded            too many requests wait; becomes a 429 that says when to come back
├── ChatFailed            one chat can't go on, and nobody else notices: no token may follow, or no number came
├── PoolFull              chats outgrew the pool together, and --preempt off forbids to park one
└── EngineDied            the engine is gone; every open request gets this
"""


class ParkwayError(Exception):
    """Base of all of Parkway's own errors; its text is a sentence for a person."""


class StartError(ParkwayError):
    """Start-up can't go on; the command prints the sentence and exits with code 2."""


class BadFile(StartError):
    def __init__(self, path: object, what: str) -> None:
        super().__init__(f"{path}: {what}")


class Unsupported(StartError):
    pass


class BadSetting(StartError):
    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name


class NoRoom(StartError):
    pass


class BadRequest(ParkwayError):
    """A request that can't be honoured. `param` is the field's name as the client spelt it, `code` OpenAI's code."""

    status = 400
    type = "invalid_request_error"

    def __init__(self, param: str | None, message: str, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


class ContextExceeded(BadRequest):
    """The prompt is longer than a chat may ever be (llama-server's error, with its two counts)."""

    type = "exceed_context_size_error"

    def __init__(self, n_prompt_tokens: int, n_ctx: int, param: str = "prompt") -> None:
        super().__init__(
            param,
            f"request ({n_prompt_tokens} tokens) exceeds the available context size ({n_ctx} tokens), "
            "try increasing it",
            code="context_length_exceeded",
        )
        self.n_prompt_tokens = n_prompt_tokens
        self.n_ctx = n_ctx


class ShuttingDown(ParkwayError):
    pass


class Overloaded(ParkwayError):
    """Too many requests wait. `retry_seconds`: when there may be room."""

    def __init__(self, message: str, retry_seconds: int) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class ChatFailed(ParkwayError):
    pass


class PoolFull(ParkwayError):
    pass


class EngineDied(ParkwayError):
    pass
