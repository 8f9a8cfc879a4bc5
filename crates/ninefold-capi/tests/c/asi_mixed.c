/* asi_mixed DIR: a stream that stream() gave for a file here lends regions, from its place on and in its one mode; and what it promised holds. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define SIZE 100000l

static char path[4096];
static unsigned char bytes[SIZE];

static Stream *begin(int fd, long long at, char isread)
{
    Stream *s = stream(fd, at, isread);
    CHECK(s != NULL, "%d", errno);
    return s;
}

static void reads(int fd)
{
    unsigned char *region;
    long length = 100, at = 1000;
    Stream *s = begin(fd, at, 1);
    /* Before, between and behind: one place. */
    while (at < SIZE) {
        length = sread(s, bytes, 777);
        CHECK(length > 0 && differs(bytes, at, (size_t)length) < 0, "%ld", length);
        at += length;
        length = 500;
        region = salloc(s, &length);
        CHECK(region != NULL || length == 0, "%ld", length);
        CHECK(differs(region, at, (size_t)length) < 0, "%ld", at);
        at += length;
        if (region != NULL)
            SAME(sfree(s, region), 0);
    }
    SAME(at, SIZE);
    SAME(sread(s, bytes, 1), 0);
    /* One way, though the descriptor is for both. */
    length = 1;
    CHECK(Salloc(s, SA_WRITE, &length) == NULL && length == -EBADF, "%ld", length);
    SAME(swrite(s, "x", 1), -EBADF);
    SAME(set_stream_mode(s, SA_WRITE), -EBADF);
    length = 10;
    region = sallocAt(s, &length, 50, SEEK_SET);
    CHECK(region != NULL && differs(region, 50, 10) < 0, "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);
    /* The descriptor's place is its own. */
    SAME(lseek(fd, 0, SEEK_CUR), 0);

    /* Cut while it is read: no end, but an error, by either call. */
    s = begin(fd, 0, 1);
    length = 10;
    SAME(sfree(s, salloc(s, &length)), 0);
    SAME(ftruncate(fd, SIZE / 2), 0);
    while ((length = sread(s, bytes, SIZE)) > 0)
        ;
    SAME(length, -ESTALE);
    length = 10;
    CHECK(salloc(s, &length) == NULL && length == -ESTALE, "%ld", length);
    SAME(sclose(s), 0);
    SAME(ftruncate(fd, SIZE), 0);
}

static void writes(int fd)
{
    unsigned char *region;
    long length = 10, at = 0;
    Stream *s = begin(fd, 0, 0);
    SAME(lseek(fd, 0, SEEK_CUR), 0);
    while (at < SIZE) {
        fill(bytes, at, 3000);
        SAME(swrite(s, bytes, 3000), 3000);
        length = 1000;
        region = salloc(s, &length);
        CHECK(region != NULL, "%ld", length);
        fill(region, at + 3000, 1000);
        SAME(sfree(s, region), 0);
        at += 4000;
    }
    length = 1;
    CHECK(Salloc(s, SA_READ, &length) == NULL && length == -EBADF, "%ld", length);
    SAME(sread(s, bytes, 1), -EBADF);
    SAME(sflush(s), 0);
    SAME(pread(fd, bytes, SIZE, 0), SIZE);
    CHECK(differs(bytes, 0, SIZE) < 0, "");
    SAME(sclose(s), 0);
}

/* What was opened to append is written at its end. */
static void appends(void)
{
    int fd = open(path, O_WRONLY | O_APPEND), other = open(path, O_WRONLY | O_APPEND);
    long length = 1;
    void *region;
    off_t end;
    Stream *s;
    CHECK(fd >= 0 && other >= 0, "%d", errno);
    end = lseek(other, 0, SEEK_END);
    s = begin(fd, 5, 0);
    CHECK((region = salloc(s, &length)) != NULL, "%ld", length);
    *(char *)region = 'b';
    SAME(write(other, "a", 1), 1);
    SAME(sfree(s, region), 0);
    SAME(sflush(s), 0);
    SAME(write(other, "c", 1), 1);
    SAME(sclose(s), 0);
    SAME(close(fd), 0);
    SAME(close(other), 0);
    fd = open(path, O_RDONLY);
    SAME(pread(fd, bytes, 4, end), 3);
    CHECK(!memcmp(bytes, "abc", 3), "");
    SAME(close(fd), 0);
}

static void pipes(void)
{
    int ends[2];
    long length = 100;
    char *region;
    Stream *in, *out;
    SAME(pipe(ends), 0);
    in = begin(ends[0], 0, 1);
    out = begin(ends[1], 0, 0);
    SAME(swrite(out, "one", 3), 3);
    SAME(sread(in, bytes, 2), 2);
    region = salloc(in, &length);
    CHECK(region != NULL && length == 1 && *region == 'e', "%ld", length);
    SAME(sfree(in, region), 0);
    length = 3;
    region = salloc(out, &length);
    CHECK(region != NULL, "%ld", length);
    memcpy(region, "two", 3);
    SAME(sfree(out, region), 0);
    SAME(sflush(out), 0);
    length = 100;
    region = salloc(in, &length);
    CHECK(region != NULL && length == 3 && !memcmp(region, "two", 3), "%ld", length);
    SAME(sfree(in, region), 0);
    SAME(close(ends[1]), 0);
    /* Nobody reads any more. */
    signal(SIGPIPE, SIG_IGN);
    SAME(sclose(in), 0);
    SAME(close(ends[0]), 0);
    SAME(swrite(out, "x", 1), 1);
    SAME(sflush(out), -EPIPE);
    SAME(sclose(out), -EPIPE);
}

/* The end that was told stays the end, whatever comes to the file. */
static void ends(void)
{
    int fd = open(path, O_RDWR | O_TRUNC);
    long length = 10;
    unsigned char *region;
    Stream *s;
    CHECK(fd >= 0, "%d", errno);
    SAME(write(fd, "abc", 3), 3);
    s = begin(fd, 0, 1);
    SAME(sread(s, bytes, 10), 3);
    SAME(sread(s, bytes, 10), 0);
    SAME(pwrite(fd, "def", 3, 3), 3);
    CHECK(salloc(s, &length) == NULL && length == 0, "%ld", length);
    CHECK(salloc_line(s, &length) == NULL && length == 0, "%ld", length);
    SAME(sread(s, bytes, 10), 0);
    SAME(sgetc(s), EOF);
    length = 10;
    region = (unsigned char *)sallocAt(s, &length, 1, SEEK_SET);
    CHECK(region != NULL && length == 5 && !memcmp(region, "bcdef", 5), "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);
    SAME(close(fd), 0);
}

/* A child goes on with what nobody else was at. */
static void forks(int fd)
{
    int status = 0;
    long length = 10;
    void *region;
    pid_t pid;
    Stream *s = begin(fd, 0, 1);
    SAME(sfree(s, salloc(s, &length)), 0);
    pid = fork();
    if (pid == 0) {
        alarm(30);
        region = salloc(s, &length);
        CHECK(region != NULL && differs(region, 10, 10) < 0, "%ld", length);
        SAME(sfree(s, region), 0);
        SAME(sclose(s), 0);
        _exit(0);
    }
    CHECK(pid > 0, "%d", errno);
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
    region = salloc(s, &length);
    CHECK(region != NULL && differs(region, 10, 10) < 0, "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);
}

int main(int argc, char **argv)
{
    long length = 1;
    int fd, error;
    Stream *s;
    CHECK(argc == 2, "wrong use");
    snprintf(path, sizeof path, "%s/mixed", argv[1]);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0, "%d", errno);
    writes(fd);
    forks(fd);
    reads(fd);
    appends();
    pipes();
    /* Of a length that was told there are none. */
    s = nf_stream_range(fd, 0, 10, 1, &error);
    CHECK(s != NULL, "%d", error);
    CHECK(salloc(s, &length) == NULL && length == -EOPNOTSUPP, "%ld", length);
    SAME(sread(s, bytes, 100), 10);
    SAME(sclose(s), 0);
    /* Nor of a stream that failed. */
    s = begin(fd, 0, 1);
    while (sread(s, bytes, SIZE) > 0 && ftruncate(fd, SIZE / 2) == 0)
        ;
    length = 1;
    CHECK(salloc(s, &length) == NULL && length <= 0, "%ld", length);
    SAME(sclose(s), length);
    SAME(close(fd), 0);
    ends();
    return 0;
}
