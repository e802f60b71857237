/* Threads of a GPU's block on one thread of the CPU: the parts of the emulator share these. */

#ifndef EMULATOR_H
#define EMULATOR_H

#include <stdint.h>

enum { MAX_THREADS = 1024, WARP = 32, HALF = 16 };

/* Range of bytes that a kernel may read and write. */
struct range {
    uint64_t begin, end;
};

/* One launch. The layout is that of `kernel._Launch`. */
struct launch {
    void (*entry)(int64_t *slots);
    int64_t *slots;
    int64_t grid, threads;
    int64_t order; /* 0 forward, 1 reverse, 2 random */
    uint64_t seed;
    int64_t has_barriers;       /* without them a thread runs to its end at once */
    int64_t has_block_barriers;
    int64_t granule;            /* bytes of the smallest access, a power of two */
    const struct range *shared; /* memory of a block */
    int64_t shared_count;
    const struct range *ranges; /* memory of the card */
    int64_t range_count;
};

/* What is wrong, with the instructions' numbers, -1 for none. The layout is `kernel._Fault`. */
struct fault {
    char text[400];
    int64_t site, other_site;
};

extern struct fault emulator_fault;
extern const struct launch *current_launch;

/* Special registers of the running thread, in the order in which `translation` reads them. */
extern int32_t emulator_registers[4];
#define THREAD (emulator_registers[0])
#define BLOCK (emulator_registers[2])

/* Record a fault and leave the running thread, whose launch ends; printf's format. */
__attribute__((noreturn, format(printf, 3, 4))) void
fail(int64_t site, int64_t other_site, const char *format, ...);

/* Return whether an address is in the running thread's own memory. */
int is_private(uint64_t address);

void races_begin_launch(void);
void races_begin_block(void);
/* All threads of `members` have met: what one did before, all see after. */
void races_join(const int *members, int count);

#endif
