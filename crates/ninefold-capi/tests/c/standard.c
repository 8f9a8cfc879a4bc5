/* standard NAME: a program without standard input, output and error prints to nobody, and not to the server. */
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

int main(int argc, char **argv)
{
    char bytes[5];
    struct stat st;
    int fd, number;
    CHECK(argc == 2, "wrong use");
    for (number = 0; number < 3; number++)
        SAME(close(number), 0);
    fd = as_open(argv[1], O_RDWR | O_CREAT, 0600);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    for (number = 0; number < 3; number++) {
        SAME(fstat(number, &st), 0);
        CHECK(S_ISCHR(st.st_mode), "%o", st.st_mode);
        SAME(write(number, "printed", 7), 7);
    }
    SAME(as_write(fd, "hello", 5), 5);
    SAME(as_pread(fd, bytes, 5, 0), 5);
    SAME(as_close(fd), 0);
    return 0;
}
