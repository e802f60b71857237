/* Emulated threads: a stack for each, barriers, shuffles, and the order in which threads run.
 *
 * A thread runs until it waits for others. A thread that waits for what never comes is named.
 */

#define _GNU_SOURCE
#include "emulator.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK_BYTES = 256 << 10, SIGNAL_STACK_BYTES = 64 << 10 };
enum state { READY, WAITING, DONE };
enum meeting { WARP_BARRIER, BLOCK_BARRIER, BUTTERFLY, INDEX, UP, DOWN };
static const char *const NAMES[] = {
    "a barrier of lanes", "a barrier of the block", "a shuffle", "a shuffle", "a shuffle",
    "a shuffle"};

struct thread {
    jmp_buf context;
    char *stack;
    int is_started;
    enum state state;
    enum meeting meeting;
    uint32_t mask;
    int64_t site;
    int source; /* lane that a shuffle reads */
    uint32_t value, result;
};

struct fault emulator_fault;
const struct launch *current_launch;
int32_t emulator_registers[4];

static struct thread threads[MAX_THREADS];
static jmp_buf scheduler;
static ucontext_t first_context, started_from;
static char signal_stack[SIGNAL_STACK_BYTES];
static uint64_t random_state;

void fail(int64_t site, int64_t other_site, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(emulator_fault.text, sizeof emulator_fault.text, format, arguments);
    va_end(arguments);
    emulator_fault.site = site;
    emulator_fault.other_site = other_site;
    _longjmp(scheduler, 2);
}

static void invalid_access(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    fail(-1, -1, "lane %d of block %d accesses address %p, which no argument has, or not aligned",
         THREAD, BLOCK, info->si_addr);
}

int is_private(uint64_t address) {
    if (current_launch->has_barriers)
        return address - (uint64_t)threads[THREAD].stack < STACK_BYTES;
    return address - (uint64_t)__builtin_frame_address(0) < STACK_BYTES;
}

static void leave(void) {
    if (!_setjmp(threads[THREAD].context)) _longjmp(scheduler, 1);
}

static void run_thread(void) {
    for (;;) {
        current_launch->entry(current_launch->slots);
        threads[THREAD].state = DONE;
        leave();
    }
}

/* Run a thread until it waits or ends; returns 0 if it has failed. */
static int resume(int number) {
    struct thread *own = &threads[number];
    THREAD = number;
    int from = _setjmp(scheduler);
    if (from) return from == 1;
    if (own->is_started) _longjmp(own->context, 1);
    if (own->stack == NULL)
        own->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    own->is_started = 1;
    getcontext(&first_context);
    first_context.uc_stack.ss_sp = own->stack;
    first_context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&first_context, run_thread, 0);
    swapcontext(&started_from, &first_context);
    return 0;
}

/* Members of the meeting at which a thread waits; 0 while some have not come. */
static int gathered(const struct thread *own, int *members) {
    int is_block = own->meeting == BLOCK_BARRIER, first = is_block ? 0 : THREAD / WARP * WARP;
    int last = is_block ? (int)current_launch->threads : first + WARP, count = 0;
    for (int i = first; i < last; i++) {
        if (!is_block && !(own->mask >> (i - first) & 1)) continue;
        const struct thread *each = &threads[i];
        if (i >= current_launch->threads || each->state != WAITING ||
            each->meeting != own->meeting || each->mask != own->mask)
            return 0;
        members[count++] = i;
    }
    return count;
}

static void meet(enum meeting meeting, uint32_t mask, int64_t site) {
    static int members[MAX_THREADS];
    struct thread *own = &threads[THREAD];
    if (meeting != BLOCK_BARRIER && !(mask >> THREAD % WARP & 1))
        fail(site, -1, "lane %d of block %d is not in the mask %#x of its own meeting", THREAD,
             BLOCK, mask);
    own->state = WAITING, own->meeting = meeting, own->mask = mask, own->site = site;
    int count = gathered(own, members);
    if (!count) {
        leave();
        return;
    }
    for (int i = 0; i < count; i++) {
        struct thread *each = &threads[members[i]];
        const struct thread *first = &threads[members[i] / WARP * WARP];
        each->state = READY;
        if (meeting == BLOCK_BARRIER && each->site != first->site)
            fail(each->site, first->site,
                 "lane %d of block %d waits at another barrier than its warp's first lane",
                 members[i], BLOCK);
        if (meeting < BUTTERFLY) continue;
        if (!(mask >> each->source % WARP & 1))
            fail(site, -1, "lane %d of block %d shuffles from lane %d, which is not in mask %#x",
                 members[i], BLOCK, each->source % WARP, mask);
        each->result = threads[each->source].value;
    }
    /* A shuffle orders no accesses to memory. */
    if (meeting < BUTTERFLY && current_launch->granule) races_join(members, count);
}

void emulator_sync(uint32_t mask, int64_t site) { meet(WARP_BARRIER, mask, site); }

void emulator_barrier(uint32_t number, int64_t site) {
    (void)number;
    meet(BLOCK_BARRIER, 0, site);
}

static uint32_t shuffle(enum meeting meeting, uint32_t mask, uint32_t value, int32_t other,
                        int32_t clamp, int64_t site) {
    int lane = THREAD % WARP, segment = clamp >> 8 & 31;
    int last = (lane & segment) | (clamp & 31 & ~segment);
    int from = meeting == BUTTERFLY ? lane ^ other
               : meeting == INDEX   ? (lane & segment) | (other & 31 & ~segment)
               : meeting == UP      ? lane - other
                                    : lane + other;
    int is_near = meeting == UP ? from >= last : from <= last;
    threads[THREAD].source = THREAD - lane + (is_near ? from : lane);
    threads[THREAD].value = value;
    meet(meeting, mask, site);
    return threads[THREAD].result;
}

#define SHUFFLE(mode, meeting)                                                                     \
    uint32_t emulator_##mode##_i32(uint32_t mask, uint32_t value, int32_t other, int32_t clamp,   \
                                   int64_t site) {                                                \
        return shuffle(meeting, mask, value, other, clamp, site);                                 \
    }                                                                                             \
    float emulator_##mode##_f32(uint32_t mask, float value, int32_t other, int32_t clamp,         \
                                int64_t site) {                                                   \
        uint32_t bits;                                                                            \
        memcpy(&bits, &value, sizeof bits);                                                       \
        bits = shuffle(meeting, mask, bits, other, clamp, site);                                  \
        memcpy(&value, &bits, sizeof bits);                                                       \
        return value;                                                                             \
    }
SHUFFLE(bfly, BUTTERFLY)
SHUFFLE(idx, INDEX)
SHUFFLE(up, UP)
SHUFFLE(down, DOWN)

static uint64_t random_below(uint64_t bound) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % bound;
}

/* Fill in the numbers from 0 to count - 1 in the launch's order. */
static void put_in_order(int *order, int count) {
    for (int i = 0; i < count; i++) {
        int place = current_launch->order == 2 ? (int)random_below(i + 1) : i;
        order[i] = order[place];
        order[place] = current_launch->order == 1 ? count - 1 - i : i;
    }
}

static void describe_deadlock(void) {
    struct fault *fault = &emulator_fault;
    int first = -1, other = -1;
    for (int i = 0; i < current_launch->threads; i++) {
        const struct thread *each = &threads[i];
        if (each->state != WAITING) continue;
        if (first < 0) first = i;
        if (each->meeting != threads[first].meeting || each->mask != threads[first].mask) other = i;
    }
    const struct thread *waits = &threads[first];
    int used = snprintf(fault->text, sizeof fault->text,
                        "deadlock: lane %d of block %d waits at %s, mask %#x", first, BLOCK,
                        NAMES[waits->meeting], waits->mask);
    fault->site = waits->site, fault->other_site = -1;
    if (other >= 0) {
        snprintf(fault->text + used, sizeof fault->text - used, "; lane %d at %s, mask %#x", other,
                 NAMES[threads[other].meeting], threads[other].mask);
        fault->other_site = threads[other].site;
    } else
        snprintf(fault->text + used, sizeof fault->text - used, "; others have ended");
}

/* Run all threads of a block; returns 0 after a fault. */
static int run_block(int number) {
    static int order[MAX_THREADS];
    int count = (int)current_launch->threads, left = count;
    BLOCK = number;
    for (int64_t i = 0; i < current_launch->shared_count; i++) {
        const struct range *each = &current_launch->shared[i];
        memset((void *)each->begin, 0xff, each->end - each->begin);
    }
    if (current_launch->granule) races_begin_block();
    for (int i = 0; i < count; i++) threads[i].state = READY;
    while (left > 0) {
        int is_moving = 0;
        put_in_order(order, count);
        for (int i = 0; i < count; i++) {
            if (threads[order[i]].state != READY) continue;
            is_moving = 1;
            if (!resume(order[i])) return 0;
            left -= threads[order[i]].state == DONE;
        }
        if (!is_moving) {
            describe_deadlock();
            return 0;
        }
    }
    return 1;
}

/* Run all threads of a block that never wait, on the caller's stack; returns 0 after a fault. */
static int run_straight(int number) {
    static int order[MAX_THREADS];
    BLOCK = number;
    if (current_launch->granule) races_begin_block();
    put_in_order(order, (int)current_launch->threads);
    if (_setjmp(scheduler)) return 0;
    for (int i = 0; i < current_launch->threads; i++) {
        THREAD = order[i];
        current_launch->entry(current_launch->slots);
    }
    return 1;
}

/* Run a launch; returns 0 after a fault, which is then in emulator_fault. */
int emulator_run(const struct launch *launch) {
    struct sigaction action = {.sa_sigaction = invalid_access,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    struct sigaction before, bus_before;
    stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack}, stack_before;
    current_launch = launch;
    emulator_registers[1] = (int32_t)launch->threads;
    emulator_registers[3] = (int32_t)launch->grid;
    random_state = launch->seed * 2654435769u + 1;
    sigaltstack(&stack, &stack_before);
    sigaction(SIGSEGV, &action, &before);
    sigaction(SIGBUS, &action, &bus_before);
    if (launch->granule) races_begin_launch();
    int is_right = 1;
    for (int64_t i = 0; i < launch->grid && is_right; i++) {
        int number = (int)(launch->order == 1 ? launch->grid - 1 - i : i);
        is_right = launch->has_barriers ? run_block(number) : run_straight(number);
    }
    /* Threads that a fault has left are begun anew. */
    for (int i = 0; i < MAX_THREADS && !is_right; i++) threads[i].is_started = 0;
    sigaction(SIGBUS, &bus_before, NULL);
    sigaction(SIGSEGV, &before, NULL);
    sigaltstack(&stack_before, NULL);
    return is_right;
}
