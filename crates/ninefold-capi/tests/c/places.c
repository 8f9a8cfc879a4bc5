/* places NAME: calls that give an offset, on a file whose writes are all taken; it reports when that is open. */
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

int main(int argc, char **argv)
{
    int fd;
    CHECK(argc == 2, "wrong use");
    fd = as_open(argv[1], O_WRONLY);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    report("open");
    SAME(as_pwrite(fd, "hello", 5, 0), 5);
    SAME(as_lseek(fd, 10, SEEK_SET), 10);
    SAME(as_pwrite(fd, "hello", 5, 5), 5);
    SAME(as_close(fd), -EDQUOT);
    return 0;
}
