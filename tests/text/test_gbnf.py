"""llama.cpp's notation: which texts a grammar allows, and what is no grammar. The samples are of the kinds that its
users write, in words of our own."""

import json

import pytest

from parkway.errors import BadRequest
from parkway.runner.constraints import tokenizer_of
from parkway.text.gbnf import lark_of_gbnf
from parkway.text.gbnf_reader import GbnfError
from parkway.text.grammar import grammar_of
from tests.grammars import BYTES, accepts, walk

JSON = r"""
# JSON whose whole is an object
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
    string ":" ws value    # the first member
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
ARITHMETIC = r"""root  ::= (sum "=" ws term "\n")+
sum   ::= term ([-+*/] ws term)*
term  ::= name | number | "(" ws sum ")" ws
name ::= [a-z] [a-z0-9_]* ws
number ::= [0-9]+ ws
ws ::= [ \t\n]*"""
CHESS = r"""root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | piece | castle) [+#]?
piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?"""
JAPANESE = """root ::= sign+ ([ \\t\\n] sign+)*
sign ::= hiragana | katakana | cjk
hiragana ::= [ぁ-ゟ]
katakana ::= [\\u30A1-\\u30FF]
cjk ::= [\\U00004E00-\\U00009FFF]"""
C = r"""root ::= declaration*
declaration ::= type " " name "(" parameter? ")" ws "{" ws statement* "}" ws
type ::= "int" | "char"
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= type " " name
statement ::= (type " " name ws "=" ws value ";") ws | "if" ws "(" value ")" ws "{" ws statement* "}" ws
  | "//" [^\n]* "\n"
value ::= name | [0-9]+ | value [+*] value
ws ::= ([ \t\n] ws)?"""

SAMPLES: dict[str, tuple[str, list[str], list[str]]] = {
    "JSON": (
        JSON,
        ['{"a": [1, -2.5e3, {"b": "\\u00e9\\n"}], "c":null}', "{}", "{\n    }"],
        ["[]", '{"a"}', '{"a": 01}', '{"a": "\n"}', "{\n\n}", '{"a": 1'],
    ),
    "arithmetic": (ARITHMETIC, ["a + b = 3\n", "(a_1*2)/x=y \t\n\n1=1\n"], ["a + = 3\n", "(a = 3\n", "a=b"]),
    "chess": (
        CHESS,
        ["1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n2. O-O-O exd8=Q+\n"],
        ["1. e4 e5\n", "1. e4 e9\n2. e4 e5\n"],
    ),
    "Japanese": (JAPANESE, ["こんにちは", "カ 漢字"], ["a", "か  か", ""]),
    "C": (
        C,
        ["int f(int a){ int b = a+2*3; }", "", "char g(){// x+y\nif (a) { } }", "int f(){}char g(){}"],
        ["int f(int a){ int b = ; }", "in f(){}", "int f(){"],
    ),
    "a list": (
        'root ::= item+\nitem ::= "- " [^\\r\\n\\x85\\u2028]+ "\\n"',
        ["- a\n- b é\n"],
        ["- \n", "- a", "- a\u2028\n"],
    ),
    "more than it takes": ('root ::= [a-z]* "end"', ["end", "friend", "endend"], ["en", "ends"]),
    "any character": ('root ::= . "\\n" .{2}', ["a\nbc", "\n\n\n\n", "é\n日本"], ["a\nb", "abcd"]),
    "times": ('root ::= "a"{2} "b"{1,} "c"{0,2} "d"{,1} ("e" "f")?', ["aab", "aabbccdef"], ["ab", "aabccc", "aabe"]),
    "times of times": ('root ::= ("a"+ "b")*', ["", "aabab"], ["a", "b"]),
    "sets": ('root ::= [a\\]\\[\\\\^/-] [^^] [-a] [a-] ["&~]', ["]a--~", '/-a-"'], ["b----", "a^aa&"]),
    "a set that is empty": ("root ::= [^] [^]", ["a\n", "^^"], ["a"]),
    "nothing": ('root ::= "" | "a" |', ["", "a"], ["b"]),
    "lines": ('root ::=\r\n  "a"\r\n  | "b" # no\r\n\r\n  | c\r\nc ::= (\n"c"\n)\n\n', ["a", "b", "c"], ["ab"]),
    "escapes": ('root ::= "\\"\\\\\\n\\r\\t\\x41\\u00e9\\U0001F600/"', ['"\\\n\r\tAé😀/'], ["A"]),
    "names": ('root ::= a-B | a_b\na-B ::= "1"\na_b ::= "2"\nunused ::= "3"', ["1", "2"], ["3"]),
    "recursion to the left": ('root ::= root "a" | "b"', ["b", "baa"], ["a", ""]),
}


@pytest.mark.parametrize(("source", "good", "bad"), SAMPLES.values(), ids=SAMPLES.keys())
def test_it_allows_the_same_texts_as_llama_cpp(source: str, good: list[str], bad: list[str]) -> None:
    grammar = grammar_of("gbnf", source, "grammar")
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


WRONG = {
    "": "there is no rule named root",
    'a ::= "b"': "there is no rule named root",
    "root ::= a": "there is no rule named a",
    'root ::= "a"\nroot ::= "b"': "line 2: the rule root is there twice",
    'root = "a"': "line 1: there must be ::=",
    "root ::= 'a'": "line 1: there must be a string, a set of characters, a group or a rule",
    'root ::= ("a"': "line 1: there must be )",
    'root ::= "a")': "line 1: a rule must end with its line",
    'root ::= "a': "line 1: there must be a character",
    "root ::= [a": "line 1: there must be a character",
    'root ::= "\\q"': "line 1: there must be a character",
    'root ::= "\\uD800"': "line 1: a code point that is no character",
    "root ::= []": "line 1: a set without characters allows nothing",
    "root ::= [b-a]": "line 1: a range of characters ends before it begins",
    'root ::= "a"{3,2}': "line 1: a repetition of at most less than at least",
    'root ::= "a"{}': "line 1: a repetition without a number",
    "root ::= *": "line 1: there must be",
    "root ::= <think>": "line 1: there must be",
    "root ::= " + 60 * "(": "line 1: groups are nested too deeply",
}


@pytest.mark.parametrize(("source", "sentence"), WRONG.items())
def test_what_is_no_grammar_is_told_with_its_line(source: str, sentence: str) -> None:
    with pytest.raises(GbnfError) as caught:
        lark_of_gbnf(source)
    assert str(caught.value).startswith(sentence)
    with pytest.raises(BadRequest):
        grammar_of("gbnf", source, "grammar")


def test_whatever_is_drawn_is_json() -> None:
    short = JSON.replace(r'[^"\\\x00-\x1F\x7F]', "[ab]")
    assert short != JSON
    grammar, tokenizer = grammar_of("gbnf", short, "grammar"), tokenizer_of(BYTES, 256)
    drawn = [walk(grammar, tokenizer, 256, seed) for seed in range(40)]
    texts = [bytes(tokens).decode() for tokens in drawn if tokens is not None]
    assert len({*texts}) > 5
    assert all(isinstance(json.loads(text), dict) for text in texts)
