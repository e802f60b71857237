/* Preloaded before a program: records the calls that change or sync files under a folder.
 *
 * RECORDED_FOLDER: the folder, absolute. RECORDED_TRACE: file to which each successful call is
 * appended as a header (see `struct header`), two paths and the written bytes. Only one call runs
 * at a time, so that the order in the file is the order of the calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define DESCRIPTORS 4096

struct __attribute__((packed)) header {
    char call; /* o open, w write, t truncate, s fsync, r rename, u unlink, d rmdir, m mkdir, ! mark */
    int32_t process, descriptor;
    int64_t number; /* flags of open, offset of write, size of truncate */
    int32_t sizes[3];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *folder;
static int trace = -1;
static char mine[DESCRIPTORS];

#define REAL(name) (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("RECORDED_TRACE");
    folder = getenv("RECORDED_FOLDER");
    if (path && folder)
        trace = (REAL(open))(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

static void record(char call, int descriptor, int64_t number, const char *path, const char *other,
                   const void *data, size_t size) {
    struct header header = {call, getpid(), descriptor, number,
                            {(int32_t)strlen(path), (int32_t)strlen(other), (int32_t)size}};
    struct iovec parts[] = {{&header, sizeof header},
                            {(void *)path, strlen(path)},
                            {(void *)other, strlen(other)},
                            {(void *)data, size}};
    if (writev(trace, parts, 4) < 0) abort();
}

/* Write the absolute form of a path to `out`; return whether it is in the recorded folder. */
static int resolve(int directory, const char *path, char *out) {
    char base[PATH_MAX] = "", link[64];
    if (trace < 0 || !path) return 0;
    if (path[0] != '/') {
        ssize_t size;
        if (directory == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        if ((size = readlink(link, base, sizeof base - 2)) < 0) return 0;
        base[size] = '/', base[size + 1] = 0;
    }
    if (snprintf(out, PATH_MAX, "%s%s", base, path) >= PATH_MAX) abort();
    size_t size = strlen(folder);
    return strncmp(out, folder, size) == 0 && (out[size] == '/' || out[size] == 0);
}

static int known(int descriptor) {
    return trace >= 0 && descriptor >= 0 && descriptor < DESCRIPTORS && mine[descriptor];
}

void recorded_files_mark(const char *text) {
    pthread_mutex_lock(&mutex);
    if (trace >= 0) record('!', -1, 0, text, "", "", 0);
    pthread_mutex_unlock(&mutex);
}

#define OPENS(name, directory, declared, passed)                                          \
    int name(declared const char *path, int flags, ...) {                                \
        va_list rest;                                                                    \
        va_start(rest, flags);                                                           \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(rest, mode_t) : 0;      \
        va_end(rest);                                                                    \
        char full[PATH_MAX];                                                             \
        pthread_mutex_lock(&mutex);                                                      \
        int is_mine = resolve(directory, path, full);                                    \
        int descriptor = (REAL(name))(passed path, flags, mode);                         \
        if (descriptor >= 0 && descriptor < DESCRIPTORS) mine[descriptor] = (char)is_mine; \
        if (descriptor >= 0 && is_mine) record('o', descriptor, flags, full, "", "", 0); \
        pthread_mutex_unlock(&mutex);                                                    \
        return descriptor;                                                               \
    }
#define COMMA ,
OPENS(open, AT_FDCWD, , )
OPENS(open64, AT_FDCWD, , )
OPENS(openat, at, int at COMMA, at COMMA)
OPENS(openat64, at, int at COMMA, at COMMA)

int close(int descriptor) {
    if (descriptor >= 0 && descriptor < DESCRIPTORS) mine[descriptor] = 0;
    return (REAL(close))(descriptor);
}

#define ON_DESCRIPTOR(result, name, declared, passed, call, number, data, size)    \
    result name(int descriptor declared) {                                         \
        pthread_mutex_lock(&mutex);                                                \
        result done = (REAL(name))(descriptor passed);                             \
        if (done >= 0 && known(descriptor))                                        \
            record(call, descriptor, number, "", "", data, (size_t)(size));        \
        pthread_mutex_unlock(&mutex);                                              \
        return done;                                                               \
    }
#define WRITTEN COMMA const void *data COMMA size_t size
ON_DESCRIPTOR(ssize_t, write, WRITTEN, COMMA data COMMA size, 'w',
              lseek(descriptor, 0, SEEK_CUR) - done, data, done)
ON_DESCRIPTOR(ssize_t, pwrite, WRITTEN COMMA off_t at, COMMA data COMMA size COMMA at, 'w', at, data,
              done)
ON_DESCRIPTOR(ssize_t, pwrite64, WRITTEN COMMA off64_t at, COMMA data COMMA size COMMA at, 'w', at,
              data, done)
ON_DESCRIPTOR(int, ftruncate, COMMA off_t size, COMMA size, 't', size, "", 0)
ON_DESCRIPTOR(int, ftruncate64, COMMA off64_t size, COMMA size, 't', size, "", 0)
ON_DESCRIPTOR(int, fsync, , , 's', 0, "", 0)
ON_DESCRIPTOR(int, fdatasync, , , 's', 0, "", 0)

#define ON_NAME(name, declared, directory, path, passed, kind)         \
    int name(declared) {                                               \
        char full[PATH_MAX];                                           \
        pthread_mutex_lock(&mutex);                                    \
        int is_mine = resolve(directory, path, full);                  \
        int done = (REAL(name))(passed);                               \
        if (done == 0 && is_mine) record(kind, -1, 0, full, "", "", 0); \
        pthread_mutex_unlock(&mutex);                                  \
        return done;                                                   \
    }
ON_NAME(unlink, const char *path, AT_FDCWD, path, path, 'u')
ON_NAME(rmdir, const char *path, AT_FDCWD, path, path, 'd')
ON_NAME(unlinkat, int at COMMA const char *path COMMA int flags, at, path, at COMMA path COMMA flags,
        (flags & AT_REMOVEDIR) ? 'd' : 'u')
ON_NAME(mkdir, const char *path COMMA mode_t mode, AT_FDCWD, path, path COMMA mode, 'm')

int rename(const char *from, const char *to) {
    char source[PATH_MAX], target[PATH_MAX];
    pthread_mutex_lock(&mutex);
    int is_mine = resolve(AT_FDCWD, from, source) | resolve(AT_FDCWD, to, target);
    int done = (REAL(rename))(from, to);
    if (done == 0 && is_mine) record('r', -1, 0, source, target, "", 0);
    pthread_mutex_unlock(&mutex);
    return done;
}
