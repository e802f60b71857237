/* Preloaded before a program: makes one file operation under a folder fail, as a disk would.
 *
 * failing_files_arm(folder, k, kind): of the operations that follow, number k (from 1) on names
 * that contain `folder`, or on files opened there, fails: kind 0 with ENOSPC, 1 with EIO; kinds 2
 * and 3 write only half of what they are given, and after 2 every write fails with ENOSPC. k = 0
 * only counts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define DESCRIPTORS 4096
#define KEPT 16

static char folder[4096];
static long target, seen;
static int kind, armed, full;
static char operation[KEPT];
static char mine[DESCRIPTORS];

void failing_files_arm(const char *under, long k, int how) {
    strncpy(folder, under, sizeof folder - 1);
    target = k, seen = 0, kind = how, full = 0, armed = 1;
    operation[0] = 0;
}

/* How many operations there were; what failed is in `name`, at least 16 bytes. */
long failing_files_disarm(char *name) {
    armed = 0;
    memcpy(name, operation, KEPT);
    return seen;
}

static int known(int descriptor) {
    return descriptor >= 0 && descriptor < DESCRIPTORS && mine[descriptor];
}

static int counts(int directory, const char *path) {
    return armed && path && (strstr(path, folder) || (path[0] != '/' && known(directory)));
}

/* Whether this operation is the one that fails. */
static int fails(const char *name) {
    if (++seen != target) return 0;
    strncpy(operation, name, KEPT - 1);
    errno = kind == 1 ? EIO : ENOSPC;
    return 1;
}

#define REAL(name) (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int remember(int descriptor, int is_mine) {
    if (descriptor >= 0 && descriptor < DESCRIPTORS) mine[descriptor] = (char)is_mine;
    return descriptor;
}

#define OPEN(name)                                                        \
    int name(const char *path, int flags, ...) {                          \
        va_list rest;                                                     \
        va_start(rest, flags);                                            \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                     \
        int is_mine = counts(-1, path);                                   \
        if (is_mine && fails("open")) return -1;                          \
        return remember((REAL(name))(path, flags, mode), is_mine);        \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                      \
    int name(int directory, const char *path, int flags, ...) {           \
        va_list rest;                                                     \
        va_start(rest, flags);                                            \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                     \
        int is_mine = counts(directory, path);                            \
        if (is_mine && fails("openat")) return -1;                        \
        return remember((REAL(name))(directory, path, flags, mode), is_mine); \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int descriptor) {
    remember(descriptor, 0);
    return (REAL(close))(descriptor);
}

ssize_t write(int descriptor, const void *data, size_t size) {
    if (armed && known(descriptor)) {
        if (full) {
            errno = ENOSPC;
            return -1;
        }
        if (fails("write")) {
            if (kind < 2) return -1;
            full = kind == 2;
            size = (size + 1) / 2;
        }
    }
    return (REAL(write))(descriptor, data, size);
}

int fsync(int descriptor) {
    if (armed && known(descriptor) && fails("fsync")) return -1;
    return (REAL(fsync))(descriptor);
}

int rename(const char *from, const char *to) {
    if (counts(-1, to) && fails("rename")) return -1;
    return (REAL(rename))(from, to);
}

int mkdir(const char *path, mode_t mode) {
    if (counts(-1, path) && fails("mkdir")) return -1;
    return (REAL(mkdir))(path, mode);
}

int unlink(const char *path) {
    if (counts(-1, path) && fails("unlink")) return -1;
    return (REAL(unlink))(path);
}

int unlinkat(int directory, const char *path, int flags) {
    if (counts(directory, path) && fails("unlinkat")) return -1;
    return (REAL(unlinkat))(directory, path, flags);
}

int rmdir(const char *path) {
    if (counts(-1, path) && fails("rmdir")) return -1;
    return (REAL(rmdir))(path);
}
