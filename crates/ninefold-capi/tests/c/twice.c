/* twice NAME: wrong on purpose. It closes a stream twice, which tells whether the sanitizer sees what the library does. */
#include "check.h"
#include "ninefold.h"

int main(int argc, char **argv)
{
    Stream *s;
    int fd = argc == 2 ? as_open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    CHECK(fd >= 0, "%d", fd);
    s = stream(fd, 0, 0);
    SAME(sclose(s), 0);
    return sclose(s);
}
