/*
 * inherited DIRECTORY: what a child of fork(2) has of its parent's. Descriptors of files here have one offset in both, as of read(2) and write(2); what was
 * written to a stream and flushed before a fork is written once, and what was not flushed by both.
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

enum { RECORDS = 20000 };

struct record {
    int number;
    int writer;
};

static char path[4096];

static int open_here(int flags)
{
    int fd = as_open(path, flags, 0644);
    CHECK(fd >= 0 && fd < NF_FD_MIN, "%d", fd);
    return fd;
}

static void wait_for(pid_t pid)
{
    int status = 0;
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
}

/* Reads to the end, and counts what came. */
static void reads(int fd, int *seen)
{
    struct record record;
    long count;
    while ((count = as_read(fd, &record, sizeof record)) != 0) {
        SAME(count, (long)sizeof record);
        __atomic_fetch_add(&seen[record.number], 1, __ATOMIC_RELAXED);
    }
}

static void writes(int fd, int writer)
{
    int n;
    for (n = 0; n < RECORDS / 2; n++) {
        struct record record = { n, writer };
        SAME(as_write(fd, &record, sizeof record), (long)sizeof record);
    }
}

/* By turns, and at the same time. */
static void one_offset(void)
{
    int fd = open_here(O_RDWR | O_CREAT | O_TRUNC), twin = as_dup(fd), n, counts[2] = { 0, 0 };
    int there[2], back[2];
    struct record record;
    char byte;
    pid_t pid;
    int *seen = mmap(NULL, RECORDS * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED && twin >= 0, "%d", errno);
    SAME(pipe(there), 0);
    SAME(pipe(back), 0);

    pid = fork();
    CHECK(pid >= 0, "%d", errno);
    writes(pid == 0 ? twin : fd, pid == 0);
    if (pid == 0)
        _exit(0);
    wait_for(pid);
    SAME(as_lseek(twin, 0, SEEK_CUR), (long long)(RECORDS * sizeof record));
    SAME(as_lseek(twin, 0, SEEK_SET), 0);
    while (as_read(fd, &record, sizeof record) == (long)sizeof record) {
        /* Of each writer in its order, and whole. */
        CHECK(record.writer == 0 || record.writer == 1, "%d", record.writer);
        SAME(record.number, counts[record.writer]);
        counts[record.writer]++;
    }
    SAME(counts[0], RECORDS / 2);
    SAME(counts[1], RECORDS / 2);

    SAME(as_lseek(fd, 0, SEEK_SET), 0);
    for (n = 0; n < RECORDS; n++) {
        record.number = n;
        SAME(as_write(fd, &record, sizeof record), (long)sizeof record);
    }
    SAME(as_lseek(fd, 0, SEEK_SET), 0);
    pid = fork();
    CHECK(pid >= 0, "%d", errno);
    for (n = 0; n < 100; n++) {
        if (pid == 0) {
            SAME(read(there[0], &byte, 1), 1);
            SAME(as_read(twin, &record, sizeof record), (long)sizeof record);
            SAME(record.number, 2 * n + 1);
            SAME(write(back[1], "", 1), 1);
        } else {
            SAME(as_read(fd, &record, sizeof record), (long)sizeof record);
            SAME(record.number, 2 * n);
            SAME(write(there[1], "", 1), 1);
            SAME(read(back[0], &byte, 1), 1);
        }
        __atomic_fetch_add(&seen[record.number], 1, __ATOMIC_RELAXED);
    }
    reads(pid == 0 ? twin : fd, seen);
    if (pid == 0)
        _exit(0);
    wait_for(pid);
    for (n = 0; n < RECORDS; n++)
        SAME(seen[n], 1);
    SAME(as_close(fd), 0);
    SAME(as_close(twin), 0);
}

/* A stream that writes to a pipe, whose other end is `*out`. */
static Stream *into_a_pipe(int *out)
{
    int ends[2], error = 0;
    Stream *s;
    SAME(pipe(ends), 0);
    s = sdopen(ends[1], &error);
    CHECK(s != NULL, "%d", error);
    SAME(close(ends[1]), 0);
    *out = ends[0];
    return s;
}

/* All that came, when every end to write is closed. */
static void came(int in, const char *wanted)
{
    char all[100];
    size_t count = 0;
    ssize_t n;
    while ((n = read(in, all + count, sizeof all - 1 - count)) > 0)
        count += (size_t)n;
    SAME(n, 0);
    all[count] = 0;
    CHECK(strcmp(all, wanted) == 0, "\"%s\"", all);
    SAME(close(in), 0);
}

/* By every way to write, in line and not. */
static void flushed_before(void)
{
    int in;
    long length = 2;
    char *region;
    pid_t pid;
    Stream *s = into_a_pipe(&in);
    SAME(sputs("parent ", s) >= 0, 1);
    SAME(sflush(s), 0);
    pid = fork();
    CHECK(pid >= 0, "%d", errno);
    if (pid == 0) {
        alarm(30);
        region = (char *)salloc(s, &length);
        CHECK(region != NULL && length == 2, "%ld", length);
        memcpy(region, "ch", 2);
        SAME(sfree(s, region), 0);
        SAME(sputc('i', s), 'i');
        SAME(swrite(s, "ld", 2), 2);
        SAME(as_write(sfileno(s), " ", 1), 1);
        SAME(sflush(s), 0);
        /* Its own child has nothing to write. */
        pid = fork();
        CHECK(pid >= 0, "%d", errno);
        if (pid == 0)
            _exit(sclose(s));
        wait_for(pid);
        _exit(sclose(s));
    }
    wait_for(pid);
    SAME(sputs("more", s) >= 0, 1);
    SAME(sclose(s), 0);
    came(in, "parent child more");
}

/* As of stdio: each has what was buffered, and writes it. */
static void not_flushed_before(void)
{
    int in;
    pid_t pid;
    Stream *s = into_a_pipe(&in);
    SAME(sputs("both ", s) >= 0, 1);
    pid = fork();
    CHECK(pid >= 0, "%d", errno);
    if (pid == 0) {
        SAME(sputs("child ", s) >= 0, 1);
        _exit(sclose(s));
    }
    wait_for(pid);
    SAME(sputs("parent", s) >= 0, 1);
    SAME(sclose(s), 0);
    came(in, "both child both parent");
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "wrong use");
    snprintf(path, sizeof path, "%s/inherited", argv[1]);
    one_offset();
    flushed_before();
    not_flushed_before();
    return 0;
}
