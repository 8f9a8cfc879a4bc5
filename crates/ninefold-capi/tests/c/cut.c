/*
 * cut WHAT NAME BYTES: a stream (read, write, or by regions: regions, freed) or a descriptor (plain, behind) whose server dies in the middle. What was not
 * received or written is told as an error by the call that met it, and at the end; the program lives.
 */
#include <signal.h>

#include "check.h"
#include "ninefold.h"

#define PIECE 65536

static unsigned char bytes[PIECE];

static void lost(long long result)
{
    CHECK(result == -ECONNRESET || result == -EPIPE || result == -ECONNABORTED, "%lld", result);
}

static void reading(int fd, long long size)
{
    Stream *s = stream(fd, 0, 1);
    long long got = 0;
    long n;
    CHECK(s != NULL, "%d", errno);
    CHECK((n = sread(s, bytes, PIECE)) > 0, "%ld", n);
    got = n;
    report("begun");
    while ((n = sread(s, bytes, PIECE)) > 0) {
        SAME(differs(bytes, got, (size_t)n), -1);
        got += n;
    }
    CHECK(got < size, "the server had sent all of it");
    lost(n);
    SAME(sread(s, bytes, PIECE), n);
    SAME(sclose(s), n);
}

/* The same by regions. What is had is what the file has, and the end is told as an error, again and again. */
static void regions(const char *name, long long size)
{
    int error;
    Stream *s = sopen(name, O_RDONLY, 0, &error);
    long long got = PIECE;
    unsigned char *first, *region;
    long length = PIECE, told;
    CHECK(s != NULL, "%d", error);
    CHECK((first = salloc(s, &length)) != NULL && length == PIECE, "%ld", length);
    report("begun");
    while ((region = salloc(s, &length)) != NULL) {
        SAME(differs(region, got, (size_t)length), -1);
        got += length;
        SAME(sfree(s, region), 0);
    }
    CHECK(got < size, "the server had sent all of it");
    lost(told = length);
    length = PIECE;
    CHECK(salloc(s, &length) == NULL && length == told, "%ld", length);
    SAME(differs(first, 0, PIECE), -1);
    SAME(sfree(s, first), 0);
    lost(sclose(s));
}

/* What is freed and not taken is told by the call that meets it, and by all behind it. */
static void freed(const char *name)
{
    int error, n;
    long length = PIECE, told = 0;
    void *region;
    Stream *s = sopen(name, O_WRONLY, 0, &error);
    CHECK(s != NULL, "%d", error);
    CHECK((region = salloc(s, &length)) != NULL, "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sflush(s), 0);
    report("begun");
    for (n = 0; n < 10000 && told >= 0; n++) {
        length = PIECE;
        region = salloc(s, &length);
        told = region == NULL ? length : sfree(s, region);
    }
    lost(told);
    lost(sflush(s));
    lost(sclose(s));
}

static void writing(int fd)
{
    Stream *s = stream(fd, 0, 0);
    long n, told = 0;
    int ended;
    CHECK(s != NULL, "%d", errno);
    SAME(swrite(s, bytes, PIECE), PIECE);
    report("begun");
    for (n = 0; n < 10000 && told >= 0; n++)
        told = swrite(s, bytes, PIECE);
    lost(told);
    SAME(swrite(s, bytes, PIECE), told);
    ended = sclose(s);
    SAME(ended, told);
    SAME(errno, -ended);
}

static void ending(int fd)
{
    /* A few bytes, which may be taken although the server is dead: then the end alone can tell. */
    Stream *s = stream(fd, 0, 0);
    long n;
    CHECK(s != NULL, "%d", errno);
    report("begun");
    n = swrite(s, bytes, 10);
    if (n != 10)
        lost(n);
    lost(sclose(s));
}

int main(int argc, char **argv)
{
    const char *what;
    int fd;
    CHECK(argc == 4, "wrong use");
    what = argv[1];
    /* As C programs have it: a write to a socket or pipe that is gone kills. */
    signal(SIGPIPE, SIG_DFL);
    fd = as_open(argv[2], strcmp(what, "behind") ? O_RDWR : O_RDWR | OBEHIND);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    if (!strcmp(what, "regions")) {
        regions(argv[2], atoll(argv[3]));
    } else if (!strcmp(what, "freed")) {
        freed(argv[2]);
    } else if (!strcmp(what, "read")) {
        reading(fd, atoll(argv[3]));
    } else if (!strcmp(what, "write")) {
        writing(fd);
    } else if (!strcmp(what, "end")) {
        ending(fd);
    } else {
        SAME(as_write(fd, bytes, 10), 10);
        report("begun");
        lost(as_read(fd, bytes, PIECE));
        lost(as_write(fd, bytes, PIECE));
        lost(as_fsync(fd));
    }
    lost(as_close(fd));
    SAME(as_close(fd), -EBADF);
    /* The next server at the address is another connection. */
    report("over");
    fd = as_open(argv[2], O_RDONLY);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    SAME(as_read(fd, bytes, 1), 1);
    SAME(as_close(fd), 0);
    return 0;
}
