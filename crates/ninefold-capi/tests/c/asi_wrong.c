/* asi_wrong DIR REMOTE: what is wrong is refused with its number, by each call, and does no harm. REMOTE is a file of a server. */
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

static char path[4096];

/* A call that gives a region, or fails so. */
static long given;
#define FAILS(call, number)                                                \
    do {                                                                   \
        given = 4;                                                         \
        CHECK((call) == NULL && given == (number), "%ld, %d", given, number); \
        SAME(errno, -(number));                                            \
    } while (0)

static Stream *opens(const char *name, int flags)
{
    int error = 1;
    Stream *s = sopen(name, flags, 0644, &error);
    CHECK(s != NULL, "%d", error);
    return s;
}

static void cannot_open(const char *name, int flags, int number)
{
    int error = 1;
    CHECK(sopen(name, flags, 0644, &error) == NULL, "");
    SAME(error, number);
    SAME(errno, -number);
    CHECK(sopen(name, flags, 0644, NULL) == NULL, "");
}

static void nothing(void)
{
    Stream *s = NULL;
    int error;
    FAILS(salloc(s, &given), -EFAULT);
    FAILS(sallocAt(s, &given, 0, SEEK_SET), -EFAULT);
    FAILS(Salloc(s, SA_READ, &given), -EFAULT);
    FAILS(SallocAt(s, SA_READ, &given, 0, SEEK_SET), -EFAULT);
    FAILS(u_salloc(s, &given), -EFAULT);
    FAILS(u_Salloc(s, SA_READ, &given), -EFAULT);
    FAILS(salloc_line(s, &given), -EFAULT);
    FAILS(salloc_until(s, &given, 0), -EFAULT);
    FAILS(salloc_full(s, &given), -EFAULT);
    FAILS(salloc_aligned(s, &given, 8), -EFAULT);
    SAME(sfree(s, &s), -EFAULT);
    SAME(u_sfree(s, NULL), -EFAULT);
    CHECK(srealloc(s, &s, 1) == NULL && errno == EFAULT, "%d", errno);
    CHECK(Srealloc(s, SA_READ, &s, 1) == NULL && errno == EFAULT, "%d", errno);
    FAILS(sresize(s, &s, &given), -EFAULT);
    SAME(sflush(s), -EFAULT);
    SAME(ssync(s), -EFAULT);
    SAME(set_stream_mode(s, SA_READ), -EFAULT);
    SAME(LockAsfStream(s), -EFAULT);
    SAME(UnlockAsfStream(s), -EFAULT);
    SAME(sclaim(s), -EFAULT);
    SAME(scopy(s, s, 1), -EFAULT);
    SAME(spush(s, "gzip"), -EFAULT);
    SAME(spop(s), -EFAULT);
    SAME(sposition(s), -EFAULT);
    CHECK(smodule(s) == NULL && errno == EFAULT, "%d", errno);
    SAME(sclose(s), -EFAULT);
    CHECK(sopen(NULL, O_RDONLY, 0, &error) == NULL && error == -EFAULT, "%d", error);
    CHECK(sopen_by(path, O_RDONLY, 0, NULL, &error) == NULL && error == -EFAULT, "%d", error);
}

static void regions(void)
{
    char *region, *other, other_bytes[4] = "", *kept[100];
    long length = 4;
    int n;
    Stream *s = opens(path, O_RDWR | O_CREAT | O_TRUNC), *t = opens(path, O_RDWR);
    region = salloc(s, &length);
    other = salloc(t, &length);
    CHECK(region && other, "%ld", length);
    memcpy(region, "good", 4);
    memcpy(other, "GOOD", 4);
    SAME(sfree(s, NULL), -EFAULT);
    SAME(sfree(s, other), -EINVAL);
    SAME(sfree(t, region), -EINVAL);
    SAME(sfree(s, region + 1), -EINVAL);
    SAME(sfree(s, region + 4), -EINVAL);
    SAME(sfree(s, region - 1), -EINVAL);
    SAME(sfree(s, other_bytes), -EINVAL);
    SAME(sfree(s, (void *)1), -EINVAL);
    CHECK(srealloc(s, other, 2) == NULL && errno == EINVAL, "%d", errno);
    CHECK(srealloc(s, region + 1, 2) == NULL && errno == EINVAL, "%d", errno);
    CHECK(srealloc(s, NULL, 2) == NULL && errno == EFAULT, "%d", errno);
    SAME(sfree(s, region), 0);
    SAME(errno, EFAULT);
    SAME(sfree(s, region), -EINVAL);
    CHECK(srealloc(s, region, 2) == NULL && errno == EINVAL, "%d", errno);
    SAME(sfree(t, other), 0);
    SAME(sfree(t, other), -EINVAL);
    /* More than are kept at hand. */
    for (n = 0; n < 100; n++) {
        length = 2;
        CHECK((kept[n] = salloc(s, &length)) != NULL, "%ld", length);
        kept[n][0] = kept[n][1] = '.';
    }
    for (n = 0; n < 100; n++) {
        SAME(sfree(s, kept[(n * 37) % 100]), 0);
        SAME(sfree(s, kept[(n * 37) % 100]), -EINVAL);
        SAME(sfree(s, kept[(n * 37) % 100] + 1), -EINVAL);
    }
    SAME(sclose(t), 0);
    SAME(sclose(s), 0);
    s = opens(path, O_RDONLY);
    length = 5;
    CHECK((other = salloc(s, &length)) != NULL && !memcmp(other, "GOOD.", 5), "");
    SAME(sfree(s, other), 0);
    SAME(sclose(s), 0);
    /* Of who never had a region, none is. */
    t = opens(path, O_RDONLY);
    SAME(sfree(t, region), -EINVAL);
    SAME(sclose(t), 0);
}

static void modes(void)
{
    long length;
    int error;
    Stream *s = opens(path, O_RDONLY);
    FAILS(Salloc(s, SA_WRITE, &given), -EBADF);
    FAILS(Salloc(s, 2, &given), -EINVAL);
    FAILS(Salloc(s, -1, &given), -EINVAL);
    FAILS(SallocAt(s, 2, &given, 0, SEEK_SET), -EINVAL);
    SAME(set_stream_mode(s, SA_WRITE), -EBADF);
    SAME(set_stream_mode(s, 2), -EINVAL);
    SAME(swrite(s, "x", 1), -EBADF);
    SAME(scopy(s, s, 1), -EBADF);
    CHECK(salloc(s, NULL) == NULL && errno == EFAULT, "%d", errno);
    CHECK(salloc_line(s, NULL) == NULL && errno == EFAULT, "%d", errno);
    length = -1;
    CHECK(salloc(s, &length) == NULL && length == -EINVAL, "%ld", length);
    length = 0;
    CHECK(salloc(s, &length) == NULL && length == 0, "%ld", length);
    CHECK(sclose(s) == 0, "");
    s = opens(path, O_WRONLY);
    FAILS(Salloc(s, SA_READ, &given), -EBADF);
    FAILS(salloc_line(s, &given), -EBADF);
    SAME(set_stream_mode(s, SA_READ), -EBADF);
    SAME(sread(s, &length, 1), -EBADF);
    SAME(spush(s, "gzip"), -EBADF);
    length = 0x7fffffffffffffffl;
    CHECK(salloc(s, &length) == NULL && length < 0, "%ld", length);
    SAME(sclose(s), 0);
    CHECK(sopen_by(path, O_RDWR, 0, "mmap", &error) == NULL && error == -EINVAL, "%d", error);
    CHECK(sopen_by(path, O_RDONLY, 0, "none", &error) == NULL && error == -EINVAL, "%d", error);
    CHECK(sopen_by(path, O_RDONLY, 0, "\xff", &error) == NULL && error == -EINVAL, "%d", error);
}

int main(int argc, char **argv)
{
    long length = 1;
    char byte;
    int error, fd;
    Stream *s;
    CHECK(argc == 3, "wrong use");
    cannot_open(argv[1], O_RDWR, -EISDIR);
    CHECK(sfopen(argv[1], "r") == NULL && errno == EISDIR, "%d", errno);
    snprintf(path, sizeof path, "%s/none", argv[1]);
    cannot_open(path, O_RDWR, -ENOENT);
    snprintf(path, sizeof path, "%s/wrong", argv[1]);
    fclose(fopen(path, "w"));
    cannot_open(path, O_RDWR | O_CREAT | O_EXCL, -EEXIST);
    cannot_open(path, O_ACCMODE, -EINVAL);
    cannot_open(path, O_RDONLY | 040000 /* O_DIRECT */, -EINVAL);
    cannot_open(path, 010000000 /* O_PATH */, -EINVAL);
    cannot_open(argv[2], O_RDONLY | 040000 /* O_DIRECT */, -EINVAL);
    cannot_open(argv[2], O_RDWR | O_CREAT | O_EXCL, -EEXIST);
    snprintf(path, sizeof path, "%.*s/none", (int)(strrchr(argv[2], '/') - argv[2]), argv[2]);
    cannot_open(path, O_RDONLY, -ENOENT);
    snprintf(path, sizeof path, "%s/wrong", argv[1]);
    cannot_open("9p://host:port:port/", O_RDONLY, -EINVAL);
    CHECK(sdopen(-1, &error) == NULL && error == -EBADF, "%d", error);
    CHECK(sdopen(0x7fffffff, &error) == NULL && error == -EBADF, "%d", error);
    nothing();
    regions();
    modes();

    /* A stream of a server's file has regions from the first call on that asks for one, where it has no length. */
    fd = as_open(argv[2], O_RDONLY);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    s = nf_stream_range(fd, 0, 2, 1, &error);
    CHECK(s != NULL, "%d", error);
    CHECK(salloc(s, &length) == NULL && length == -EOPNOTSUPP, "%ld", length);
    SAME(sflush(s), -EOPNOTSUPP);
    SAME(sfree(s, &byte), -EINVAL);
    SAME(sread(s, &byte, 1), 1);
    SAME(sclose(s), 0);
    s = stream(fd, 0, 1);
    CHECK(s != NULL, "%d", errno);
    SAME(sfree(s, &byte), -EINVAL);
    SAME(sflush(s), 0);
    SAME(sfree(s, &byte), -EINVAL);
    SAME(swrite(s, "x", 1), -EBADF);
    SAME(sclose(s), 0);
    SAME(as_close(fd), 0);
    return 0;
}
