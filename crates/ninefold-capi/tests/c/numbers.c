/*
 * numbers DIR TIMES: threads that are at descriptors of streams at once, in a process that has just begun with them, and in children of one that is in the middle of
 * it; and threads that write and flush by one stream.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

enum { THREADS = 8, RECORD = 3000, RECORDS = 3000 };

static char path[4096];
static pthread_barrier_t together;
static int over;
static long long written;

static Stream *opens(const char *name, int flags)
{
    int error = 0;
    Stream *s = sopen(name, flags, 0600, &error);
    CHECK(s != NULL, "%d", error);
    return s;
}

static void joined(pthread_t *threads, int count)
{
    int n;
    for (n = 0; n < count; n++)
        SAME(pthread_join(threads[n], NULL), 0);
}

/* Numbers are given, used and taken away. */
static void *numbers(void *s)
{
    int n, fd, twin;
    pthread_barrier_wait(&together);
    for (n = 0; n < 20; n++) {
        fd = sfileno((Stream *)s);
        CHECK(fd >= NF_FD_MIN, "%d", fd);
        twin = as_dup(fd);
        CHECK(twin > NF_FD_MIN, "%d", twin);
        SAME(as_write(twin, "x", 1), 1);
        SAME(as_close(twin), 0);
        SAME(as_close(fd), 0);
    }
    return NULL;
}

/* In a child, whose end tells. */
static void child(int count)
{
    pthread_t threads[THREADS];
    Stream *streams[THREADS];
    int n, status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        SAME(pthread_barrier_init(&together, NULL, (unsigned)count), 0);
        for (n = 0; n < count; n++) {
            streams[n] = opens("/dev/null", O_WRONLY);
            SAME(pthread_create(&threads[n], NULL, numbers, streams[n]), 0);
        }
        joined(threads, count);
        for (n = 0; n < count; n++)
            SAME(sclose(streams[n]), 0);
        _exit(0);
    }
    CHECK(pid > 0, "%d", errno);
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
}

static void *busy(void *of)
{
    int fd = *(int *)of, twin;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        twin = as_dup(fd);
        CHECK(twin > NF_FD_MIN, "%d", twin);
        SAME(as_close(twin), 0);
    }
    return NULL;
}

/* Without the flush of one the other's bytes are not on their way, and with it they are no region of the program's. */
static void *flushes(void *s)
{
    static const char record[RECORD];
    int n;
    pthread_barrier_wait(&together);
    for (n = 0; n < RECORDS; n++) {
        SAME(sfwrite(record, RECORD, 1, (Stream *)s), 1);
        SAME(sfflush((Stream *)s), 0);
    }
    return NULL;
}

static void *appends(void *of)
{
    static const char record[RECORD];
    long long told;
    int n;
    struct stat st;
    pthread_barrier_wait(&together);
    for (n = 0; n < RECORDS; n++) {
        SAME(as_write(*(int *)of, record, RECORD), RECORD);
        /* All that either was told is there. */
        told = __atomic_add_fetch(&written, RECORD, __ATOMIC_SEQ_CST);
        SAME(stat(path, &st), 0);
        CHECK(st.st_size >= told, "%lld, %lld", (long long)st.st_size, told);
    }
    return NULL;
}

static void two(void *(*what)(void *), int flags, void *(*given)(Stream *))
{
    pthread_t threads[2];
    struct stat st;
    Stream *s = opens(path, O_WRONLY | O_CREAT | O_TRUNC | flags);
    int n;
    SAME(pthread_barrier_init(&together, NULL, 2), 0);
    for (n = 0; n < 2; n++)
        SAME(pthread_create(&threads[n], NULL, what, given(s)), 0);
    joined(threads, 2);
    SAME(sclose(s), 0);
    SAME(stat(path, &st), 0);
    SAME(st.st_size, 2 * RECORDS * RECORD);
}

static void *itself(Stream *s) { return s; }

static void *number_of(Stream *s)
{
    static int number;
    number = sfileno(s);
    CHECK(number >= NF_FD_MIN, "%d", number);
    return &number;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    Stream *s;
    long n, times;
    int fd;
    CHECK(argc == 3, "wrong use");
    snprintf(path, sizeof path, "%s/numbers", argv[1]);
    times = atol(argv[2]);
    /* None was given yet, in each of these. */
    for (n = 0; n < times; n++)
        child(THREADS);
    two(flushes, 0, itself);
    two(appends, O_APPEND, number_of);
    s = opens("/dev/null", O_WRONLY);
    fd = sfileno(s);
    for (n = 0; n < 2; n++)
        SAME(pthread_create(&threads[n], NULL, busy, &fd), 0);
    for (n = 0; n < times; n++)
        child(2);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    joined(threads, 2);
    SAME(sclose(s), 0);
    return 0;
}
