/* cp, as it was: 8 KiB at a time, each read and each write waited for. */
#include <ninefold.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    char buf[8192];
    long n;
    if (argc != 3) return 2;
    int from = as_open(argv[1], O_RDONLY);
    int to = as_open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (from < 0 || to < 0) return perror("cp"), 1;
    while ((n = as_read(from, buf, sizeof buf)) > 0)
        if (as_write(to, buf, n) != n) return perror(argv[2]), 1;
    if (n < 0) return perror(argv[1]), 1;
    return as_close(to) < 0 ? perror(argv[2]), 1 : 0;
}
