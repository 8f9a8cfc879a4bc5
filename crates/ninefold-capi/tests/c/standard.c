/*
 * standard NAME FILE: the numbers of standard input, output and error are the program's, open or closed: nothing of the library's gets
 * one. FILE is here.
 */
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

/* All of them are closed; so nobody reads what CHECK prints, and the exit status alone tells. */
static void are_free(void)
{
    int number;
    for (number = 0; number < 3; number++) {
        errno = 0;
        SAME(fcntl(number, F_GETFD), -1);
        SAME(errno, EBADF);
        SAME(write(number, "printed", 7), -1);
    }
}

static void streams(int fd)
{
    char bytes[5];
    Stream *in = stream(fd, 0, 1), *out;
    CHECK(in != NULL, "%d", errno);
    are_free();
    SAME(sread(in, bytes, 5), 5);
    CHECK(!memcmp(bytes, "hello", 5), "");
    out = stream(fd, 0, 0);
    CHECK(out != NULL, "%d", errno);
    are_free();
    SAME(swrite(out, "hello", 5), 5);
    SAME(sclose(out), 0);
    SAME(sclose(in), 0);
    are_free();
}

int main(int argc, char **argv)
{
    int fd, number;
    CHECK(argc == 3, "wrong use");
    for (number = 0; number < 3; number++)
        SAME(close(number), 0);
    fd = as_open(argv[1], O_RDWR | O_CREAT, 0600);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    are_free();
    SAME(as_write(fd, "hello", 5), 5);
    streams(fd);
    SAME(as_close(fd), 0);

    /* A file here has the least number, as open(2) gives it; the streams' own have not. */
    for (number = 0; number < 3; number++)
        SAME(as_open("/", O_RDONLY), number);
    fd = as_open(argv[2], O_RDWR | O_CREAT, 0600);
    CHECK(fd > 2, "%d", fd);
    SAME(as_write(fd, "hello", 5), 5);
    for (number = 0; number < 3; number++)
        SAME(as_close(number), 0);
    streams(fd);
    return 0;
}
