// Threads that run a recorded program: one parallel region a step, work claimed in small pieces. An instruction is over when
// its items are done, not when every thread has arrived: a thread that the system holds up delays nobody unless it holds a
// piece. Waiting spins shortly and then sleeps, because spinning on a shared core stops everybody else.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <thread>
#include <vector>

#include "abi.h"

namespace {

constexpr int SPINS = 1000;  // about 20 µs: longer than most imbalances, much shorter than a scheduler's slice

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
    void wait(uint32_t seen) {
        for (int i = 0; i < SPINS; i++) {
            if (now() != seen) return;
            pause_once();
        }
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        while (value_.load(std::memory_order_seq_cst) == seen) syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }

  private:
    std::atomic<uint32_t> value_{0};
    std::atomic<int> sleepers_{0};
};

// Where one instruction of the current step stands. `claim` holds the step's number in its upper half, so that a thread
// that lags behind in an earlier step can't take a piece of this one.
struct alignas(64) Progress {
    std::atomic<uint64_t> claim{0};
    std::atomic<int64_t> done{0};
    std::atomic<int64_t> items{0};
};

struct Pool;

struct Program {
    Pool *pool;
    std::vector<pk_instr> instructions;
    std::vector<Progress> progress;
    std::vector<pk_tile> tiles;
    std::vector<float> scratch;
    int64_t tile_rows, kv_heads;
    pk_step step;
};

struct Pool {
    int threads;
    std::vector<std::thread> workers;
    Signal start, advanced;
    std::atomic<uint32_t> number{0};  // of the step that runs
    std::atomic<bool> stopping{false};
    std::atomic<int> active{0};  // workers that may be reading `program`
    std::atomic<Program *> program{nullptr};
};

int64_t items_of(const pk_instr &in, const pk_step &step, int64_t kv_heads) {
    switch (in.counts) {
        case PK_ROWS: return step.batch->rows;
        case PK_LOGIT_ROWS: return step.batch->logit_rows;
        case PK_TILES: return (step.splits ? step.batch->rows * step.splits : step.tile_count) * kv_heads;
        case PK_MERGES: return step.splits ? step.batch->rows * in.n[0] : 0;
        default: return in.on_logit_rows && step.batch->logit_rows == 0 ? 0 : in.items;
    }
}

// The next unclaimed piece [begin, begin + grain) of an instruction, or -1: none is left, or the step is over.
int64_t claim(Progress &at, uint32_t number, int64_t items, int64_t grain) {
    uint64_t seen = at.claim.load(std::memory_order_acquire);
    while (seen >> 32 == number && (int64_t)(seen & UINT32_MAX) < items) {
        const int64_t begin = (int64_t)(seen & UINT32_MAX), end = begin + grain < items ? begin + grain : items;
        if (at.claim.compare_exchange_weak(seen, (uint64_t)number << 32 | (uint64_t)end, std::memory_order_acq_rel)) return begin;
    }
    return -1;
}

void run_instruction(Pool &pool, Program &program, size_t i, uint32_t number, int thread) {
    Progress &at = program.progress[i];
    const pk_instr &in = program.instructions[i];
    const int64_t items = at.items.load(std::memory_order_acquire);
    // About eight claims a thread: enough to even out an interrupted one, few enough to cost nothing.
    const int64_t grain = items / (pool.threads * 8) + 1;
    for (int64_t begin; (begin = claim(at, number, items, grain)) >= 0;) {
        const int64_t end = begin + grain < items ? begin + grain : items;
        in.kernel(&program.step, &in, begin, end, thread);
        if (at.done.fetch_add(end - begin, std::memory_order_acq_rel) + end - begin == items) pool.advanced.raise();
    }
}

void run(Pool &pool, Program &program, uint32_t number, int thread) {
    for (size_t i = 0; i < program.instructions.size(); i++) {
        Progress &at = program.progress[i];
        run_instruction(pool, program, i, number, thread);
        while (at.done.load(std::memory_order_acquire) < at.items.load(std::memory_order_relaxed)) {
            const uint32_t seen = pool.advanced.now();
            if (pool.number.load(std::memory_order_acquire) != number) return;
            if (at.done.load(std::memory_order_acquire) < at.items.load(std::memory_order_relaxed)) pool.advanced.wait(seen);
        }
    }
}

void work(Pool *pool, int thread) {
    for (uint32_t last = 0;;) {
        const uint32_t seen = pool->start.now(), number = pool->number.load(std::memory_order_acquire);
        if (pool->stopping.load(std::memory_order_acquire)) return;
        if (number == last) {
            pool->start.wait(seen);
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

int64_t splits_of(const Program &program, const pk_batch &batch) {
    if (batch.rows > PK_SPLIT_ROWS || batch.rows * program.kv_heads >= 4 * program.pool->threads || program.pool->threads == 1) return 0;
    int32_t last = 0;
    for (int64_t r = 0; r < batch.rows; r++) last = batch.positions[r] > last ? batch.positions[r] : last;
    return last < PK_SPLIT ? 0 : last / PK_SPLIT + 1;
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
    program->progress = std::vector<Progress>((size_t)count);
    program->tiles.reserve((size_t)max_rows);
    program->scratch.resize((size_t)(scratch_floats * program->pool->threads));
    program->tile_rows = tile_rows;
    program->kv_heads = kv_heads;
    program->step = {nullptr, nullptr, 0, 0, program->scratch.data(), scratch_floats};
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
    program.step.batch = batch;
    program.step.tiles = program.tiles.data();
    program.step.tile_count = (int64_t)program.tiles.size();
    program.step.splits = splits_of(program, *batch);
    const uint32_t number = pool.number.load(std::memory_order_relaxed) + 1;
    for (size_t i = 0; i < program.progress.size(); i++) {
        Progress &at = program.progress[i];
        // The claim first: a worker that still walks the last step sees new items only together with a claim not its own.
        at.claim.store((uint64_t)number << 32, std::memory_order_relaxed);
        at.items.store(items_of(program.instructions[i], program.step, program.kv_heads), std::memory_order_release);
        at.done.store(0, std::memory_order_relaxed);
    }
    pool.program.store(&program);
    pool.number.store(number, std::memory_order_release);
    if (pool.threads > 1) pool.start.raise();
    run(pool, program, number, 0);
}
