/*
 * full NAME ERRNO: a stream into a file system that is full before its end: the error is told, by the write that met it and by the
 * end. ERRNO 0: the dialect cannot say which it is, and only that the server let go of the connection.
 */
#include "check.h"
#include "ninefold.h"

static unsigned char bytes[65536];

int main(int argc, char **argv)
{
    int fd, n, error;
    long told = 0;
    Stream *s;
    CHECK(argc == 3, "wrong use");
    error = -atoi(argv[2]);
    fd = as_open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0, "%d", fd);
    s = stream(fd, 0, 0);
    CHECK(s != NULL, "%d", errno);
    for (n = 0; n < 160 && told >= 0; n++)
        told = swrite(s, bytes, sizeof bytes);
    if (error == 0) {
        CHECK(told == -ECONNRESET || told == -EPIPE, "%ld", told);
        error = (int)told;
    }
    CHECK(told == sizeof bytes || told == error, "%ld", told);
    SAME(sclose(s), error);
    SAME(errno, -error);
    /* The descriptor is as good as before. */
    SAME(as_ftruncate(fd, 0), 0);
    SAME(as_write(fd, bytes, 10), 10);
    SAME(as_close(fd), 0);
    return 0;
}
