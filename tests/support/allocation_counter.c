/* Preloaded before a program: counts allocations of 4 KiB or more between two calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEAST 4096
#define KEPT 64

static volatile int counting;
static long counted;
static size_t sizes[KEPT];

/* dlsym itself allocates, before the real functions are known. */
static char early[1 << 16];
static size_t early_used;

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);
static void (*real_free)(void *);

static void note(size_t size) {
    if (!counting || size < LEAST) return;
    long index = __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
    if (index < KEPT) sizes[index] = size;
}

static int is_early(void *address) {
    return (char *)address >= early && (char *)address < early + sizeof early;
}

static void *take_early(size_t size) {
    size_t start = (early_used + 15) & ~(size_t)15;
    if (start + size > sizeof early) return NULL;
    early_used = start + size;
    return early + start;
}

__attribute__((constructor)) static void find(void) {
    real_calloc = dlsym(RTLD_NEXT, "calloc");
    real_malloc = dlsym(RTLD_NEXT, "malloc");
    real_realloc = dlsym(RTLD_NEXT, "realloc");
    real_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    real_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    real_free = dlsym(RTLD_NEXT, "free");
}

void *malloc(size_t size) {
    note(size);
    return real_malloc ? real_malloc(size) : take_early(size);
}

void *calloc(size_t count, size_t size) {
    note(count * size);
    return real_calloc ? real_calloc(count, size) : take_early(count * size);
}

void *realloc(void *address, size_t size) {
    note(size);
    if (real_realloc && !is_early(address)) return real_realloc(address, size);
    void *moved = malloc(size);
    if (moved && address) {
        size_t rest = (size_t)(early + sizeof early - (char *)address);
        memcpy(moved, address, size < rest ? size : rest);
    }
    return moved;
}

int posix_memalign(void **address, size_t alignment, size_t size) {
    note(size);
    return real_posix_memalign ? real_posix_memalign(address, alignment, size) : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size) {
    note(size);
    return real_aligned_alloc ? real_aligned_alloc(alignment, size) : NULL;
}

void free(void *address) {
    if (real_free && !is_early(address)) real_free(address);
}

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    note(size);
    return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}

void *mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    return mmap(address, size, protection, flags, file, offset);
}

void allocation_counter_start(void) {
    counted = 0;
    counting = 1;
}

/* How many there were since the start; their sizes, as far as they were kept, go to `into`. */
long allocation_counter_stop(size_t *into) {
    counting = 0;
    memcpy(into, sizes, sizeof sizes);
    return counted;
}
