"""Where marks stand in a text: special tokens, and those of a user's own. Knows no tokenizer."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from operator import itemgetter


def split_at(texts: Iterable[str]) -> re.Pattern[str] | None:
    """What cuts a text before and after each of `texts`, of two at one place the longer."""
    return re.compile(f"({_any_of(sorted(found))})") if (found := set(filter(None, texts))) else None


def _any_of(texts: Sequence[str]) -> str:
    """A pattern that branches where sorted texts differ: models have thousands, and each place in a text is tried."""
    start = "".join(a for a, b in takewhile(lambda pair: pair[0] == pair[1], zip(texts[0], texts[-1], strict=False)))
    rest = [text[len(start) :] for text in texts]
    branches = "|".join(_any_of(list(group)) for _, group in groupby(filter(None, rest), key=itemgetter(0)))
    return re.escape(start) + (f"(?:{branches})" if branches else "") + ("?" if branches and "" in rest else "")
