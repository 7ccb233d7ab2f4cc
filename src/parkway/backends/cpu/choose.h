// Choosing a token from one row of weights; plain C++ for every machine.
#pragma once
#include "abi.h"

// `weights`: [count] exp((logit - largest) / temperature), destroyed. `ids`: [count] of scratch. Returns the token.
int32_t pk_choose(const pk_sample *how, const float *weights, int64_t count, int32_t *ids);
// The `how->top` most probable of `logits` [count] into top_ids: by falling logit, then rising id.
void pk_most_probable(pk_sample *how, const float *logits, int64_t count);
// In [0, 1), 53 bits: a draw of the position, 0 for its token.
double pk_uniform(const pk_sample *how, uint32_t draw);
// Random123's Philox4x32-10: counter and key to four words.
void pk_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
