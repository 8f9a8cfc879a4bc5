/*
 * asi_threads DIR OPERATIONS: threads share one stream. Each record is read once and whole, each is written whole, sallocAt is one step,
 * and of many frees of one region one is.
 */
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define THREADS 4
#define RECORD 64

static char path[4096];
static long operations;
static Stream *shared;
static unsigned char *seen;
static int freed;
static void *contended;
static pthread_barrier_t barrier;

static void together(void *(*of)(void *))
{
    pthread_t threads[THREADS];
    long n;
    for (n = 0; n < THREADS; n++)
        SAME(pthread_create(&threads[n], NULL, of, (void *)n), 0);
    for (n = 0; n < THREADS; n++)
        SAME(pthread_join(threads[n], NULL), 0);
}

static Stream *opens(int flags)
{
    int error = 1;
    Stream *s = sopen(path, flags, 0644, &error);
    CHECK(s != NULL, "%d", error);
    return s;
}

static void mark(unsigned char *record, long thread, long n)
{
    memset(record, (int)('a' + thread), RECORD);
    memcpy(record, &n, sizeof n);
}

/* Two regions at a time, freed the other way round. */
static void *writes(void *thread)
{
    long n, length;
    for (n = 0; n < operations; n += 2) {
        unsigned char *one, *two;
        length = RECORD;
        one = salloc(shared, &length);
        two = salloc(shared, &length);
        CHECK(one && two, "%ld", length);
        mark(one, (long)thread, n);
        mark(two, (long)thread, n + 1);
        SAME(sfree(shared, two), 0);
        SAME(sfree(shared, one), 0);
    }
    return NULL;
}

/* Two records that are one, under the lock. */
static void *writes_pairs(void *thread)
{
    long n, m, length = RECORD;
    for (n = 0; n < operations; n += 2) {
        SAME(LockAsfStream(shared), 0);
        for (m = n; m < n + 2; m++) {
            unsigned char *record = u_salloc(shared, &length);
            CHECK(record != NULL, "%ld", length);
            mark(record, (long)thread, m);
            SAME(u_sfree(shared, record), 0);
        }
        SAME(UnlockAsfStream(shared), 0);
    }
    return NULL;
}

static void *reads(void *unused)
{
    for (;;) {
        long length = RECORD, n;
        unsigned char *record = salloc(shared, &length);
        if (record == NULL) {
            SAME(length, 0);
            return unused;
        }
        SAME(length, RECORD);
        memcpy(&n, record, sizeof n);
        CHECK(record[RECORD - 1] >= 'a' && record[RECORD - 1] < 'a' + THREADS && n >= 0 && n < operations, "%ld", n);
        __atomic_fetch_add(&seen[(record[RECORD - 1] - 'a') * operations + n], 1, __ATOMIC_RELAXED);
        SAME(sfree(shared, record), 0);
    }
}

static void *reads_places(void *thread)
{
    long n, length, all = THREADS * operations;
    for (n = 0; n < operations; n++) {
        long record = (n * 7919 + (long)thread * 31) % all, at[2];
        unsigned char *region;
        length = RECORD;
        region = sallocAt(shared, &length, record * RECORD, SEEK_SET);
        CHECK(region != NULL, "%ld", length);
        memcpy(at, region, sizeof at[0]);
        SAME(at[0], record);
        SAME(sfree(shared, region), 0);
    }
    return NULL;
}

static void *frees(void *unused)
{
    long n;
    for (n = 0; n < operations; n++) {
        int waited = pthread_barrier_wait(&barrier);
        if (waited == PTHREAD_BARRIER_SERIAL_THREAD) {
            long length = RECORD;
            contended = salloc(shared, &length);
            CHECK(contended != NULL, "%ld", length);
        }
        pthread_barrier_wait(&barrier);
        switch (sfree(shared, contended)) {
        case 0:
            __atomic_fetch_add(&freed, 1, __ATOMIC_RELAXED);
            break;
        case -EINVAL:
            break;
        default:
            CHECK(0, "");
        }
    }
    return unused;
}

/* A stream of the thesis that becomes one with regions under the hands of all. */
static void *becomes(void *unused)
{
    char bytes[RECORD];
    long n, length;
    for (n = 0; n < operations; n++) {
        void *region;
        SAME(swrite(shared, memset(bytes, 'x', RECORD), RECORD), RECORD);
        length = RECORD;
        region = salloc(shared, &length);
        CHECK(region != NULL, "%ld", length);
        memset(region, 'x', RECORD);
        SAME(sfree(shared, region), 0);
    }
    return unused;
}

static void all_once(void)
{
    long n;
    seen = calloc(THREADS, (size_t)operations);
    CHECK(seen != NULL, "");
    shared = opens(O_RDONLY);
    together(reads);
    SAME(sclose(shared), 0);
    for (n = 0; n < THREADS * operations; n++)
        SAME(seen[n], 1);
    free(seen);
}

int main(int argc, char **argv)
{
    long n, length;
    char before = 0;
    int fd;
    CHECK(argc == 3, "wrong use");
    snprintf(path, sizeof path, "%s/shared", argv[1]);
    operations = atol(argv[2]);

    shared = opens(O_WRONLY | O_CREAT | O_TRUNC);
    together(writes);
    SAME(sclose(shared), 0);
    all_once();

    shared = opens(O_WRONLY | O_CREAT | O_TRUNC);
    together(writes_pairs);
    SAME(sclose(shared), 0);
    all_once();
    shared = opens(O_RDONLY);
    for (n = 0; n < THREADS * operations; n++) {
        unsigned char *record;
        length = RECORD;
        record = salloc(shared, &length);
        CHECK(record != NULL, "%ld", length);
        CHECK(n % 2 == 0 || record[RECORD - 1] == before, "%ld", n);
        before = (char)record[RECORD - 1];
        SAME(sfree(shared, record), 0);
    }
    SAME(sclose(shared), 0);

    shared = opens(O_RDWR | O_TRUNC);
    for (n = 0; n < THREADS * operations; n++) {
        char record[RECORD] = "";
        memcpy(record, &n, sizeof n);
        SAME(swrite(shared, record, RECORD), RECORD);
    }
    SAME(set_stream_mode(shared, SA_READ), 0);
    together(reads_places);
    SAME(set_stream_mode(shared, SA_WRITE), 0);
    SAME(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    together(frees);
    SAME(freed, operations);
    SAME(sclose(shared), 0);

    fd = open(path, O_WRONLY | O_TRUNC);
    CHECK(fd >= 0, "%d", errno);
    shared = stream(fd, 0, 0);
    CHECK(shared != NULL, "%d", errno);
    together(becomes);
    SAME(sclose(shared), 0);
    SAME(lseek(fd, 0, SEEK_END), 2 * RECORD * THREADS * operations);
    SAME(close(fd), 0);
    return 0;
}
