"""Which tokens a context shift takes out: whole pages behind the kept ones, by the request and the length alone."""

from parkway.plan.pages import pages_for
from parkway.plan.step import PAGE_TOKENS
from parkway.request import Request


def shed(request: Request, tokens: int) -> range:
    """Positions in a chat of so many tokens, more than a page.

    Kept are whole pages, those with the first `n_keep` tokens (-1: the prompt) in them; but one page always goes, and
    never that of the last token. As many tokens go as `n_discard` says, or half of those behind the kept ones: down to
    whole pages, one at least.
    """
    how, most = request.sampling, (tokens - 1) // PAGE_TOKENS
    assert most, f"request {request.id}: there is no page to take out"
    kept = min(pages_for(len(request.prompt) if how.n_keep < 0 else how.n_keep), most - 1)
    wanted = how.n_discard or (tokens - kept * PAGE_TOKENS) // 2
    end = min(kept + max(1, wanted // PAGE_TOKENS), most)
    return range(kept * PAGE_TOKENS, end * PAGE_TOKENS)
