// Threads that run a recorded program: one parallel region a step. Every thread walks its own share of an instruction's
// items, so that it reads one run of memory, and takes from the others' when it is through. An instruction is over when its
// items are done, not when every thread has arrived: a thread that the system holds up delays nobody unless it holds a
// piece. Waiting spins shortly and then sleeps, because spinning on a shared core stops everybody else.
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <thread>
#include <vector>

#include "kernels.h"

__thread uint64_t pk_steps_of_thread = 0;

namespace {

// About 40 µs: longer than most imbalances of an instruction, much shorter than a scheduler's slice.
constexpr int SPINS = 2000;
// About 400 µs: longer than the host takes between two steps, so that a step does not begin with waking a thread.
constexpr int SPINS_BETWEEN_STEPS = 20000;
// How often a spinning thread offers its core to others behind a step with masks: threads are about to work out the next
// ones, and the system would leave them waiting for its slice to end.
constexpr int SPINS_TO_YIELD = 32;

void pause_once() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// A number that others wait to see change.
class Signal {
  public:
    uint32_t now() const { return value_.load(std::memory_order_acquire); }
    void raise() {
        value_.fetch_add(1, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst)) syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    }
    void wait(uint32_t seen, int spins, bool yields = false) {
        for (int i = 0; i < spins; i++) {
            if (now() != seen) return;
            if (yields && i % SPINS_TO_YIELD == 0) sched_yield();
            else pause_once();
        }
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        while (value_.load(std::memory_order_seq_cst) == seen) syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }

  private:
    std::atomic<uint32_t> value_{0};
    std::atomic<int> sleepers_{0};
};

// A count of one step: the step's number above, the count below. A step's counts need no reset, since another number
// means 0; and a thread that lags behind in an earlier step sees that it is too late.
struct alignas(64) Tagged {
    std::atomic<uint64_t> value{0};
};

uint64_t tagged(uint32_t number, int64_t count) { return (uint64_t)number << 32 | (uint64_t)count; }
int64_t count_in(uint64_t value, uint32_t number) { return value >> 32 == number ? (int64_t)(value & UINT32_MAX) : 0; }
bool is_later(uint64_t value, uint32_t number) { return (int32_t)((uint32_t)(value >> 32) - number) > 0; }

struct Pool;

struct Program {
    Pool *pool;
    std::vector<pk_instr> instructions;
    std::vector<std::atomic<int64_t>> items;  // of each instruction in this step
    std::vector<Tagged> taken;                // [instruction, thread] items of the thread's share that somebody has taken
    std::vector<Tagged> done;                 // [instruction] items that are done
    std::vector<pk_tile> tiles, runs;
    std::vector<float> scratch;
    int64_t tile_rows, kv_heads;
    pk_step step;
};

struct Pool {
    int threads;
    std::vector<std::thread> workers;
    Signal start, advanced;
    std::atomic<uint32_t> number{0};  // of the step that runs
    std::atomic<bool> masked{false};  // some row of it has a mask
    std::atomic<bool> stopping{false};
    std::atomic<int> active{0};  // workers that may be reading `program`
    std::atomic<Program *> program{nullptr};
};

int64_t items_of(const pk_instr &in, const pk_step &step, int64_t kv_heads) {
    switch (in.counts) {
        case PK_ROWS: return step.batch->rows;
        case PK_LOGIT_ROWS: return step.batch->logit_rows;
        case PK_TILES: return (step.splits ? step.batch->rows * step.splits : step.tile_count) * kv_heads;
        case PK_RUNS: return step.run_count * in.items;
        case PK_MERGES: return step.splits ? step.batch->rows * in.n[0] : 0;
        default: return in.on_logit_rows && step.batch->logit_rows == 0 ? 0 : in.items;
    }
}

struct Piece {
    int64_t begin, end;
};

Piece share_of(int64_t items, int threads, int thread) { return {items * thread / threads, items * (thread + 1) / threads}; }

// The next piece of a share that nobody has taken; empty if there is none or the step is over.
Piece take(Tagged &taken, uint32_t number, Piece share, int64_t grain) {
    uint64_t seen = taken.value.load(std::memory_order_acquire);
    while (!is_later(seen, number)) {
        const int64_t begin = share.begin + count_in(seen, number), end = begin + grain < share.end ? begin + grain : share.end;
        if (begin >= share.end) break;
        if (taken.value.compare_exchange_weak(seen, tagged(number, end - share.begin), std::memory_order_acq_rel)) return {begin, end};
    }
    return {0, 0};
}

// Counts items as done; true for the last of them.
bool finish(Tagged &done, uint32_t number, int64_t count, int64_t items) {
    uint64_t seen = done.value.load(std::memory_order_acquire);
    while (!done.value.compare_exchange_weak(seen, tagged(number, count_in(seen, number) + count), std::memory_order_acq_rel)) {}
    return count_in(seen, number) + count == items;
}

bool is_over(const Tagged &done, uint32_t number, int64_t items) {
    const uint64_t seen = done.value.load(std::memory_order_acquire);
    return count_in(seen, number) >= items || is_later(seen, number);
}

void run_instruction(Pool &pool, Program &program, size_t i, uint32_t number, int64_t items, int thread) {
    const pk_instr &in = program.instructions[i];
    // About eight pieces a share: enough to even out an interrupted one, few enough to cost nothing. Rows of a tile lie
    // side by side, so threads that took turns at them would wait for each other's cache lines.
    const int64_t piece_items = items / (pool.threads * 8) + 1;
    const int64_t grain = in.counts == PK_ROWS ? (piece_items + PK_ROW_TILE - 1) / PK_ROW_TILE * PK_ROW_TILE : piece_items;
    for (int k = 0; k < pool.threads; k++) {
        const int owner = (thread + k) % pool.threads;
        const Piece share = share_of(items, pool.threads, owner);
        Tagged &taken = program.taken[i * pool.threads + owner];
        for (Piece piece; (piece = take(taken, number, share, grain)).end;) {
            in.kernel(&program.step, &in, piece.begin, piece.end, thread);
            if (finish(program.done[i], number, piece.end - piece.begin, items)) pool.advanced.raise();
        }
    }
}

void run(Pool &pool, Program &program, uint32_t number, int thread) {
    pk_steps_of_thread++;
    for (size_t i = 0; i < program.instructions.size(); i++) {
        const int64_t items = program.items[i].load(std::memory_order_acquire);
        if (items == 0) continue;
        run_instruction(pool, program, i, number, items, thread);
        if (is_over(program.done[i], number, items)) continue;
        for (;;) {
            const uint32_t seen = pool.advanced.now();
            if (is_over(program.done[i], number, items)) break;
            if (pool.number.load(std::memory_order_acquire) != number) return;
            pool.advanced.wait(seen, SPINS);
        }
    }
}

void work(Pool *pool, int thread) {
    for (uint32_t last = 0;;) {
        const uint32_t seen = pool->start.now(), number = pool->number.load(std::memory_order_acquire);
        if (pool->stopping.load(std::memory_order_acquire)) return;
        if (number == last) {
            pool->start.wait(seen, SPINS_BETWEEN_STEPS, pool->masked.load(std::memory_order_relaxed));
            continue;
        }
        pool->active.fetch_add(1);
        if (Program *program = pool->program.load()) run(*pool, *program, number, thread);
        pool->active.fetch_sub(1);
        last = number;
    }
}

// Runs of consecutive rows of one chat, at most tile_rows long.
void cut_tiles(Program &program, const pk_batch &batch) {
    program.tiles.clear();
    for (int64_t r = 0; r < batch.rows; r++) {
        const bool joins = r > 0 && batch.table_of[r] == batch.table_of[r - 1] && program.tiles.back().rows < program.tile_rows;
        if (joins) program.tiles.back().rows++;
        else program.tiles.push_back({(int32_t)r, 1});
    }
}

// All consecutive rows of one chat.
void cut_runs(Program &program, const pk_batch &batch) {
    program.runs.clear();
    for (int64_t r = 0; batch.slots && r < batch.rows; r++) {
        if (r > 0 && batch.slots[r] == batch.slots[r - 1]) program.runs.back().rows++;
        else program.runs.push_back({(int32_t)r, 1});
    }
}

int64_t splits_of(const Program &program, const pk_batch &batch) {
    if (batch.rows > PK_SPLIT_ROWS || batch.rows * program.kv_heads >= 4 * program.pool->threads || program.pool->threads == 1) return 0;
    int32_t last = 0;
    for (int64_t r = 0; r < batch.rows; r++) last = batch.positions[r] > last ? batch.positions[r] : last;
    return last < PK_SPLIT ? 0 : last / PK_SPLIT + 1;
}

bool has_mask(const pk_batch &batch) {
    for (int64_t i = 0; batch.samples && i < batch.logit_rows; i++)
        if (batch.samples[i].edits.mask) return true;
    return false;
}

}  // namespace

void *pk_pool_new(int threads) {
    Pool *pool = new Pool;
    pool->threads = threads;
    for (int t = 1; t < threads; t++) pool->workers.emplace_back(work, pool, t);
    return pool;
}

void pk_pool_free(void *memory) {
    Pool *pool = (Pool *)memory;
    pool->stopping.store(true, std::memory_order_release);
    pool->start.raise();
    for (std::thread &worker : pool->workers) worker.join();
    delete pool;
}

void *pk_program_new(void *pool, const pk_instr *instructions, int64_t count, int64_t max_rows, int64_t tile_rows, int64_t kv_heads,
                     int64_t scratch_floats) {
    Program *program = new Program;
    program->pool = (Pool *)pool;
    program->instructions.assign(instructions, instructions + count);
    program->items = std::vector<std::atomic<int64_t>>((size_t)count);
    program->taken = std::vector<Tagged>((size_t)count * program->pool->threads);
    program->done = std::vector<Tagged>((size_t)count);
    program->tiles.reserve((size_t)max_rows);
    program->runs.reserve((size_t)max_rows);
    program->scratch.resize((size_t)(scratch_floats * program->pool->threads));
    program->tile_rows = tile_rows;
    program->kv_heads = kv_heads;
    program->step = {nullptr, nullptr, 0, nullptr, 0, 0, program->scratch.data(), scratch_floats};
    return program;
}

void pk_program_free(void *memory) {
    Program *program = (Program *)memory;
    program->pool->program.store(nullptr);
    while (program->pool->active.load()) std::this_thread::yield();
    delete program;
}

void pk_program_run(void *memory, const pk_batch *batch) {
    Program &program = *(Program *)memory;
    Pool &pool = *program.pool;
    cut_tiles(program, *batch);
    cut_runs(program, *batch);
    program.step.batch = batch;
    program.step.tiles = program.tiles.data();
    program.step.tile_count = (int64_t)program.tiles.size();
    program.step.runs = program.runs.data();
    program.step.run_count = (int64_t)program.runs.size();
    program.step.splits = splits_of(program, *batch);
    const uint32_t number = pool.number.load(std::memory_order_relaxed) + 1;
    for (size_t i = 0; i < program.items.size(); i++) {
        const int64_t items = items_of(program.instructions[i], program.step, program.kv_heads);
        if (items == program.items[i].load(std::memory_order_relaxed)) continue;
        // First the number: a worker that still walks the last step must not find new items beside its own number.
        for (int t = 0; t < pool.threads; t++) program.taken[i * pool.threads + t].value.store(tagged(number, 0));
        program.items[i].store(items, std::memory_order_release);
    }
    pool.masked.store(has_mask(*batch), std::memory_order_relaxed);
    pool.program.store(&program);
    pool.number.store(number, std::memory_order_release);
    if (pool.threads > 1) pool.start.raise();
    run(pool, program, number, 0);
}

// One instruction once more for one of its items, of the step that ran last, by the thread that calls.
void pk_program_again(void *memory, const pk_batch *batch, int64_t instruction, int64_t item) {
    Program &program = *(Program *)memory;
    program.step.batch = batch;
    const pk_instr &in = program.instructions[instruction];
    in.kernel(&program.step, &in, item, item + 1, 0);
}
