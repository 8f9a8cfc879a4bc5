/* changed NAME: a file that is rewritten in place while a stream reads it is no whole file. */
#include "check.h"
#include "ninefold.h"

static unsigned char bytes[65536];

int main(int argc, char **argv)
{
    long n;
    Stream *s;
    int fd;
    CHECK(argc == 2, "wrong use");
    fd = as_open(argv[1], O_RDONLY);
    CHECK(fd >= 0, "%d", fd);
    s = stream(fd, 0, 1);
    CHECK(s != NULL, "%d", errno);
    CHECK((n = sread(s, bytes, sizeof bytes)) > 0, "%ld", n);
    report("begun");
    while ((n = sread(s, bytes, sizeof bytes)) > 0)
        ;
    SAME(n, -ESTALE);
    SAME(sread(s, bytes, sizeof bytes), -ESTALE);
    SAME(sclose(s), -ESTALE);
    SAME(as_close(fd), 0);
    return 0;
}
