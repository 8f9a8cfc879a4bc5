/*
 * asi_remote NAME DIR SIZE: regions, standard I/O and streams of the thesis on a file of a server, which has SIZE bytes. DIR is a directory
 * here.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

static unsigned char bytes[300000];

static Stream *opens(const char *name, int flags)
{
    int error = 1;
    Stream *s = sopen(name, flags, 0644, &error);
    CHECK(s != NULL, "%d", error);
    return s;
}

static void drained(Stream *s, long long at, long long size, long piece)
{
    unsigned char *region;
    long length;
    for (;;) {
        length = piece;
        region = salloc(s, &length);
        CHECK(region != NULL || length == 0, "%ld", length);
        if (region == NULL)
            break;
        CHECK(differs(region, at, (size_t)length) < 0, "%lld", at);
        CHECK(length == piece || at + length == size, "%ld", length);
        at += length;
        SAME(sposition(s), at);
        SAME(sfree(s, region), 0);
    }
    SAME(at, size);
}

static void by_name(const char *name, long long size)
{
    unsigned char *region, *kept[3];
    long length, n;
    Stream *s;
    for (n = 0; n < 3; n++) {
        static const long pieces[] = {65536, 1000, 3000000};
        s = opens(name, O_RDONLY);
        drained(s, 0, size, pieces[n]);
        SAME(sclose(s), 0);
    }
    s = opens(name, O_RDONLY);
    CHECK(!strncmp(smodule(s), "ninep", 5), "%s", smodule(s));
    SAME(sfileno(s), -EOPNOTSUPP);
    /* Written to a region that is read: its own bytes, and nobody else's. */
    for (n = 0; n < 3; n++) {
        length = 4096;
        kept[n] = sallocAt(s, &length, 4096, SEEK_SET);
        CHECK(kept[n] != NULL && length == 4096, "%ld", length);
        CHECK(differs(kept[n], 4096, 4096) < 0, "%ld", n);
        memset(kept[n], 0, 4096);
    }
    SAME(sclose(s), -EBUSY);
    for (n = 2; n >= 0; n--)
        SAME(sfree(s, kept[n]), 0);
    length = 100;
    region = sallocAt(s, &length, -50, SEEK_END);
    CHECK(region != NULL && length == 50 && differs(region, size - 50, 50) < 0, "%ld", length);
    SAME(sfree(s, region), 0);
    length = 10;
    region = sallocAt(s, &length, 7, SEEK_SET);
    CHECK((region = srealloc(s, region, 200000)) != NULL, "%d", errno);
    CHECK(differs(region, 7, 200000) < 0, "");
    CHECK((region = srealloc(s, region, 5)) != NULL, "%d", errno);
    SAME(sposition(s), 12);
    SAME(sfree(s, region), 0);
    length = 100;
    region = salloc_aligned(s, &length, 4096);
    CHECK(region != NULL && (size_t)region % 4096 == 0 && differs(region, 12, 100) < 0, "%ld", length);
    SAME(sfree(s, region), 0);
    length = 1;
    CHECK(Salloc(s, SA_WRITE, &length) == NULL && length == -EBADF, "%ld", length);
    SAME(LockAsfStream(s), 0);
    length = 8;
    region = u_sallocAt(s, &length, 99, SEEK_SET);
    CHECK(region != NULL && differs(region, 99, 8) < 0, "%ld", length);
    SAME(u_sfree(s, region), 0);
    SAME(UnlockAsfStream(s), 0);
    SAME(sfree(s, region), -EINVAL);
    SAME(sclose(s), 0);
}

static void standard_io(const char *name, long long size)
{
    long length = 3;
    unsigned char *region;
    Stream *s = sfopen(name, "r");
    CHECK(s != NULL, "%d", errno);
    SAME(sgetc(s), byte_at(0));
    SAME(sungetc('!', s), '!');
    region = salloc(s, &length);
    CHECK(region != NULL && length == 3 && region[0] == '!' && differs(region + 1, 1, 2) < 0, "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sfread(bytes, 1000, 200, s), 200);
    CHECK(differs(bytes, 3, 200000) < 0, "");
    SAME(sposition(s), 200003);
    SAME(sfseek(s, size - 1, SEEK_SET), 0);
    SAME(sfread(bytes, 1, 10, s), 1);
    CHECK(differs(bytes, size - 1, 1) < 0, "");
    SAME(sfclose(s), 0);
}

/* All of it to a file here. */
static void copied(const char *name, const char *dir, long long size)
{
    char path[4096];
    Stream *from = opens(name, O_RDONLY), *to;
    snprintf(path, sizeof path, "%s/copy", dir);
    to = opens(path, O_WRONLY | O_CREAT | O_TRUNC);
    SAME(scopy(from, to, size + 1), size);
    SAME(sclose(to), 0);
    SAME(sclose(from), 0);
    to = opens(path, O_RDONLY);
    drained(to, 0, size, 65536);
    SAME(sclose(to), 0);
}

static void by_descriptor(const char *name, long long size)
{
    long length, at = 1000;
    unsigned char *region;
    int fd = as_open(name, O_RDONLY), error;
    Stream *s;
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    /* Of the thesis: before, between and behind, one place. */
    s = stream(fd, at, 1);
    CHECK(s != NULL, "%d", errno);
    SAME(sfileno(s), -EOPNOTSUPP);
    while (at < size) {
        length = sread(s, bytes, 77777);
        CHECK(length > 0 && differs(bytes, at, (size_t)length) < 0, "%ld", length);
        at += length;
        length = 50000;
        region = salloc(s, &length);
        CHECK(region != NULL || length == 0, "%ld", length);
        CHECK(differs(region, at, (size_t)length) < 0, "%ld", at);
        at += length;
        if (region != NULL)
            SAME(sfree(s, region), 0);
    }
    SAME(at, size);
    SAME(sread(s, bytes, 1), 0);
    SAME(swrite(s, "x", 1), -EBADF);
    SAME(sclose(s), 0);
    /* From the end on there is nothing. */
    s = stream(fd, 0, 1);
    CHECK(s != NULL, "%d", errno);
    while ((length = sread(s, bytes, sizeof bytes)) > 0)
        ;
    SAME(length, 0);
    length = 10;
    CHECK(salloc(s, &length) == NULL && length == 0, "%ld", length);
    SAME(sclose(s), 0);
    /* A stream that outlives the descriptor. */
    s = stream(fd, 0, 1);
    length = 10;
    CHECK((region = salloc(s, &length)) != NULL, "%ld", length);
    SAME(as_lseek(fd, 5000, SEEK_SET), 5000);
    {
        Stream *other = sdopen(fd, &error);
        CHECK(other != NULL, "%d", error);
        SAME(as_lseek(fd, 0, SEEK_CUR), 5000);
        SAME(as_close(fd), 0);
        drained(other, 5000, size, 65536);
        SAME(sclose(other), 0);
    }
    CHECK(differs(region, 0, 10) < 0, "");
    SAME(sfree(s, region), 0);
    drained(s, 10, size, 65536);
    SAME(sclose(s), 0);
    SAME(as_close(fd), -EBADF);
    CHECK(sdopen(fd, &error) == NULL && error == -EBADF, "%d", error);
}

/* A child has none of it, and its parent all. */
static void forks(const char *name, long long size)
{
    int status = 0;
    long length = 10, at = 10;
    unsigned char *region;
    Stream *s = opens(name, O_RDONLY);
    pid_t pid;
    region = salloc(s, &length);
    CHECK(region != NULL, "%ld", length);
    pid = fork();
    if (pid == 0) {
        alarm(30);
        /* What was at hand it has as the parent has it, and no more. */
        for (length = 100000; (region = salloc(s, &length)) != NULL; at += length)
            CHECK(differs(region, at, (size_t)length) < 0, "%ld", at);
        SAME(length, -EBADF);
        SAME(sfree(s, bytes), -EBADF);
        SAME(sread(s, bytes, 1), -EBADF);
        SAME(sflush(s), -EBADF);
        SAME(sclose(s), -EBADF);
        s = opens(name, O_RDONLY);
        drained(s, 0, size, 65536);
        SAME(sclose(s), 0);
        _exit(0);
    }
    CHECK(pid > 0, "%d", errno);
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
    CHECK(differs(region, 0, 10) < 0, "");
    SAME(sfree(s, region), 0);
    length = 200000;
    region = salloc(s, &length);
    CHECK(region != NULL && differs(region, 10, (size_t)length) < 0, "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);
}

int main(int argc, char **argv)
{
    long long size;
    int error;
    CHECK(argc == 4, "wrong use");
    size = atoll(argv[3]);
    by_name(argv[1], size);
    standard_io(argv[1], size);
    copied(argv[1], argv[2], size);
    by_descriptor(argv[1], size);
    forks(argv[1], size);
    CHECK(sopen_by(argv[1], O_RDONLY, 0, "mmap", &error) == NULL && error == -EINVAL, "%d", error);
    {
        Stream *s = sopen_by(argv[1], O_RDONLY, 0, "ninep", &error);
        CHECK(s != NULL && !strcmp(smodule(s), "ninep"), "%d", error);
        drained(s, 0, size, 65536);
        SAME(sclose(s), 0);
    }
    return 0;
}
