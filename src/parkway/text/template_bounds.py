"""What a chat template may spend: it comes with a model file, and may never end or fill the memory.

Loops count their turns, what is assigned has a greatest length, and so have products, powers and paddings, which are
large at once. Knows no messages.
"""

import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.filters import do_center, do_format, do_indent
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MOST_TURNS = 5_000_000
"""Of all loops of one rendering together: about a second."""
MOST_CHARACTERS = 1 << 26
"""Of a rendering, and of a value on the way; twice the largest body that a server takes by default."""
MOST_BITS = 1 << 16
"""Of a product or power of whole numbers."""
_MOST_PADDING = 1_000_000
_WIDE = re.compile(r"\d{7}")
_PADDINGS = ("center", "expandtabs", "ljust", "rjust", "zfill")
_turns: ContextVar[Iterator[int]] = ContextVar("turns")


class Sandbox(ImmutableSandboxedEnvironment):
    """Refuses what would be too large at once. Templates come from `bounded`."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.filters |= {"_counted": _counted, "_fitting": _fitting}
        self.filters |= {"center": _center, "format": _format, "indent": _indent}

    def bounded(self, source: str) -> jinja2.Template:
        """Raises TemplateSyntaxError."""
        tree = _Bounds().visit(self.parse(source))
        tree.set_environment(self)
        return jinja2.Template.from_code(self, self.compile(tree), self.make_globals(None))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%":
            _refuse_if(isinstance(left, str) and _is_wide(left))
        elif isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            _refuse_if(bits > MOST_BITS)
        elif operator == "*":
            _refuse_if(_product_size(left, right) > MOST_CHARACTERS)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        text = getattr(method, "__self__", None)
        if isinstance(text, str):
            _refuse_if(method.__name__ in _PADDINGS and any(map(_is_padding, args)))
            _refuse_if(method.__name__ in ("format", "format_map") and _is_wide(text))
        return super().call(__context, __obj, *args, **kwargs)


def rendered(template: jinja2.Template, told: dict[str, Any]) -> str:
    """Raises TemplateError, or whatever the template does."""
    _turns.set(iter(range(MOST_TURNS)))
    pieces, size = [], 0
    for piece in template.generate(told):
        pieces.append(piece)
        size += len(piece)
        _refuse_if(size > MOST_CHARACTERS)
    return "".join(pieces)


def _fitting(value: Any) -> Any:
    _refuse_if(_size(value) > MOST_CHARACTERS)
    return value


class _Bounds(NodeTransformer):
    """Makes every loop count and every assignment look."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _through("_counted", node.iter)
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Assign:
        self.generic_visit(node)
        node.node = _through("_fitting", node.node)
        return node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.AssignBlock:
        self.generic_visit(node)
        node.filter = _through("_fitting", node.filter)
        return node


def _through(name: str, node: Any) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno if node else 1)


def _counted(values: Iterable[Any]) -> Iterator[Any]:
    turns = _turns.get()
    for value in values:
        if next(turns, None) is None:
            raise jinja2.TemplateError(f"its loops take more than {MOST_TURNS} turns")
        yield value


def _refuse_if(too_large: bool) -> None:
    if too_large:
        raise jinja2.TemplateError("it makes something too large")


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _product_size(left: Any, right: Any) -> int:
    """Of a sequence that is repeated; 0 of what is none."""
    times = left if isinstance(left, int) else right
    return (_size(left) + _size(right)) * times if isinstance(times, int) else 0


def _is_wide(form: str) -> bool:
    """Whether it may pad to a width of seven digits, or of an argument."""
    return "*" in form or bool(_WIDE.search(form))


def _is_padding(width: Any) -> bool:
    return isinstance(width, int) and width > _MOST_PADDING


def _center(value: str, width: int = 80) -> str:
    _refuse_if(_is_padding(width))
    return do_center(value, width)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    _refuse_if(_is_padding(width))
    return do_indent(text, width, first, blank)


def _format(text: str, *values: Any, **named: Any) -> str:
    _refuse_if(_is_wide(text))
    return do_format(text, *values, **named)
