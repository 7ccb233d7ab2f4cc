"""llama.cpp's grammar notation as Lark for llguidance. Knows neither tokens nor what a grammar is used for.

A grammar without recursion becomes one regular expression. In another every character is a terminal of its own: a
terminal takes as much as it can, and a longer one (`[a-z]*` before "end") would take what others are to have.
"""

from collections.abc import Iterator, Mapping

from parkway.text.gbnf_reader import Choice, GbnfError, Node, Reader, Repeat, Rule, Sequence, Set


def lark_of_gbnf(source: str) -> str:
    """Raises GbnfError."""
    rules = Reader(source).rules()
    if "root" not in rules:
        raise GbnfError("there is no rule named root")
    rules = {name: _looped(name, node) for name, node in rules.items()}
    order = _reachable(rules)
    recursive = _is_recursive(rules)
    names = {name: f"r{at}" if recursive else f"R{at}" for at, name in enumerate(order)}
    lines = [f"start: {names['root']}", *(f"{names[name]}: {_written(rules[name], names)}" for name in order)]
    return "\n".join(lines)


def _looped(name: str, node: Node) -> Node:
    """A rule that is a part and then itself, or nothing, as the loop that it is: llguidance is slow at the former."""
    match node:
        case Repeat(Sequence((*parts, Rule(last))), 0, 1) if last == name:
            return Repeat(Sequence(tuple(parts)), 0, None)
        case Choice((Sequence((*parts, Rule(last))), Sequence(()))) if last == name:
            return Repeat(Sequence(tuple(parts)), 0, None)
        case Choice((Sequence(()), Sequence((*parts, Rule(last))))) if last == name:
            return Repeat(Sequence(tuple(parts)), 0, None)
    return node


def _parts(node: Node) -> "tuple[Node, ...]":
    match node:
        case Sequence(parts) | Choice(parts):
            return parts
        case Repeat(part):
            return (part,)
    return ()


def _references(node: Node) -> Iterator[str]:
    """The rules that it names, in order."""
    if isinstance(node, Rule):
        yield node.name
    for part in _parts(node):
        yield from _references(part)


def _reachable(rules: Mapping[str, Node]) -> list[str]:
    """The names of rules that the root needs, the root first. Raises GbnfError for one that is missing."""
    found = {"root": None}
    waiting = ["root"]
    while waiting:
        for name in _references(rules[waiting.pop()]):
            if name not in rules:
                raise GbnfError(f"there is no rule named {name}")
            if name not in found:
                found[name] = None
                waiting.append(name)
    return list(found)


def _is_recursive(rules: Mapping[str, Node]) -> bool:
    """Whether a rule that the root needs needs itself. Without recursion of its own: a chain may be long."""
    left = {name: set(_references(rules[name])) for name in _reachable(rules)}
    while ready := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in ready:
            del left[name]
    return bool(left)


def _written(node: Node, names: Mapping[str, str]) -> str:
    """In Lark's notation."""
    match node:
        case Set():
            return _written_set(node)
        case Rule(name):
            return names[name]
        case Sequence(()):
            return '""'
        case Sequence(parts):
            return " ".join(_grouped(part, names) for part in parts)
        case Choice(options):
            return " | ".join(_grouped(option, names) for option in options)
        case Repeat(_, _, 0):
            return '""'
        case Repeat(part, low, high):
            return f"({_written(part, names)}){{{low},{'' if high is None else high}}}"


def _grouped(node: Node, names: Mapping[str, str]) -> str:
    text = _written(node, names)
    return f"({text})" if isinstance(node, Sequence | Choice) else text


def _written_set(node: Set) -> str:
    if not node.ranges:
        return "/(?s:.)/"
    inside = "".join(
        rf"\u{{{low:x}}}" if low == high else rf"\u{{{low:x}}}-\u{{{high:x}}}" for low, high in node.ranges
    )
    return f"/[{'^' if node.others else ''}{inside}]/"
