/* streams NAME BYTES: writes a file by a stream and reads it by others, while descriptors and streams have places of their own. */
#include "check.h"
#include "ninefold.h"

#define PIECE 50000

static long long size;

static void writes(int fd, long long from, long long end, long piece)
{
    unsigned char *bytes = malloc((size_t)piece);
    Stream *s = stream(fd, from, 0);
    CHECK(s != NULL && bytes != NULL, "%d", errno);
    while (from < end) {
        long n = end - from < piece ? (long)(end - from) : piece;
        fill(bytes, from, (size_t)n);
        SAME(swrite(s, bytes, n), n);
        memset(bytes, 0, (size_t)n);
        from += n;
    }
    SAME(sclose(s), 0);
    free(bytes);
}

static void reads(int fd, long long from, long piece)
{
    unsigned char *bytes = malloc((size_t)piece);
    Stream *s = stream(fd, from, 1);
    long n;
    CHECK(s != NULL && bytes != NULL, "%d", errno);
    while ((n = sread(s, bytes, piece)) > 0) {
        SAME(differs(bytes, from, (size_t)n), -1);
        from += n;
    }
    SAME(n, 0);
    SAME(from, size);
    SAME(sclose(s), 0);
    free(bytes);
}

int main(int argc, char **argv)
{
    unsigned char bytes[PIECE];
    Stream *one, *other;
    int fd;
    CHECK(argc == 3, "wrong use");
    size = atoll(argv[2]);
    fd = as_open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0, "%d", fd);
    writes(fd, 0, size, PIECE);
    /* Again, in the middle and by odd pieces: the same bytes. */
    writes(fd, size / 3, size / 2, 4097);
    /* The file is open as before, and its place where it was. */
    SAME(as_lseek(fd, 0, SEEK_CUR), 0);
    SAME(as_read(fd, bytes, 100), 100);
    SAME(differs(bytes, 0, 100), -1);

    reads(fd, 0, PIECE);
    reads(fd, size / 2 + 1, 1 << 20);
    reads(fd, size, 10);

    /* Two at a time, and the descriptor between them. */
    one = stream(fd, 0, 1);
    other = stream(fd, size / 2, 1);
    CHECK(one && other, "%d", errno);
    CHECK(sread(one, bytes, 10) == 10 && differs(bytes, 0, 10) < 0, "");
    SAME(as_read(fd, bytes, 100), 100);
    SAME(differs(bytes, 100, 100), -1);
    CHECK(sread(other, bytes, 10) == 10 && differs(bytes, size / 2, 10) < 0, "");
    /* A read stream may end before its end. */
    SAME(sclose(one), 0);
    /* The other goes on when the descriptor is closed. */
    SAME(as_close(fd), 0);
    CHECK(sread(other, bytes, 10) == 10 && differs(bytes, size / 2 + 10, 10) < 0, "");
    SAME(sclose(other), 0);
    return 0;
}
