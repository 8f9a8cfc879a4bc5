/* late NAME: a server that says only when the file is closed that it could not write (EDQUOT), and who is told. */
#include "check.h"
#include "ninefold.h"

int main(int argc, char **argv)
{
    Stream *s;
    long length = 5;
    int fd;
    CHECK(argc == 2, "wrong use");
    fd = as_open(argv[1], O_WRONLY);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    SAME(as_pwrite(fd, "hello", 5, 0), 5);
    SAME(as_close(fd), -EDQUOT);

    fd = as_open(argv[1], O_WRONLY);
    s = stream(fd, 0, 0);
    CHECK(s != NULL, "%d", errno);
    SAME(swrite(s, "hello", 5), 5);
    SAME(sclose(s), 0);
    SAME(as_close(fd), -EDQUOT);

    /* While the stream has the file it is not closed there. */
    fd = as_open(argv[1], O_WRONLY);
    s = stream(fd, 0, 0);
    CHECK(s != NULL, "%d", errno);
    SAME(swrite(s, "hello", 5), 5);
    SAME(as_close(fd), 0);
    SAME(sclose(s), -EDQUOT);
    SAME(errno, EDQUOT);

    /* One that reads has it too, and is all that is left of it. */
    fd = as_open(argv[1], O_RDWR);
    s = stream(fd, 0, 1);
    CHECK(s != NULL, "%d", errno);
    SAME(as_pwrite(fd, "hello", 5, 0), 5);
    SAME(as_close(fd), 0);
    SAME(sclose(s), -EDQUOT);
    SAME(errno, EDQUOT);

    /* It tells no attributes, without which no regions can be had. The stream that was given up for them does not look whole. */
    fd = as_open(argv[1], O_WRONLY);
    s = stream(fd, 0, 0);
    CHECK(s != NULL, "%d", errno);
    SAME(swrite(s, "hello", 5), 5);
    CHECK(salloc(s, &length) == NULL && length == -EOPNOTSUPP, "%ld", length);
    SAME(swrite(s, "hello", 5), -EOPNOTSUPP);
    SAME(sclose(s), -EOPNOTSUPP);
    SAME(as_close(fd), -EDQUOT);
    return 0;
}
