// Preloaded into programs: the time of day is an hour behind while the file LEAP_FILE exists. Ray's own programs, told
// by a RAY_ variable, keep theirs: the kernel's timers do not leap, and what waits until a time of day would hang.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static int leaps;

__attribute__((constructor)) static void look(void) {
    leaps = 1;
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "RAY_", 4) == 0) leaps = 0;
}

static time_t behind_s(void) {
    const char *file = leaps ? getenv("LEAP_FILE") : NULL;
    int before = errno;
    time_t found = file && access(file, F_OK) == 0 ? 3600 : 0;
    errno = before;
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*given)(clockid_t, struct timespec *);
    if (!given) given = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = given(clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec -= behind_s();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
