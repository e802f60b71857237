/* Race detector: two threads access one place, one of them writes, and nothing orders the two.
 *
 * Vector clocks order the threads of a block: `clocks[t][u]` is the last step of thread u that
 * thread t has seen, by barriers alone. Nothing orders different blocks of a launch. A cell of the
 * shadow memory has the last write of a place and the reads since, those of a half-warp in one step
 * together. So a race is found in whatever order the threads happen to run.
 */

#include "emulator.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, READ = 0, WRITE = 1 };

struct access {
    int32_t block, thread;
    uint32_t step;
    int32_t site;
};

/* Reads by lanes of a half-warp in one step. */
struct reads {
    uint32_t next, step;
    int32_t half, site;
    uint32_t lanes;
};

struct cell {
    uint64_t place;
    uint32_t launch;
    int32_t block;            /* whose reads are in the list */
    uint32_t reads;           /* number in `pool`, 0 for none */
    struct access write;      /* thread NONE: not written */
    struct access readers[2]; /* of different blocks */
};

static uint32_t clocks[MAX_THREADS][MAX_THREADS];
static struct cell *cells;
static uint64_t capacity, used;
static struct reads *pool;
static uint32_t pool_capacity, pool_used;
static uint32_t launch_number;

void races_begin_launch(void) {
    launch_number++;
    used = 0;
    pool_used = 1;
}

void races_begin_block(void) {
    for (int t = 0; t < current_launch->threads; t++) {
        memset(clocks[t], 0, current_launch->threads * sizeof **clocks);
        clocks[t][t] = 1;
    }
}

void races_join(const int *members, int count) {
    static uint32_t seen[MAX_THREADS];
    /* Without barriers of the block, no thread sees one of another warp. */
    int first = current_launch->has_block_barriers ? 0 : members[0] / WARP * WARP;
    int last = current_launch->has_block_barriers ? (int)current_launch->threads : first + WARP;
    memcpy(seen + first, clocks[members[0]] + first, (last - first) * sizeof *seen);
    for (int i = 1; i < count; i++) {
        const uint32_t *own = clocks[members[i]];
        for (int u = first; u < last; u++) seen[u] = own[u] > seen[u] ? own[u] : seen[u];
    }
    for (int i = 0; i < count; i++) {
        memcpy(clocks[members[i]] + first, seen + first, (last - first) * sizeof *seen);
        clocks[members[i]][members[i]]++;
    }
}

static void enlarge(void) {
    struct cell *before = cells;
    uint64_t count = capacity;
    capacity = count ? 4 * count : 1 << 16;
    cells = calloc(capacity, sizeof *cells);
    for (uint64_t i = 0; i < count; i++) {
        if (before[i].launch != launch_number) continue;
        uint64_t at = before[i].place * 0x9e3779b97f4a7c15u >> 20 & (capacity - 1);
        while (cells[at].launch == launch_number) at = (at + 1) & (capacity - 1);
        cells[at] = before[i];
    }
    free(before);
}

static struct cell *find_cell(uint64_t place) {
    if (2 * used >= capacity) enlarge();
    uint64_t at = place * 0x9e3779b97f4a7c15u >> 20 & (capacity - 1);
    for (; cells[at].launch == launch_number; at = (at + 1) & (capacity - 1))
        if (cells[at].place == place) return &cells[at];
    used++;
    cells[at] = (struct cell){.place = place, .launch = launch_number, .block = BLOCK};
    cells[at].write.thread = cells[at].readers[0].thread = cells[at].readers[1].thread = NONE;
    return &cells[at];
}

static int is_seen(int thread, uint32_t step) { return step <= clocks[THREAD][thread]; }

static void race(const char *what, int block, int thread, int64_t site, int64_t other) {
    fail(site, other, "race: lane %d of block %d %s lane %d of block %d, without a barrier between",
         THREAD, BLOCK, what, thread, block);
}

static void check_write(const struct cell *cell, int kind, int64_t site) {
    const struct access *write = &cell->write;
    if (write->thread == NONE || (write->block == BLOCK && is_seen(write->thread, write->step)))
        return;
    race(kind == WRITE ? "overwrites what was written by" : "reads what was written by",
         write->block, write->thread, site, write->site);
}

static void check_reads(const struct cell *cell, int64_t site) {
    for (int i = 0; i < 2; i++)
        if (cell->readers[i].thread != NONE && cell->readers[i].block != BLOCK)
            race("overwrites what was read by", cell->readers[i].block, cell->readers[i].thread,
                 site, cell->readers[i].site);
    for (uint32_t at = cell->reads; at; at = pool[at].next)
        for (int lane = 0; lane < HALF; lane++)
            if (pool[at].lanes >> lane & 1 && !is_seen(pool[at].half * HALF + lane, pool[at].step))
                race("overwrites what was read by", BLOCK, pool[at].half * HALF + lane, site,
                     pool[at].site);
}

static void add_read(struct cell *cell, int64_t site) {
    int half = THREAD / HALF, lane = THREAD % HALF;
    uint32_t step = clocks[THREAD][THREAD];
    for (uint32_t at = cell->reads; at; at = pool[at].next)
        if (pool[at].half == half && pool[at].step == step) {
            pool[at].lanes |= 1u << lane;
            return;
        }
    for (uint32_t at = cell->reads; at; at = pool[at].next) {
        if (pool[at].half != half) continue;
        int are_seen = 1;
        for (int i = 0; i < HALF; i++)
            are_seen &= !(pool[at].lanes >> i & 1) || is_seen(half * HALF + i, pool[at].step);
        if (!are_seen) continue;
        /* Who writes after this read comes after those as well. */
        pool[at].step = step, pool[at].lanes = 1u << lane, pool[at].site = (int32_t)site;
        return;
    }
    if (pool_used == pool_capacity || !pool) {
        pool_capacity = pool_capacity ? 2 * pool_capacity : 1 << 16;
        pool = realloc(pool, pool_capacity * sizeof *pool);
    }
    pool[pool_used] = (struct reads){cell->reads, step, half, (int32_t)site, 1u << lane};
    cell->reads = pool_used++;
}

static void access_cell(uint64_t place, int is_shared, int kind, int64_t site) {
    /* The lowest bit tells memory of blocks, which is another one in each, from the card's. */
    struct cell *cell = find_cell(place << 1 | is_shared);
    struct access own = {BLOCK, THREAD, clocks[THREAD][THREAD], (int32_t)site};
    if (cell->block != BLOCK) {
        cell->block = BLOCK, cell->reads = 0;
        if (is_shared)
            cell->write.thread = cell->readers[0].thread = cell->readers[1].thread = NONE;
    }
    check_write(cell, kind, site);
    if (kind == READ) {
        add_read(cell, site);
        if (cell->readers[0].thread == NONE)
            cell->readers[0] = own;
        else if (cell->readers[1].thread == NONE && cell->readers[0].block != BLOCK)
            cell->readers[1] = own;
        return;
    }
    check_reads(cell, site);
    cell->write = own;
    cell->reads = 0;
    cell->readers[0].thread = cell->readers[1].thread = NONE;
}

static int is_within(const struct range *ranges, int64_t count, uint64_t at, uint64_t bytes) {
    for (int64_t i = 0; i < count; i++)
        if (at >= ranges[i].begin && at + bytes <= ranges[i].end) return 1;
    return 0;
}

/* Called before every access to memory that need not be the thread's own. */
void emulator_access(uint64_t at, int64_t bytes, int64_t alignment, int32_t kind, int64_t site) {
    const struct launch *launch = current_launch;
    if (is_private(at)) return;
    int is_shared = is_within(launch->shared, launch->shared_count, at, bytes);
    if (!is_shared && !is_within(launch->ranges, launch->range_count, at, bytes))
        fail(site, -1, "lane %d of block %d %s %ld bytes at address %#lx, outside of its arguments",
             THREAD, BLOCK, kind == WRITE ? "writes" : "reads", (long)bytes, (unsigned long)at);
    if (at % alignment)
        fail(site, -1, "lane %d of block %d accesses address %#lx, which is no multiple of %ld",
             THREAD, BLOCK, (unsigned long)at, (long)alignment);
    for (int64_t i = 0; i < bytes; i += launch->granule)
        access_cell((at + i) / launch->granule, is_shared, kind, site);
}
