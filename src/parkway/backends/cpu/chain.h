// Choosing a token by a chain of samplers in any order; plain C++ for every machine.
#pragma once
#include "abi.h"

// The token of `logits` [count] as how->edits.chain says, with its surprise; -1: no logit is above -inf. `keys`: [count] of
// scratch. A row's token is a function of the row, the chain, seed, prompt, choice and position alone.
int32_t pk_walk(pk_sample *how, const float *logits, int64_t count, uint64_t *keys);
